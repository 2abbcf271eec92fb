/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_records.c -- makes the records of a whole checkpoint of the parts that lie in the
 * directories of several nodes; see series_view.h.
 *
 * The end of each file, with its footer, goes to rank 0, which checks it against the manifest of
 * its part. The metadata is made of the footers as at a commit.
 */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "series/series_view.h"
#include "verify/verify.h"

#define TAIL_BYTES ((uint64_t)32 << 10) /* a reader of a footer may ask for so many at once */

/* ---- the footers of all parts, to rank 0 */

/* The part of a rank that leads: its manifest, and the end of each of its files. */
static enum sidestep_status put_part(const struct reader *part, const struct buffer *manifest,
                                     struct buffer *out, struct sidestep_error *err)
{
    buffer_put_u64le(out, manifest->length);
    buffer_put(out, manifest->bytes, manifest->length);
    for (size_t i = 0; i < part->manifest.file_count; i++) {
        const struct reader_file *file = &part->files[i];
        uint64_t footer = file->source.length - file->footer_offset;
        uint64_t length = min_u64(file->source.length, max_u64(footer, TAIL_BYTES));
        buffer_put_u64le(out, length);
        uint8_t *to = buffer_extend(out, (size_t)length);
        TRY(buffer_check(out, err));
        TRY(source_read(&file->source, to, (size_t)length, file->source.length - length, err));
    }
    return buffer_check(out, err);
}

bool series_has_save(struct sidestep_series *series, const char *name, const char *save_id)
{
    OWNED_REFERENCED_FILES named = {0};
    OWNED_DIR *dir = NULL;

    return store_dir_open(series->store, series->lease.root, name, &dir, NULL) == SIDESTEP_OK &&
           referenced_files_read_any(dir, &named) == SIDESTEP_OK && named.save_id != NULL &&
           strcmp(named.save_id, save_id) == 0;
}

enum sidestep_status series_read_manifest(struct sidestep_series *series, const char *name,
                                          const char *save_id, struct store_dir **dir,
                                          struct buffer *manifest, struct sidestep_error *err)
{
    char file[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_MANIFEST, save_id, 0, 0, file);
    TRY(store_dir_open(series->store, series->lease.root, name, dir, err));
    return WRAP(small_file_read(*dir, file, 0, MANIFEST_MAX_BYTES, manifest, err), err, "'%s/%s'",
                name, file);
}

static enum sidestep_status offer_part(struct sidestep_series *series,
                                       const struct series_whole *whole,
                                       enum sidestep_verify_mode mode, struct buffer *out,
                                       struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES], path[COMMIT_PATH_BYTES];
    OWNED_BY(reader_close) struct reader *part = NULL;
    OWNED_BUFFER manifest = {0};
    OWNED_DIR *dir = NULL;

    name_template_format_name(&series->naming, (uint64_t)whole->step, name);
    if (!series_has_save(series, name, whole->save_id))
        return SIDESTEP_OK;
    snprintf(path, sizeof(path), "%s/%s", series->root, name);
    if (mode == SIDESTEP_VERIFY_BEFORE)
        TRY(WRAP(verify_path(series->store, path, mode, 0, series->engine->stagers, NULL, err), err,
                 "'%s'", path));
    TRY(WRAP(reader_open(series->store, path, READER_ALL | READER_PARTS, &part, err), err, "'%s'",
             path));
    TRY(WRAP(reader_check_extras(part, err), err, "'%s'", path));
    TRY(series_read_manifest(series, name, whole->save_id, &dir, &manifest, err));
    TRY(store_dir_sync(dir, err));
    return put_part(part, &manifest, out, err);
}

/* ---- rank 0 makes the records of the whole */

/* The end of a file that lies elsewhere, as a source of the whole file. */
struct tail {
    const uint8_t *bytes;
    uint64_t length;
};

static enum sidestep_status read_tail(const struct source *source, void *to, size_t bytes,
                                      uint64_t offset, struct sidestep_error *err)
{
    const struct tail *tail = source->context;
    uint64_t first = source->length - tail->length;

    if (offset < first)
        return FAIL(err, SIDESTEP_ECORRUPT, "a footer that is longer than what was sent of it");
    memcpy(to, tail->bytes + (offset - first), bytes);
    return SIDESTEP_OK;
}

/* A file of the whole. */
struct whole_file {
    struct manifest_file row;
    struct footer footer;
    uint32_t holder;
};

struct joining {
    struct arena arena;
    struct whole_file *files;
    size_t count, capacity;
    struct manifest head; /* of the first part */
};

static void joining_release(struct joining *j)
{
    arena_release(&j->arena);
    free(j->files);
}

static enum sidestep_status add_file(struct joining *j, const struct manifest_file *row,
                                     const struct tail *tail, uint32_t holder,
                                     struct sidestep_error *err)
{
    const struct source source = {.length = row->bytes, .read_at = read_tail, .context = tail};
    uint8_t sha256[HASH_SHA256_BYTES];

