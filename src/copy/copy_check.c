/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_check.c -- checks files at the destination of a copy.
 *
 * A second reader of the source knows what each file must be. Its files are then taken from the
 * destination, and verified there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "copy/copy.h"

/* ECORRUPT: a file of sidestep has not the footer that the manifest lists. */
static enum sidestep_status check_footer(const struct reader *r, size_t i,
                                         struct sidestep_error *err)
{
    const struct reader_file *file = &r->files[i];
    uint64_t length = file->source.length - file->footer_offset;
    OWNED uint8_t *bytes = memory_new(length, 1);
    uint8_t sha256[HASH_SHA256_BYTES];

    if (!file->ours)
        return SIDESTEP_OK;
    if (bytes == NULL)
        return FAIL_NOMEM(err, length);
    TRY(source_read(&file->source, bytes, length, file->footer_offset, err));
    hash_sha256(bytes, length, sha256);
    if (memcmp(sha256, r->manifest.files[i].footer_sha256, sizeof(sha256)) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "its footer is not the one that the manifest lists");
}

/* Let ${r} read file ${i} from the destination. ECORRUPT: its size or its footer differs. */
static enum sidestep_status open_at_destination(struct checkpoint_copy *c, struct reader *r,
                                                size_t i, struct sidestep_error *err)
{
    struct reader_file *file = &r->files[i];

    store_file_discard(TAKE(file->file));
    file->name = c->finals[i];
    TRY(reader_file_open(file, c->dir, STORE_DIRECT, err));
    if (file->source.length != c->sizes[i])
        return FAIL(err, SIDESTEP_ECORRUPT, "it has another size");
    enum sidestep_status status = check_footer(r, i, err);
    if (i >= READER_MAX_OPEN_FILES)
        store_file_discard(TAKE(file->file));
    return status;
}

/* May a file that cannot be checked be written anew? Files of a save belong to all who send it: one
 * that cannot be read now may be whole. */
static bool may_rewrite(const struct checkpoint_copy *c, enum sidestep_status status)
{
    return c->save == NULL || reader_status_is_damage(status);
}

static enum sidestep_status verify(struct checkpoint_copy *c, struct reader *r, const bool *skips,
                                   struct verify_findings *findings, struct sidestep_error *err)
{
    const struct verify_options options = {.cancel = c->options.cancel, .skips = skips};

    r->queue = c->reader->queue;
    return verify_reader(r, c->workers, &options, findings, err);
}

/* May a finding be about the file ${name}? */
static bool is_blamed(const struct verify_findings *findings, const char *name)
{
    for (size_t i = 0; i < findings->count; i++)
        if (findings->problems[i].file == NULL || strcmp(findings->problems[i].file, name) == 0)
            return true;
    return findings->unlisted_count != 0;
}

/* Verify those files at the destination for which ${skips} is false, and set it for the others. */
static enum sidestep_status check(struct checkpoint_copy *c, bool *skips,
                                  struct verify_findings *findings, struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *r = NULL;

    TRY(reader_open(c->from, c->source, copy_source_flags(c), &r, err));
    if (r->file_count != c->reader->file_count ||
        strcmp(r->manifest.save_id, c->reader->manifest.save_id) != 0 ||
        memcmp(r->manifest_sha256, c->reader->manifest_sha256, HASH_SHA256_BYTES) != 0)
        return FAIL(err, SIDESTEP_EABORTED, "the source was replaced during the copy; copy again");
    for (size_t i = 0; i < r->file_count; i++) {
        struct sidestep_error why = {.rank = -1};
        enum sidestep_status status = skips[i] ? SIDESTEP_OK : open_at_destination(c, r, i, &why);
        skips[i] |= status != SIDESTEP_OK;
        if (status != SIDESTEP_OK && !may_rewrite(c, status))
            return WRAP(error_copy(err, &why), err, "file '%s'", c->finals[i]);
    }
    return verify(c, r, skips, findings, err);
}

/* What is at the destination under the names of the files. */
struct present {
    bool *is_there;
    bool *skips; /* it is not there, or its size differs */
    size_t candidates;
};

