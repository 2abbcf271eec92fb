/* SPDX-License-Identifier: BSD-3-Clause */
/* rebuild.c -- sidestep_gc() and sidestep_rebuild(): remove what is left over, and make a lost
 * .metadata again. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "commit/commit.h"
#include "checkpoint/checkpoint.h"
#include "catalog/gc_report.h"
#include "format/format.h"
#include "object/object.h"
#include "root/root.h"

/* ---- gc ---- */

enum sidestep_status sidestep_gc(const char *parent, uint32_t flags,
                                 struct sidestep_gc_report *report, struct sidestep_error *err)
{
    OWNED_STORE *store = NULL; /* closed after ${dir} */
    OWNED_DIR *dir = NULL;

    if (parent == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "parent or report is NULL");
    *report = (struct sidestep_gc_report){0};
    if ((flags & ~SIDESTEP_GC_DRY_RUN) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "gc: unknown flags 0x%x", flags);
    TRY(object_path_open(parent, &store, err));
    TRY(named_dir_open(store, parent, &dir, err));
    struct gc_report *c = gc_report_new(parent);
    if (c == NULL)
        return FAIL_NOMEM(err, sizeof(*c));
    struct sweep sweep = {.store = store,
                          .parent = dir,
                          .mode = SWEEP_ALL,
                          .dry_run = (flags & SIDESTEP_GC_DRY_RUN) != 0,
                          .removed = gc_report_add_removed,
                          .kept = gc_report_add_kept,
                          .context = c};
    enum sidestep_status status = root_sweep(&sweep, err);
    if (status == SIDESTEP_OK)
        status = root_sweep_below(&sweep, err);
    if (status != SIDESTEP_OK)
        gc_report_free(c);
    else
        status = gc_report_finish(c, report, err);
    return WRAP(status, err, "gc '%s'", parent);
}

/* ---- rebuild ---- */

struct rebuild_job {
    struct store_dir *dir;
    struct arena arena;
    struct footer *footers;
    const char **names;
    struct manifest manifest;
    struct commit_contents merged; /* the small files, if no manifest lists them */
};

static enum sidestep_status read_shard(struct rebuild_job *r, const char *name,
                                       struct sidestep_error *err)
{
    size_t i = r->manifest.file_count;
    struct manifest_file *row = &r->manifest.files[i];
    OWNED_FILE *file = NULL;
    struct store_stat stat;

    TRY(store_file_open_to_read(r->dir, name, 0, &file, err));
    TRY(store_file_stat(file, &stat, err));
    struct source source = small_file_source(file, stat.size);
    enum sidestep_status status =
        footer_read(&source, &r->arena, &r->footers[i], row->footer_sha256, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "shard '%s'", name);
        return status == SIDESTEP_ENOTFOUND ? SIDESTEP_EUNSUPPORTED : status;
    }
    row->name = r->names[i] = arena_strndup(&r->arena, name, strlen(name));
    row->bytes = stat.size;
    hash_to_hex(r->footers[i].save_id, SAVE_ID_BYTES, row->origin);
    if (row->name == NULL)
        return FAIL_NOMEM(err, strlen(name));
    r->manifest.file_count++;
    return SIDESTEP_OK;
}

/* Find the first shard of the lowest rank. It is always of the save itself; others may be
 * shared. */
static size_t find_first(const struct rebuild_job *r)
{
    size_t first = 0;

    for (size_t i = 1; i < r->manifest.file_count; i++) {
        const struct footer *f = &r->footers[i], *best = &r->footers[first];
        if (f->shard < best->shard || (f->shard == best->shard && f->rank < best->rank))
            first = i;
    }
    return first;
}

/* Check that all shards are there, and belong together. All must have one layout. The first shards
 * of all ranks must be of one save; others may be shared with an earlier one. */
static enum sidestep_status check_complete(struct rebuild_job *r, struct sidestep_error *err)
{
    size_t at = find_first(r);
    const struct footer *first = &r->footers[at];
    uint64_t expected = 0;