    TRY_GROW(j->files, j->capacity, j->count, err);
    struct whole_file *file = &j->files[j->count];
    *file = (struct whole_file){.row = *row, .holder = holder};
    if (tail->length > row->bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "file '%s': more was sent than it has", row->name);
    TRY(WRAP(footer_read(&source, &j->arena, &file->footer, sha256, err), err, "file '%s'",
             row->name));
    if (memcmp(sha256, row->footer_sha256, sizeof(sha256)) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "file '%s' is not the one that its manifest lists",
                    row->name);
    j->count++;
    return SIDESTEP_OK;
}

static enum sidestep_status add_part(struct joining *j, const uint8_t *bytes, size_t length,
                                     uint32_t holder, const struct series_whole *whole,
                                     struct sidestep_error *err)
{
    struct cursor cursor = cursor_from_memory(bytes, length);
    uint64_t text_length = cursor_u64le(&cursor);
    const uint8_t *text = cursor_take(&cursor, (size_t)text_length);
    struct manifest manifest;

    if (text == NULL)
        return FAIL(err, SIDESTEP_EPEER, "the part of rank %u is cut short", holder);
    TRY(manifest_decode(text, (size_t)text_length, &j->arena, &manifest, err));
    if (strcmp(manifest.save_id, whole->save_id) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "rank %u has a part of save %s instead", holder,
                    manifest.save_id);
    if (j->head.world_size == 0)
        j->head = manifest;
    for (size_t i = 0; i < manifest.file_count; i++) {
        struct tail tail = {.length = cursor_u64le(&cursor)};
        tail.bytes = cursor_take(&cursor, (size_t)tail.length);
        if (tail.bytes == NULL)
            return FAIL(err, SIDESTEP_EPEER, "the part of rank %u is cut short", holder);
        TRY(add_file(j, &manifest.files[i], &tail, holder, err));
    }
    return SIDESTEP_OK;
}

