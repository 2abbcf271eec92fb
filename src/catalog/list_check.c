/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list_check.c -- checks whether the checkpoints of a listing are whole, by names and sizes.
 *
 * A root may hold a thousand checkpoints, and a checkpoint a gigabyte of footers and metadata. So
 * for a checkpoint written by sidestep only the manifest is read, and each listed file is opened
 * for its size. A checkpoint that differs from its manifest, or is of another program, is opened as
 * a load opens it. That gives the reason, and shows whether it is damaged or cannot be read now.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "commit/commit.h"
#include "format/format.h"
#include "catalog/listing.h"

#define THREADS 4u                       /* requests to slow storage in flight */
#define MAX_WITHOUT_THREADS ((size_t)16) /* checkpoints that one thread checks */

struct check_result {
    enum sidestep_status status;
    struct sidestep_error why;
};

struct check_job {
    struct listing *listing;
    struct check_result *results; /* one for each entry */
    atomic_size_t next;
};

static bool has_size(struct store_dir *dir, const char *name, uint64_t bytes)
{
    OWNED_FILE *file = NULL;
    struct store_stat stat;

    return store_file_open_to_read(dir, name, 0, &file, NULL) == SIDESTEP_OK &&
           store_file_stat(file, &stat, NULL) == SIDESTEP_OK && stat.size == bytes;
}

/* Does every file exist, is it readable, and does it have the size in the manifest? False also if
 * that cannot be found out. */
static bool is_as_listed(struct listing *l, const struct sidestep_listed *entry)
{
    OWNED_BUFFER bytes = {0};
    OWNED_ARENA arena = {0};
    OWNED_DIR *dir = NULL;
    struct manifest manifest;
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_MANIFEST, entry->save_id, 0, 0, name);
    if (store_dir_open(l->store, entry->is_link ? NULL : l->root_dir,
                       entry->is_link ? entry->path : entry->name, &dir, NULL) != SIDESTEP_OK ||
        small_file_read(dir, name, 0, MANIFEST_MAX_BYTES, &bytes, NULL) != SIDESTEP_OK ||
        manifest_decode(bytes.bytes, bytes.length, &arena, &manifest, NULL) != SIDESTEP_OK ||
        (manifest.part.rank_count == 0 &&
         !has_size(dir, FILE_NAME_METADATA, manifest.metadata_bytes)))
        return false;
    for (size_t i = 0; i < manifest.file_count; i++)
        if (!has_size(dir, manifest.files[i].name, manifest.files[i].bytes))
            return false;
    for (size_t i = 0; i < manifest.extra_count; i++)
        if (!manifest.extras[i].is_alias &&
            !has_size(dir, extra_file_stored(&manifest.extras[i]), manifest.extras[i].bytes))
            return false;
    return true;
}

static void check_entry(struct listing *l, const struct sidestep_listed *entry,
                        struct check_result *check_result)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;

    if ((entry->state != SIDESTEP_COMMITTED && entry->state != SIDESTEP_PART) ||
        (entry->save_id != NULL && is_as_listed(l, entry)))
        return;
    check_result->status =
        reader_open(l->store, entry->path, READER_ALL | READER_PARTS, &reader, &check_result->why);
    if (check_result->status == SIDESTEP_OK)
        check_result->status = reader_check_extras(reader, &check_result->why);
}

static void check_entries(void *context)
{
    struct check_job *check_job = context;
    struct listing *l = check_job->listing;

    for (size_t i; (i = atomic_fetch_add(&check_job->next, 1)) < l->count;)
        check_entry(l, &l->entries[i], &check_job->results[i]);
}

/* Is the name gone? Then the result is of a checkpoint that was being deleted. */
static bool is_gone(struct listing *l, const struct sidestep_listed *entry)
{
    struct store_stat stat;

    return store_stat(l->root_dir, entry->name, &stat, NULL) == SIDESTEP_ENOTFOUND;
}

static enum sidestep_status apply_result(struct listing *l, struct sidestep_listed *entry,
                                         const struct check_result *check_result,
                                         struct sidestep_error *err)
{
    if (check_result->status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (check_result->status == SIDESTEP_ENOMEM) {
        error_copy(err, &check_result->why);
        return SIDESTEP_ENOMEM;
    }
    l->has_changed |= is_gone(l, entry);
    if (check_result->status != SIDESTEP_EUNSUPPORTED) { /* whole, for another version */
        entry->status = check_result->status;
        listing_set_state(entry, reader_status_is_damage(check_result->status)
                                     ? SIDESTEP_DAMAGED
                                     : SIDESTEP_UNREADABLE);
    }
    return arena_copy_text(&l->arena, check_result->why.message, &entry->reason, err);
}

enum sidestep_status listing_check(struct listing *l, struct sidestep_error *err)
{
    OWNED_BY(workers_free) struct workers *workers = NULL;
    OWNED struct check_result *results = memory_new(l->count, sizeof(*results));
    struct check_job check_job = {.listing = l, .results = results};

    if (results == NULL)
        return FAIL_NOMEM(err, l->count * sizeof(*results));
    TRY(workers_new(l->count > MAX_WITHOUT_THREADS ? THREADS - 1 : 0, "sidestep-list", &workers,
                    err));
    workers_run(workers, check_entries, &check_job);
    for (size_t i = 0; i < l->count; i++)
        TRY(apply_result(l, &l->entries[i], &results[i], err));
    return SIDESTEP_OK;
}
