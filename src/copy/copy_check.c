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

/* Does a file of sidestep have the footer that the manifest lists? */
static bool has_listed_footer(const struct reader *r, size_t i)
{
    const struct reader_file *file = &r->files[i];
    uint64_t length = file->source.length - file->footer_offset;
    OWNED uint8_t *bytes = memory_new(length, 1);
    uint8_t sha256[HASH_SHA256_BYTES];

    if (!file->ours)
        return true;
    if (bytes == NULL ||
        source_read(&file->source, bytes, length, file->footer_offset, NULL) != SIDESTEP_OK)
        return false;
    hash_sha256(bytes, length, sha256);
    return memcmp(sha256, r->manifest.files[i].footer_sha256, sizeof(sha256)) == 0;
}

/* Let ${r} read file ${i} from the destination. False: its size or its footer differs. */
static bool open_at_destination(struct checkpoint_copy *c, struct reader *r, size_t i)
{
    struct reader_file *file = &r->files[i];

    store_file_discard(TAKE(file->file));
    if (reader_file_open(file, c->dir, STORE_DIRECT, NULL) != SIDESTEP_OK ||
        file->source.length != c->sizes[i])
        return false;
    bool is_listed = has_listed_footer(r, i);
    if (i >= READER_MAX_OPEN_FILES)
        store_file_discard(TAKE(file->file));
    return is_listed;
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

    TRY(reader_open(c->from, c->source, STORE_DIRECT | READER_ALL, &r, err));
    if (r->file_count != c->reader->file_count ||
        memcmp(r->manifest_sha256, c->reader->manifest_sha256, HASH_SHA256_BYTES) != 0)
        return FAIL(err, SIDESTEP_EABORTED, "the source was replaced during the copy; copy again");
    for (size_t i = 0; i < r->file_count; i++)
        if (!skips[i])
            skips[i] = !open_at_destination(c, r, i);
    return verify(c, r, skips, findings, err);
}

static bool is_candidate(struct checkpoint_copy *c, size_t i)
{
    struct store_stat stat;

    return store_stat(c->dir, c->names[i], &stat, NULL) == SIDESTEP_OK && stat.kind == STORE_FILE &&
           stat.size == c->sizes[i];
}

/* An earlier process wrote the file, but may not have synced it. */
static enum sidestep_status make_durable(struct checkpoint_copy *c, size_t i,
                                         struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    if (!c->target->is_private)
        return SIDESTEP_OK; /* an object is durable when it is there */
    TRY(store_file_open(c->dir, c->names[i], 0, &file, err));
    return store_file_sync(file, err);
}

static enum sidestep_status record_present(struct checkpoint_copy *c, const bool *skips,
                                           const struct verify_findings *findings,
                                           struct sidestep_error *err)
{
    for (size_t i = 0; i < c->reader->file_count; i++)
        if (!skips[i] && !is_blamed(findings, c->names[i])) {
            TRY(make_durable(c, i, err));
            c->files[i].is_there = true;
            TRY(copy_add_progress(c, c->sizes[i], err));
        }
    return SIDESTEP_OK;
}

enum sidestep_status copy_check_present(struct checkpoint_copy *c, struct sidestep_error *err)
{
    OWNED bool *skips = memory_new(c->reader->file_count, sizeof(*skips));
    struct verify_findings findings = {0};
    size_t candidates = 0;

    if (skips == NULL)
        return FAIL_NOMEM(err, c->reader->file_count);
    for (size_t i = 0; i < c->reader->file_count; i++) {
        skips[i] = !is_candidate(c, i);
        candidates += !skips[i];
    }
    if (candidates == 0)
        return SIDESTEP_OK;
    enum sidestep_status status = check(c, skips, &findings, err);
    if (status == SIDESTEP_OK)
        status = record_present(c, skips, &findings, err);
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
    if (status == SIDESTEP_OK && findings.count != 0) {
        const struct sidestep_problem *p = verify_findings_worst(&findings);
        status = FAIL(err, verify_findings_judge(&findings), "'%s' in file '%s': %s",
                      p->name != NULL ? p->name : "?", p->file != NULL ? p->file : "?", p->message);
    }
    verify_findings_release(&findings);
    return WRAP(status, err, "check what was copied");
}