static int compare_files(const void *a, const void *b)
{
    const struct footer *x = &((const struct whole_file *)a)->footer,
                        *y = &((const struct whole_file *)b)->footer;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* Sort, and drop what lies in several directories: one of them is enough. */
static void sort_files(struct joining *j)
{
    size_t kept = 0;

    if (j->count != 0)
        qsort(j->files, j->count, sizeof(*j->files), compare_files);
    for (size_t i = 0; i < j->count; i++)
        if (kept == 0 || compare_files(&j->files[kept - 1], &j->files[i]) != 0)
            j->files[kept++] = j->files[i];
    j->count = kept;
}

/* Are the shards of all ranks there, of one layout? The files are sorted. */
static enum sidestep_status check_files(const struct joining *j, struct sidestep_error *err)
{
    size_t at = 0;

    for (uint32_t rank = 0; rank < j->head.world_size; rank++)
        for (uint32_t shard = 0, shards = 1; shard < shards; shard++, at++) {
            const struct footer *footer = at < j->count ? &j->files[at].footer : NULL;
            if (footer == NULL || footer->rank != rank || footer->shard != shard ||
                footer->world_size != j->head.world_size ||
                footer->layout_digest != j->files[0].footer.layout_digest)
                return FAIL(err, SIDESTEP_ECORRUPT,
                            "shard %u of rank %u is missing, or of another "
                            "save",
                            shard, rank);
            shards = shard == 0 ? footer->shard_count : shards;
        }
    return at == j->count ? SIDESTEP_OK
                          : FAIL(err, SIDESTEP_ECORRUPT, "there are shards of no rank");
}

static enum sidestep_status build_metadata(const struct joining *j,
                                           struct commit_contents *contents,
                                           struct sidestep_error *err)
{
    OWNED_METADATA_BUILDER builder = {.out = &contents->metadata};

    for (size_t i = 0; i < j->count; i++)
        TRY(commit_metadata_add(&builder, &j->files[i].footer, j->files[i].row.name, err));
    TRY(commit_metadata_finish(&builder, err));
    TRY(commit_metadata_check_tiling(&contents->metadata, err));
    return arena_copy_text(&contents->metadata.arena, j->head.save_id, &contents->metadata.save_id,
                           err);
}

/* The small files are those of a checkpoint: of each name the one of the lowest rank, which its
 * part has. In the view they have the names that they were written with. */
static enum sidestep_status join_small_files(const struct joining *j,
                                             struct commit_contents *contents,
                                             struct sidestep_error *err)
{
    OWNED_EXTRA_MERGE merge = {0};

    for (size_t i = 0; i < j->count; i++)
        TRY(extra_merge_add(&merge, contents, &j->files[i].footer, err));
    return extra_files_keep_names(j->head.save_id, contents, err);
}

static enum sidestep_status note_holders(const struct joining *j, const struct manifest *manifest,
                                         struct series_view *view, struct sidestep_error *err)
{
    OWNED uint32_t *of_rank = memory_new(j->head.world_size, sizeof(*of_rank));

    view->file_count = manifest->file_count;
    view->small_count = manifest->extra_count;
    view->holders = memory_new(view->file_count + view->small_count, sizeof(*view->holders));
    if (of_rank == NULL || view->holders == NULL)
        return FAIL_NOMEM(err, j->count * sizeof(*view->holders));
    for (size_t i = 0; i < j->count; i++) {
        view->holders[i] = j->files[i].holder;
        if (j->files[i].footer.shard == 0)
            of_rank[j->files[i].footer.rank] = j->files[i].holder;
    }
    for (size_t i = 0; i < view->small_count; i++)
        view->holders[view->file_count + i] = of_rank[manifest->extras[i].rank];
    return SIDESTEP_OK;
}

/* Make .metadata and the manifest of the whole. */
static enum sidestep_status make_records(struct joining *j, struct series_view *view,
                                         struct buffer *metadata, struct buffer *manifest,
                                         struct sidestep_error *err)
{
    OWNED_BY(commit_contents_release) struct commit_contents contents = {0};

    sort_files(j);
    if (j->count == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "no directory has a part of it any more");
    TRY(check_files(j, err));
    TRY(build_metadata(j, &contents, err));
    contents.manifest = j->head;
    contents.manifest.part = (struct manifest_part){0};
    contents.manifest.required_features &= ~(uint64_t)MANIFEST_REQUIRED_PART;
    contents.manifest.index = (struct manifest_index){0};
    contents.manifest.extras = NULL;
    contents.manifest.extra_count = 0;
    contents.manifest.files = arena_new(&j->arena, j->count, sizeof(*contents.manifest.files));
    if (contents.manifest.files == NULL)
        return FAIL_NOMEM(err, j->count * sizeof(*contents.manifest.files));
    for (size_t i = 0; i < j->count; i++)
        contents.manifest.files[i] = j->files[i].row;
    contents.manifest.file_count = j->count;
    TRY(join_small_files(j, &contents, err));
    TRY(note_holders(j, &contents.manifest, view, err));
    return commit_encode_records(&contents, metadata, manifest, err);
}

static enum sidestep_status join_parts(struct series_view *view, const struct comm_parts *parts,
                                       struct buffer *metadata, struct buffer *manifest,
                                       struct sidestep_error *err)
{
    OWNED_BY(joining_release) struct joining j = {0};

    for (int32_t rank = 0; rank < view->series->engine->comm.size; rank++)
        if (parts->sizes[rank] != 0)
            TRY(add_part(&j, parts->bytes + parts->offsets[rank], parts->sizes[rank],
                         (uint32_t)rank, &view->whole, err));
    return make_records(&j, view, metadata, manifest, err);
}

static enum sidestep_status share_records_all(struct series_view *view, struct buffer *metadata,
                                              struct buffer *manifest, struct sidestep_error *err)
{
    struct comm *comm = &view->series->engine->comm;
    uint64_t sizes[] = {metadata->length, manifest->length, view->file_count, view->small_count};
    enum sidestep_status status = SIDESTEP_OK;

    TRY(comm_broadcast_all(comm, sizes, sizeof(sizes), 0, err));
    if (comm->rank != 0) {
        (void)buffer_extend(metadata, (size_t)sizes[0]);
        (void)buffer_extend(manifest, (size_t)sizes[1]);
        view->file_count = (size_t)sizes[2];
        view->small_count = (size_t)sizes[3];
        view->holders = memory_new(view->file_count + view->small_count, sizeof(*view->holders));
        status = buffer_check(metadata, err);
        if (status == SIDESTEP_OK)
            status = buffer_check(manifest, err);
        if (status == SIDESTEP_OK && view->holders == NULL)
            status = FAIL_NOMEM(err, view->file_count * sizeof(*view->holders));
    }
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, metadata->bytes, metadata->length, 0, err));
    TRY(comm_broadcast_all(comm, manifest->bytes, manifest->length, 0, err));
    return comm_broadcast_all(comm, view->holders,
                              (view->file_count + view->small_count) * sizeof(*view->holders), 0,
                              err);
}

enum sidestep_status series_get_records_all(struct series_view *view,
                                            enum sidestep_verify_mode mode, struct buffer *metadata,
                                            struct buffer *manifest, struct sidestep_error *err)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct comm *comm = &view->series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;
    OWNED_BUFFER mine = {0};

    if (series_leads(view->series))
        status = offer_part(view->series, &view->whole, mode, &mine, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_gather_all(comm, mine.bytes, mine.length, &parts, err));
    if (comm->rank == 0)
        status = join_parts(view, &parts, metadata, manifest, err);
    TRY(comm_agree_all(comm, status, err));
    return share_records_all(view, metadata, manifest, err);
}