static enum sidestep_status look_at(struct checkpoint_copy *c, size_t i, struct present *present,
                                    struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct store_stat stat;
    enum sidestep_status status = store_stat(c->dir, c->finals[i], &stat, &why);

    present->is_there[i] = status == SIDESTEP_OK;
    present->skips[i] =
        status != SIDESTEP_OK || stat.kind != STORE_FILE || stat.size != c->sizes[i];
    present->candidates += !present->skips[i];
    return status == SIDESTEP_OK || may_rewrite(c, status) ? SIDESTEP_OK : error_copy(err, &why);
}

/* An earlier process wrote the file, but may not have synced it. */
static enum sidestep_status make_durable(struct checkpoint_copy *c, size_t i,
                                         struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    if (!c->target->is_private)
        return SIDESTEP_OK; /* an object is durable when it is there */
    TRY(store_file_open(c->dir, c->finals[i], 0, &file, err));
    return store_file_sync(file, err);
}

static enum sidestep_status record_present(struct checkpoint_copy *c, const bool *skips,
                                           const struct verify_findings *findings,
                                           struct sidestep_error *err)
{
    for (size_t i = 0; i < c->reader->file_count; i++)
        if (!skips[i] && !is_blamed(findings, c->finals[i])) {
            TRY(make_durable(c, i, err));
            c->files[i].is_there = true;
            TRY(copy_add_progress(c, c->sizes[i], err));
        }
    return SIDESTEP_OK;
}

static enum sidestep_status report_worst(const struct verify_findings *findings,
                                         struct sidestep_error *err)
{
    const struct sidestep_problem *p = verify_findings_worst(findings);

    return FAIL(err, verify_findings_judge(findings), "'%s' in file '%s': %s",
                p->name != NULL ? p->name : "?", p->file != NULL ? p->file : "?", p->message);
}

/* What was sealed in a save is never removed from it: then the whole save begins anew. */
static enum sidestep_status check_sealed(const struct checkpoint_copy *c,
                                         const struct present *present, struct sidestep_error *err)
{
    for (size_t i = 0; i < c->reader->file_count; i++)
        if (present->is_there[i] && !c->files[i].is_there)
            return FAIL(err, SIDESTEP_EDISAGREE,
                        "its file '%s' is damaged at the destination, so all is sent anew",
                        c->finals[i]);
    return SIDESTEP_OK;
}

static enum sidestep_status check_present(struct checkpoint_copy *c, struct present *present,
                                          struct verify_findings *findings,
                                          struct sidestep_error *err)
{
    for (size_t i = 0; i < c->reader->file_count; i++)
        TRY(look_at(c, i, present, err));
    if (present->candidates != 0) {
        TRY(check(c, present->skips, findings, err));
        if (findings->count != 0 && !may_rewrite(c, verify_findings_judge(findings)))
            return report_worst(findings, err);
        TRY(record_present(c, present->skips, findings, err));
    }
    return c->save != NULL && c->target->is_private ? check_sealed(c, present, err) : SIDESTEP_OK;
}

enum sidestep_status copy_check_present(struct checkpoint_copy *c, struct sidestep_error *err)
{
    size_t count = c->reader->file_count;
    OWNED bool *marks = memory_new(count, 2 * sizeof(*marks));
    struct present present = {.is_there = marks, .skips = marks != NULL ? marks + count : NULL};
    struct verify_findings findings = {0};

    if (marks == NULL)
        return FAIL_NOMEM(err, 2 * count);
    enum sidestep_status status = check_present(c, &present, &findings, err);
    verify_findings_release(&findings);
    return WRAP(status, err, "check what an earlier copy left");
}

enum sidestep_status copy_check_written(struct checkpoint_copy *c, struct sidestep_error *err)
{
    OWNED bool *skips = memory_new(c->reader->file_count, sizeof(*skips));
    struct verify_findings findings = {0};

    if (skips == NULL)
        return FAIL_NOMEM(err, c->reader->file_count);
    for (size_t i = 0; i < c->reader->file_count; i++)
        skips[i] = c->files[i].is_there;
    enum sidestep_status status = check(c, skips, &findings, err);
    for (size_t i = 0; status == SIDESTEP_OK && i < c->reader->file_count; i++)
        if (skips[i] && !c->files[i].is_there)
            status = FAIL(err, SIDESTEP_EABORTED,
                          "file '%s' of the copy was removed or changed by another process",
                          c->names[i]);
    if (status == SIDESTEP_OK && findings.count != 0)
        status = report_worst(&findings, err);
    verify_findings_release(&findings);
    return WRAP(status, err, "check what was copied");
}
