/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reader_listed.c -- opens only those files of a checkpoint that a load needs; see reader.h.
 *
 * The manifest has the hash of each footer. So a rank that has the manifest and a list of chunks
 * can check each file when it opens it, and needs no other file for that.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/reader_internal.h"
#include "commit/commit.h"

#define LISTING_THREADS 8u    /* they wait for storage most of the time */
#define LISTING_STRETCHES 32u /* more than threads, because some threads are faster */

static enum sidestep_status open_listed(struct reader *r, uint32_t flags,
                                        const struct buffer *manifest, struct sidestep_error *err)
{
    r->opens_late = true;
    TRY(store_dir_open(r->store, NULL, r->path, &r->dir, err));
    if ((flags & READER_SHARED_LOCK) != 0)
        reader_take_lease(r);
    if (manifest != NULL) {
        TRY(reader_take_manifest(r, manifest, err));
        return reader_list_files(r, err);
    }
    TRY(reader_find_listed(r, flags, err));
    if (!r->is_listed)
        return FAIL(err, SIDESTEP_ENOTFOUND, "no manifest lists this %s", FILE_NAME_METADATA);
    TRY(reader_read_manifest(r, flags & STORE_DROP_CACHE, err));
    return reader_list_files(r, err);
}

enum sidestep_status reader_open_listed(struct store *store, const char *path, uint32_t flags,
                                        const struct buffer *manifest, struct reader **out,
                                        struct sidestep_error *err)
{
    OWNED_BY(reader_close) struct reader *r = NULL;

    TRY(reader_new(store, path, flags, &r, err));
    TRY(open_listed(r, flags, manifest, err));
    *out = TAKE(r);
    return SIDESTEP_OK;
}

/* ---- footers */

/* Files [begin, end), whose items one thread lists. */
struct stretch {
    size_t begin, end;
    struct chunk_list *list;
    enum sidestep_status status;
    struct sidestep_error why;
};

struct listing {
    struct reader *r;
    struct stretch stretches[LISTING_STRETCHES];
    _Atomic size_t next;
};

/* List the items of a file, and forget the file. Other threads do the same with other files. */
static enum sidestep_status list_and_forget(struct reader *r, size_t i, struct chunk_list *list,
                                            struct sidestep_error *err)
{
    struct reader_file *file = &r->files[i];
    struct reader own = *r; /* a copy, whose counters and arena no other thread uses */

    own.arena = (struct arena){0};
    enum sidestep_status status = reader_file_check(&own, i, r->flags, err);
    if (status == SIDESTEP_OK)
        chunk_list_add_footer(list, &file->footer, i);
    store_file_discard(file->file);
    *file = (struct reader_file){.name = file->name, .bytes = file->bytes};
    arena_release(&own.arena);
    return status;
}

static void list_stretches(void *context)
{
    struct listing *l = context;

    for (size_t k; (k = atomic_fetch_add(&l->next, 1)) < LISTING_STRETCHES;) {
        struct stretch *s = &l->stretches[k];
        s->list = chunk_list_new(&s->why);
        s->status = s->list != NULL ? SIDESTEP_OK : SIDESTEP_ENOMEM;
        for (size_t i = s->begin; i < s->end && s->status == SIDESTEP_OK; i++)
            s->status = list_and_forget(l->r, i, s->list, &s->why);
        if (s->status == SIDESTEP_OK)
            s->status = buffer_check(&s->list->bytes, &s->why);
    }
}

/* Concatenate the lists, in the order of the files. */
static enum sidestep_status concatenate_lists(struct listing *l, struct chunk_list *list,
                                              struct sidestep_error *err)
{
    for (size_t k = 0; k < LISTING_STRETCHES; k++) {
        struct stretch *s = &l->stretches[k];
        if (s->status != SIDESTEP_OK)
            return error_copy(err, &s->why);
        buffer_put(&list->bytes, s->list->bytes.bytes, s->list->bytes.length);
        chunk_list_free(&s->list);
    }
    return buffer_check(&list->bytes, err);
}

static enum sidestep_status list_many(struct reader *r, size_t begin, size_t end,
                                      struct chunk_list *list, struct sidestep_error *err)
{
    OWNED_BY(workers_free) struct workers *workers = NULL;
    struct listing *l = memory_new(1, sizeof(*l));

    if (l == NULL)
        return FAIL_NOMEM(err, sizeof(*l));
    l->r = r;
    for (size_t k = 0; k < LISTING_STRETCHES; k++) {
        l->stretches[k].begin = begin + k * (end - begin) / LISTING_STRETCHES;
        l->stretches[k].end = begin + (k + 1) * (end - begin) / LISTING_STRETCHES;
    }
    enum sidestep_status status = workers_new(LISTING_THREADS - 1, "sidestep-read", &workers, err);
    if (status == SIDESTEP_OK) {
        workers_run(workers, list_stretches, l);
        status = concatenate_lists(l, list, err);
    }
    for (size_t k = 0; k < LISTING_STRETCHES; k++)
        chunk_list_free(&l->stretches[k].list);
    free(l);
    return status;
}

enum sidestep_status reader_list_footers(struct reader *r, size_t begin, size_t end,
                                         struct chunk_list *list, struct sidestep_error *err)
{
    if (end - begin > READER_MAX_FOOTERS)
        return list_many(r, begin, end, list, err);
    for (size_t i = begin; i < end; i++) {
        TRY(reader_file_check(r, i, r->flags, err));
        chunk_list_add_footer(list, &r->files[i].footer, i);
    }
    return buffer_check(&list->bytes, err);
}

/* ---- what this rank reads */

enum sidestep_status reader_take_chunks(struct reader *r, const void *list, size_t bytes,
                                        const struct sidestep_state_dict *state, bool all_names,
                                        struct sidestep_error *err)
{
    OWNED const char **names = memory_new(r->file_count, sizeof(*names));

    if (names == NULL)
        return FAIL_NOMEM(err, r->file_count * sizeof(*names));
    for (size_t i = 0; i < r->file_count; i++)
        names[i] = r->files[i].name;
    const struct chunk_list_filter filter = {
        .state = state, .all_names = all_names, .files = names, .file_count = r->file_count};
    return chunk_list_read(list, bytes, &filter, &r->metadata, err);
}

uint64_t reader_data_bytes(const struct reader *r)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < r->file_count; i++)
        bytes += r->opens_late ? r->files[i].bytes : r->files[i].source.length;
    return bytes;
}
