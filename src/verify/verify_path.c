/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_path.c -- opens a checkpoint, verifies it, and fails with the worst of what is wrong;
 * see verify.h. */
#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "verify/verify.h"
#include "verify/verify_findings.h"

/* Verify according to ${mode}. */
static enum sidestep_status verify_opened(struct reader *reader, enum sidestep_verify_mode mode,
                                          struct workers *workers,
                                          const struct verify_options *options,
                                          struct sidestep_error *err)
{
    struct verify_findings findings = {0};
    enum sidestep_status status = mode != SIDESTEP_VERIFY_STRUCTURE
                                      ? verify_reader(reader, workers, options, &findings, err)
                                      : reader_check_extras(reader, err);
    if (status == SIDESTEP_OK && findings.count != 0) {
        const struct sidestep_problem *p = verify_findings_worst(&findings);
        status = FAIL(err, verify_findings_judge(&findings), "%s%s%s%s%s",
                      p->file != NULL ? p->file : "", p->file != NULL ? ": " : "",
                      p->name != NULL ? p->name : "", p->name != NULL ? ": " : "", p->message);
    }
    verify_findings_release(&findings);
    return status;
}

enum sidestep_status verify_path(struct store *store, const char *path,
                                 enum sidestep_verify_mode mode, uint32_t flags,
                                 struct workers *workers, const struct verify_options *options,
                                 struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;

    TRY(reader_open(store, path, flags | READER_ALL | READER_PARTS, &reader, err));
    return verify_opened(reader, mode, workers, options, err);
}

enum sidestep_status verify_in(struct store_dir *parent, const char *name, const char *path,
                               enum sidestep_verify_mode mode, struct workers *workers,
                               const struct verify_options *options, struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;

    TRY(reader_open_in(parent, name, path, READER_ALL | READER_PARTS, &reader, err));
    return verify_opened(reader, mode, workers, options, err);
}
