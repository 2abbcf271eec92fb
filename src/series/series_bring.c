/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_bring.c -- brings files to the views of nodes that lack them; see series_view.h.
 *
 * A rank that has a file broadcasts it in pieces, and those that lead and need it write it to their
 * views. Small files all are brought before the load, because nobody knows who reads them, and are
 * checked when they are there. Of the data files those are brought that a group reads, when all
 * ranks have planned; the loader checks each byte against the hashes of the manifest.
 */
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "series/series_view.h"

#define PIECE_BYTES ((size_t)4 << 20)

/* ---- one file */

/* A file of the view. */
struct brought {
    const char *name;
    uint64_t bytes;
    uint32_t holder; /* a rank whose view has it */
};

/* Open file ${name}: to read it, or to receive it; or neither. */
static enum sidestep_status open_file(const struct series_view *view, const char *name, bool sends,
                                      bool receives, struct store_file **file,
                                      struct sidestep_error *err)
{
    if (sends)
        return store_file_open_to_read(view->commit.dir, name, 0, file, err);
    return receives ? store_file_create(view->commit.dir, name, 0, file, err) : SIDESTEP_OK;
}

static enum sidestep_status send_pieces_all(struct comm *comm, struct store_file *file, bool sends,
                                            uint32_t holder, uint64_t length, void *piece,
                                            struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    for (uint64_t at = 0; at < length; at += PIECE_BYTES) {
        size_t bytes = (size_t)min_u64(PIECE_BYTES, length - at);
        if (sends && status == SIDESTEP_OK)
            status = store_file_read_at(file, piece, bytes, at, err);
        TRY(comm_broadcast_all(comm, piece, bytes, (int32_t)holder, err));
        if (file != NULL && !sends && status == SIDESTEP_OK)
            status = store_file_write_at(file, piece, bytes, at, err);
    }
    return comm_agree_all(comm, status, err); /* what was sent instead is not used then */
}

static enum sidestep_status send_file_all(const struct series_view *view, const struct brought *one,
                                          bool is_wanted, void *piece, struct sidestep_error *err)
{
    struct comm *comm = &view->series->engine->comm;
    bool sends = one->holder == (uint32_t)comm->rank;
    bool receives = is_wanted && series_leads(view->series);
    OWNED_FILE *file = NULL;
    enum sidestep_status status = one->holder < (uint32_t)comm->size
                                      ? open_file(view, one->name, sends, receives, &file, err)
                                      : FAIL(err, SIDESTEP_EPEER, "nobody has it");

    status = comm_agree_all(comm, status, err);
    if (status == SIDESTEP_OK)
        status = send_pieces_all(comm, file, sends, one->holder, one->bytes, piece, err);
    return WRAP(status, err, "bring '%s' from rank %u", one->name, one->holder);
}

/* ---- data files */

/* Mark the files that this rank reads from, and that its view lacks. */
static enum sidestep_status find_wanted(const struct reader *r, const struct load_plan *plan,
                                        uint8_t *wanted, struct sidestep_error *err)
{
    for (size_t i = 0; i < plan->count; i++) {
        const char *name = plan->chunks[i].storage->file;
        size_t file = name != NULL ? hash_table_find(&r->file_names, name) : SIZE_MAX;
        struct store_stat stat;
        if (file >= r->manifest.file_count || wanted[file] != 0)
            continue;
        enum sidestep_status status = store_stat(r->dir, name, &stat, err);
        if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
            return status;
        wanted[file] = status == SIDESTEP_ENOTFOUND;
    }
    return SIDESTEP_OK;
}

/* Rank 0: give each rank that leads what the ranks of its group want. */
static void join_wanted(const struct series_view *view, struct comm_parts *parts)
{
    const uint32_t *leads = view->series->groups.leads;

    for (int32_t rank = 0; rank < view->series->engine->comm.size; rank++)
        for (size_t i = 0; i < view->file_count; i++)
            parts->bytes[parts->offsets[leads[rank]] + i] |= parts->bytes[parts->offsets[rank] + i];
}

