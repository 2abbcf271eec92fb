/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_report.c -- sidestep_verify(): verifies a checkpoint, or what another program wrote. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "object/object.h"
#include "verify/verify.h"
#include "verify/verify_foreign.h"
#include "store/store.h"

#define MAX_THREADS 8u /* if the caller gives no number */
#define MIN_THREADS 4u /* reads in flight, even if there are fewer cores */

const struct sidestep_problem *
sidestep_verify_report_problem(const struct sidestep_verify_report *report, size_t i)
{
    const struct sidestep_problem *entries = report->problems;

    return i < report->problem_count ? &entries[i] : NULL;
}

const struct sidestep_unchecked *
sidestep_verify_report_unchecked(const struct sidestep_verify_report *report, size_t i)
{
    const struct sidestep_unchecked *entries = report->unchecked;

    return i < report->unchecked_count ? &entries[i] : NULL;
}

void sidestep_verify_report_release(struct sidestep_verify_report *report)
{
    if (report->owner != NULL) {
        verify_findings_release(report->owner);
        free(report->owner);
    }
    *report = (struct sidestep_verify_report){0};
}

/* Add damage of the index of chunks.  Loads work without it, so only this report mentions it. */
static enum sidestep_status verify_index(struct reader *reader, struct verify_findings *findings,
                                         struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char name[FILE_NAME_BYTES];
    OWNED_BUFFER text = {0};
    enum sidestep_status status = reader_check_index(reader, &why);

    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (status == SIDESTEP_ENOMEM)
        return error_copy(err, &why);
    file_name_format(FILE_NAME_INDEX, reader->manifest.save_id, 0, 0, name);
    buffer_printf(&text, "%s; loads work without it, 'sidestep rebuild' writes it again",
                  status == SIDESTEP_ENOTFOUND ? "it is missing" : why.message);
    buffer_put_u8(&text, 0);
    TRY(buffer_check(&text, err));
    return verify_findings_add(findings, name, NULL,
                               status == SIDESTEP_ENOTFOUND ? "missing" : verify_kind(status),
                               (const char *)text.bytes, err);
}

static enum sidestep_status verify_dcp(struct reader *reader,
                                       const struct verify_foreign_request *request,
                                       struct sidestep_error *err)
{
    TRY(verify_reader(reader, request->workers, request->options, request->findings, err));
    TRY(verify_index(reader, request->findings, err));
    return reader->has_manifest ? SIDESTEP_OK : verify_foreign_beside(request, reader, err);
}

static enum sidestep_status verify_at(const char *path, struct workers *workers,
                                      const struct verify_options *options,
                                      struct verify_findings *findings, struct sidestep_error *err)
{
    OWNED_STORE *store = NULL;
    OWNED_BY(reader_close) struct reader *reader = NULL;
    OWNED char *trimmed = memory_strdup(path);
    struct sidestep_error why = {0};

    if (trimmed == NULL)
        return FAIL_NOMEM(err, strlen(path));
    trimmed[object_url_trimmed(path)] = '\0'; /* because file names are appended */
    TRY(object_path_open(path, &store, err));
    uint32_t ring = store_ring_probe() == 0 ? READER_IO_URING : 0;
    const struct verify_foreign_request request = {.store = store,
                                                   .path = trimmed,
                                                   .flags = READER_TOLERANT | READER_SALVAGE |
                                                            READER_SHARED_LOCK | READER_PARTS |
                                                            STORE_DIRECT | ring,
                                                   .workers = workers,
                                                   .options = options,
                                                   .findings = findings};
    enum sidestep_status status = reader_open(request.store, path, request.flags, &reader, &why);
    bool is_foreign = false;

    if (status == SIDESTEP_OK)
        return verify_dcp(reader, &request, err);
    /* If it cannot be opened because of its contents, that is a finding. */
    if (status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSAFE)
        return verify_findings_add(findings, NULL, NULL,
                                   status == SIDESTEP_EUNSAFE ? "unsafe" : "format", why.message,
                                   err);
    if (status == SIDESTEP_EUNCOMMITTED && missing_metadata_is_lost(request.store, path))
        return verify_findings_add(findings, FILE_NAME_METADATA, NULL, "missing",
                                   "it is missing ('sidestep rebuild' makes a new one)", err);
    /* In a bucket, an object is not found when it is opened as a directory. */
    bool may_be_file = status == SIDESTEP_ENOTFOUND && request.store->ops->layout == STORE_OF_KEYS;
    if (status == SIDESTEP_EUNCOMMITTED || why.sys_errno == ENOTDIR || may_be_file)
        TRY(verify_foreign_check(&request, &is_foreign, err));
    if (is_foreign)
        return SIDESTEP_OK;
    error_wrap(&why, "open checkpoint '%s'", path);
    return error_copy(err, &why);
}

enum sidestep_status sidestep_verify(const char *path, const struct sidestep_verify_options *theirs,
                                     struct sidestep_verify_report *report,
                                     struct sidestep_error *err)
{
    OWNED_BY(workers_free) struct workers *workers = NULL;
    struct sidestep_verify_options options;

    if (path == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path or report is NULL");
    *report = (struct sidestep_verify_report){0};
    TRY(options_copy(&options, sizeof(options), theirs, "verify options", err));
    if (options.flags != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "verify options: unknown flags 0x%x",
                    options.flags);
    unsigned threads = thread_choose_count(options.threads, MIN_THREADS, MAX_THREADS);
    TRY(workers_new(threads - 1, "sidestep-verify", &workers, err));
    struct verify_findings *findings = memory_new(1, sizeof(*findings));
    if (findings == NULL)
        return FAIL_NOMEM(err, sizeof(*findings));
    struct verify_options inner = {
        .on_progress = options.on_progress, .context = options.context, .cancel = options.cancel};
    enum sidestep_status status = verify_at(path, workers, &inner, findings, err);
    *report =
        (struct sidestep_verify_report){.is_ok = status == SIDESTEP_OK && findings->count == 0,
                                        .unlisted_count = findings->unlisted_count,
                                        .checked_bytes = findings->checked_bytes,
                                        .problem_count = findings->count,
                                        .problems = findings->problems,
                                        .owner = findings,
                                        .status = verify_findings_judge(findings),
                                        .unchecked_count = findings->unchecked_count,
                                        .unchecked = findings->unchecked};
    if (status != SIDESTEP_OK)
        sidestep_verify_report_release(report);
    return status;
}