    if (r->manifest.file_count == 0)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there are no shards of sidestep");
    for (size_t i = 0; i < r->manifest.file_count; i++) {
        const struct footer *f = &r->footers[i];
        if ((f->shard == 0 && memcmp(f->save_id, first->save_id, SAVE_ID_BYTES) != 0) ||
            f->layout_digest != first->layout_digest || f->world_size != first->world_size)
            return FAIL(err, SIDESTEP_ECORRUPT, "'%s' and '%s' are of different saves",
                        r->names[at], r->names[i]);
        for (size_t k = 0; k < i; k++)
            if (r->footers[k].rank == f->rank && r->footers[k].shard == f->shard)
                return FAIL(err, SIDESTEP_ECORRUPT, "'%s' and '%s' are the same shard", r->names[k],
                            r->names[i]);
        if (f->shard == 0)
            expected += f->shard_count;
        if (f->rank >= f->world_size)
            return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is of rank %u of %u", r->names[i], f->rank,
                        f->world_size);
    }
    if (expected != r->manifest.file_count || expected < first->world_size)
        return FAIL(err, SIDESTEP_EUNCOMMITTED, "only %zu shards of %u ranks are there",
                    r->manifest.file_count, first->world_size);
    return SIDESTEP_OK;
}

/* Until the manifest is replaced, the new index counts as damaged, and loads do not use it. */
static enum sidestep_status write_index(struct rebuild_job *r, const struct metadata *metadata,
                                        struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES], tmp[FILE_NAME_BYTES];
    OWNED_BUFFER index = {0};

    TRY(commit_encode_index(metadata, &r->manifest, &index, err));
    if (index.length == 0)
        return SIDESTEP_OK;
    file_name_format(FILE_NAME_INDEX, r->manifest.save_id, 0, 0, name);
    file_name_format(FILE_NAME_METADATA_TMP, r->manifest.save_id, 0, 0, tmp);
    return small_file_replace(r->dir, name, tmp, index.bytes, index.length, err);
}

static enum sidestep_status write_rebuilt(struct rebuild_job *r, struct metadata *metadata,
                                          struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    OWNED_BUFFER manifest = {0};
    char name[FILE_NAME_BYTES], tmp[FILE_NAME_BYTES];

    TRY(write_index(r, metadata, err));
    TRY(dcp_metadata_write(&bytes, metadata, err));
    r->manifest.metadata_bytes = bytes.length;
    hash_sha256(bytes.bytes, bytes.length, r->manifest.metadata_sha256);
    TRY(manifest_encode(&r->manifest, &manifest, err));
    file_name_format(FILE_NAME_MANIFEST, r->manifest.save_id, 0, 0, name);
    file_name_format(FILE_NAME_METADATA_TMP, r->manifest.save_id, 0, 0, tmp);
    /* The old manifest stays until the new one is whole, because only it contains step and run. */
    TRY(small_file_replace(r->dir, name, tmp, manifest.bytes, manifest.length, err));
    return small_file_replace(r->dir, FILE_NAME_METADATA, tmp, bytes.bytes, bytes.length, err);
}

/* Check the shards against the old manifest. A shared shard has the id of another save, so only the
 * manifest says which file is right. */
static enum sidestep_status check_listed(const struct rebuild_job *r, const struct manifest *old,
                                         struct sidestep_error *err)
{
    for (size_t i = 0; i < r->manifest.file_count; i++) {
        const struct manifest_file *row = &r->manifest.files[i];
        size_t k = 0;

        while (k < old->file_count && strcmp(old->files[k].name, row->name) != 0)
            k++;
        if (k == old->file_count ||
            memcmp(old->files[k].footer_sha256, row->footer_sha256, HASH_SHA256_BYTES) != 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is not the file that the manifest lists",
                        row->name);
    }
    return SIDESTEP_OK;
}

static const struct footer *find_first_of(const struct rebuild_job *r, uint32_t rank)
{
    for (size_t i = 0; i < r->manifest.file_count; i++)
        if (r->footers[i].shard == 0 && r->footers[i].rank == rank)
            return &r->footers[i];
    return NULL;
}

/* List the small files as the save did, from the footers. Where a file has not the name that it was
 * written with, it has its own. */
static enum sidestep_status take_extras(struct rebuild_job *r, struct sidestep_error *err)
{
    OWNED_EXTRA_MERGE merge = {0};
    struct manifest *merged = &r->merged.manifest;