/* Set ${wanted} to what the group of this rank wants, and ${sent} to what any does. */
static enum sidestep_status agree_wanted_all(const struct series_view *view, uint8_t *wanted,
                                             uint64_t *sent, struct sidestep_error *err)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct comm *comm = &view->series->engine->comm;
    OWNED void *mine = NULL;
    size_t bytes = 0;

    TRY(comm_gather_all(comm, wanted, view->file_count, &parts, err));
    if (comm->rank == 0)
        join_wanted(view, &parts);
    TRY(comm_scatter_all(comm, &parts, &mine, &bytes, err));
    if (bytes == view->file_count && bytes != 0)
        memcpy(wanted, mine, bytes);
    for (size_t i = 0; i < view->file_count; i++)
        sent[i] = wanted[i];
    return comm_reduce_max_all(comm, sent, view->file_count, err);
}

enum sidestep_status series_bring_all(void *context, const struct reader *r,
                                      const struct load_plan *plan, struct sidestep_error *err)
{
    const struct series_view *view = context;
    struct comm *comm = &view->series->engine->comm;
    OWNED uint8_t *wanted = memory_new(view->file_count, 1);
    OWNED uint64_t *sent = memory_new(view->file_count, sizeof(*sent));
    OWNED void *piece = memory_resize(NULL, 1, PIECE_BYTES); /* untouched, if nothing is brought */
    enum sidestep_status status = SIDESTEP_OK;

    if (wanted == NULL || sent == NULL || piece == NULL)
        status = FAIL_NOMEM(err, PIECE_BYTES);
    else if (r->manifest.file_count != view->file_count)
        status = FAIL(err, SIDESTEP_EPEER, "the manifest has another number of files");
    else
        status = find_wanted(r, plan, wanted, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(agree_wanted_all(view, wanted, sent, err));
    for (size_t i = 0; i < view->file_count; i++) {
        const struct manifest_file *row = &r->manifest.files[i];
        const struct brought one = {row->name, row->bytes, view->holders[i]};
        if (sent[i] != 0)
            TRY(send_file_all(view, &one, wanted[i] != 0, piece, err));
    }
    return SIDESTEP_OK;
}

/* ---- small files */

/* The small files of the part that this root has. */
struct own_small {
    struct arena arena;
    struct manifest manifest; /* without any, if there is no part */
    struct hash_table names;  /* to its small files */
    struct store_dir *dir;
};

static void own_small_release(struct own_small *own)
{
    store_dir_close(own->dir);
    hash_table_release(&own->names);
    arena_release(&own->arena);
}

static enum sidestep_status read_own(const struct series_view *view, struct own_small *own,
                                     struct sidestep_error *err)
{
    struct sidestep_series *series = view->series;
    char name[FILE_NAME_BYTES];
    OWNED_BUFFER text = {0};
    size_t existing;

    name_template_format_name(&series->naming, (uint64_t)view->whole.step, name);
    if (!series_has_save(series, name, view->whole.save_id))
        return SIDESTEP_OK;
    TRY(series_read_manifest(series, name, view->whole.save_id, &own->dir, &text, err));
    TRY(manifest_decode(text.bytes, text.length, &own->arena, &own->manifest, err));
    for (size_t i = 0; i < own->manifest.extra_count; i++)
        TRY(hash_table_insert(&own->names, own->manifest.extras[i].name, i, &existing, err));
    return SIDESTEP_OK;
}

/* The file of this part that has the contents of ${file}; NULL: none. */
static const struct extra_file *find_same(const struct own_small *own,
                                          const struct extra_file *file)
{
    size_t at = hash_table_find(&own->names, file->name);
    const struct extra_file *mine = at != SIZE_MAX ? &own->manifest.extras[at] : NULL;

    return mine != NULL && !mine->is_alias && mine->bytes == file->bytes &&
                   memcmp(mine->sha256, file->sha256, sizeof(mine->sha256)) == 0
               ? mine
               : NULL;
}

static enum sidestep_status link_small(const struct series_view *view, const struct own_small *own,
                                       const struct extra_file *mine, const char *name,
                                       struct sidestep_error *err)
{
    OWNED_DIR *owned = NULL;
    struct store_dir *parent;
    const char *last;

    TRY(extra_path_open(own->dir, extra_file_stored(mine), false, &owned, &parent, &last, err));
    return store_link(parent, last, view->commit.dir, name, err);
}

/* Link what this root has, and mark the rest. */
static enum sidestep_status link_small_files(const struct series_view *view,
                                             const struct manifest *whole, uint64_t *wanted,
                                             struct sidestep_error *err)
{
    OWNED_BY(own_small_release) struct own_small own = {0};

    TRY(read_own(view, &own, err));
    for (size_t i = 0; i < whole->extra_count; i++) {
        const struct extra_file *file = &whole->extras[i], *mine = find_same(&own, file);
        wanted[i] = mine == NULL && !file->is_alias;
        if (mine != NULL)
            TRY(WRAP(link_small(view, &own, mine, extra_file_stored(file), err), err,
                     "link the small file '%s'", file->name));
    }
    return SIDESTEP_OK;
}

/* Check what was brought, and give all files their own names. */
static enum sidestep_status finish_small_files(const struct series_view *view,
                                               const struct manifest *whole, const uint64_t *wanted,
                                               struct sidestep_error *err)
{
    for (size_t i = 0; i < whole->extra_count; i++) {
        const struct extra_file *file = &whole->extras[i];
        uint8_t sha256[HASH_SHA256_BYTES];
        uint64_t length;
        if (wanted[i] == 0)
            continue;
        TRY(small_file_hash(view->commit.dir, extra_file_stored(file), 0, file->bytes, &length,
                            sha256, NULL, err));
        if (length != file->bytes || memcmp(sha256, file->sha256, sizeof(sha256)) != 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "the small file '%s' came with other bytes",
                        file->name);
    }
    extra_files_link(view->commit.dir, whole);
    return SIDESTEP_OK;
}

static enum sidestep_status bring_small_all(struct series_view *view, const struct manifest *whole,
                                            uint64_t *wanted, uint64_t *sent, void *piece,
                                            struct sidestep_error *err)
{
    struct comm *comm = &view->series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;
    size_t count = whole->extra_count;

    if (series_leads(view->series))
        status = link_small_files(view, whole, wanted, err);
    TRY(comm_agree_all(comm, status, err));
    memcpy(sent, wanted, count * sizeof(*sent));
    TRY(comm_reduce_max_all(comm, sent, count, err));
    for (size_t i = 0; i < count; i++) {
        const struct extra_file *file = &whole->extras[i];
        const struct brought one = {extra_file_stored(file), file->bytes,
                                    view->holders[view->file_count + i]};
        if (sent[i] != 0)
            TRY(send_file_all(view, &one, wanted[i] != 0, piece, err));
    }
    if (series_leads(view->series))
        status = finish_small_files(view, whole, wanted, err);
    return comm_agree_all(comm, status, err);
}

enum sidestep_status series_bring_small_files_all(struct series_view *view,
                                                  const struct buffer *manifest,
                                                  struct sidestep_error *err)
{
    size_t count = view->small_count;
    OWNED uint64_t *marks = memory_new(count, 2 * sizeof(*marks));
    OWNED void *piece = memory_resize(NULL, 1, PIECE_BYTES);
    OWNED_ARENA arena = {0};
    struct manifest whole = {0};

    if (count == 0) /* on all ranks */
        return SIDESTEP_OK;
    enum sidestep_status status =
        marks == NULL || piece == NULL
            ? FAIL_NOMEM(err, PIECE_BYTES)
            : manifest_decode(manifest->bytes, manifest->length, &arena, &whole, err);
    if (status == SIDESTEP_OK && whole.extra_count != count)
        status = FAIL(err, SIDESTEP_EPEER, "the manifest has another number of small files");
    TRY(comm_agree_all(&view->series->engine->comm, status, err));
    return bring_small_all(view, &whole, marks, marks + count, piece, err);
}