    for (uint32_t rank = 0; rank < r->footers[0].world_size; rank++)
        TRY(extra_merge_add(&merge, &r->merged, find_first_of(r, rank), err));
    for (size_t i = 0; i < merged->extra_count; i++) {
        struct extra_file *file = &merged->extras[i];
        char name[FILE_NAME_BYTES];
        struct store_stat stat;
        file_name_format(FILE_NAME_EXTRA, r->manifest.save_id, file->rank, file->number, name);
        enum sidestep_status status =
            file->is_alias ? SIDESTEP_ENOTFOUND : store_stat(r->dir, name, &stat, err);
        if (status == SIDESTEP_OK)
            TRY(arena_copy_text(&r->arena, name, &file->stored, err));
        else if (status != SIDESTEP_ENOTFOUND)
            return status;
    }
    r->manifest.extras = merged->extras;
    r->manifest.extra_count = merged->extra_count;
    return SIDESTEP_OK;
}

/* Take from the old manifest of this save what footers do not contain. Without one that stays
 * unknown. */
static enum sidestep_status take_manifest(struct rebuild_job *r, struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    struct manifest old = {0};
    char name[FILE_NAME_BYTES];

    r->manifest.step = -1;
    r->manifest.saved_at = (int64_t)time(NULL);
    file_name_format(FILE_NAME_MANIFEST, r->manifest.save_id, 0, 0, name);
    enum sidestep_status status = small_file_read(r->dir, name, 0, MANIFEST_MAX_BYTES, &bytes, err);
    if (status == SIDESTEP_OK)
        status = manifest_decode(bytes.bytes, bytes.length, &r->arena, &old, err);
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSAFE)
        return take_extras(r, err);
    TRY(status);
    if (strcmp(old.save_id, r->manifest.save_id) != 0)
        return take_extras(r, err);
    TRY(check_listed(r, &old, err));
    r->manifest.extras = old.extras;
    r->manifest.extra_count = old.extra_count;
    memcpy(r->manifest.run_id, old.run_id, sizeof(old.run_id));
    r->manifest.incarnation = old.incarnation;
    r->manifest.step = old.step;
    memcpy(r->manifest.naming, old.naming, sizeof(old.naming));
    r->manifest.saved_at = old.saved_at;
    return SIDESTEP_OK;
}

static enum sidestep_status rebuild(struct rebuild_job *r, const char *path,
                                    struct sidestep_error *err)
{
    OWNED_NAMES struct name_list names = {0};
    OWNED_METADATA metadata = {0};

    TRY(name_list_read(r->dir, &names, err));
    r->footers = arena_new(&r->arena, names.count, sizeof(*r->footers));
    r->names = arena_new(&r->arena, names.count, sizeof(*r->names));
    r->manifest.files = arena_new(&r->arena, names.count, sizeof(*r->manifest.files));
    if (r->footers == NULL || r->names == NULL || r->manifest.files == NULL)
        return FAIL_NOMEM(err, names.count * sizeof(*r->footers));
    for (size_t i = 0; i < names.count; i++)
        if (file_name_parse(names.names[i]).kind == FILE_NAME_SHARD)
            TRY(read_shard(r, names.names[i], err));
    TRY(check_complete(r, err));
    TRY(commit_metadata_from_footers(r->footers, r->names, r->manifest.file_count, &metadata, err));
    TRY(commit_metadata_check_tiling(&metadata, err));
    memcpy(r->manifest.save_id, r->manifest.files[find_first(r)].origin, SAVE_ID_HEX);
    TRY(take_manifest(r, err));
    r->manifest.world_size = r->footers[0].world_size;
    metadata.save_id = r->manifest.save_id;
    metadata.checkpoint_id = utf8_is_valid(path, strlen(path)) ? path : NULL;
    return write_rebuilt(r, &metadata, err);
}

static bool is_whole(struct store *store, const char *path)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;

    return reader_open(store, path, READER_ALL, &reader, NULL) == SIDESTEP_OK &&
           reader_check_index(reader, NULL) == SIDESTEP_OK;
}

enum sidestep_status sidestep_rebuild(const char *path, struct sidestep_error *err)
{
    struct rebuild_job r = {0};
    OWNED_STORE *store = NULL;

    if (path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path is NULL");
    TRY(object_path_open(path, &store, err));
    if (is_whole(store, path))
        return FAIL(err, SIDESTEP_EEXISTS, "rebuild '%s': it is already a whole checkpoint", path);
    enum sidestep_status status = named_dir_open(store, path, &r.dir, err);
    if (status == SIDESTEP_OK)
        status = rebuild(&r, path, err);
    store_dir_close(r.dir);
    arena_release(&r.arena);
    commit_contents_release(&r.merged);
    return WRAP(status, err, "rebuild '%s'", path);
}
