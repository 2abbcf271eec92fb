/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reader_index.c -- takes from the index of chunks what a reader needs; see reader.h.
 *
 * Each byte is checked before it is used: the manifest has the hash of the table, and the table has
 * the hashes of the pages.
 */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/reader_internal.h"
#include "commit/commit.h"

#define INDEX_READ_BYTES ((size_t)4 << 20) /* of one read, at most */

struct index_file {
    const struct reader *r;
    struct source source;    /* the bytes of the index */
    struct store_file *file; /* that ${source} reads; NULL: the index is in memory */
    struct arena arena;
    struct chunk_index index;
    uint64_t page_bytes;
    bool checks_all; /* read also the pages that are not needed */
};

static void index_file_release(struct index_file *x)
{
    store_file_discard(x->file);
    arena_release(&x->arena);
}

static enum sidestep_status read_table(struct index_file *x, struct sidestep_error *err)
{
    const struct manifest *manifest = &x->r->manifest;
    uint8_t sha256[HASH_SHA256_BYTES];
    OWNED_BUFFER table = {0};

    if (manifest->index.table_bytes > CHUNK_INDEX_MAX_TABLE_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT, "its table has %llu bytes",
                    (unsigned long long)manifest->index.table_bytes);
    uint8_t *to = buffer_extend(&table, (size_t)manifest->index.table_bytes);
    TRY(buffer_check(&table, err));
    if (table.length != 0)
        TRY(source_read(&x->source, to, table.length, x->page_bytes, err));
    hash_sha256(table.bytes, table.length, sha256);
    if (memcmp(sha256, manifest->index.table_sha256, sizeof(sha256)) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "its table is not the one that the manifest lists");
    return chunk_index_table_read(table.bytes, table.length, x->page_bytes, manifest->save_id,
                                  &x->arena, &x->index, err);
}

static enum sidestep_status open_index(struct index_file *x, struct sidestep_error *err)
{
    const struct manifest_index *listed = &x->r->manifest.index;

    if (x->source.length != listed->bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu bytes instead of %llu",
                    (unsigned long long)x->source.length, (unsigned long long)listed->bytes);
    x->page_bytes = listed->bytes - listed->table_bytes;
    return read_table(x, err);
}

/* ---- pages */

/* Read pages [begin, end), which are at most INDEX_READ_BYTES, and take from them. */
static enum sidestep_status take_pages(struct index_file *x, size_t begin, size_t end,
                                       struct buffer *bytes, struct chunk_list_reader *list,
                                       struct sidestep_error *err)
{
    const struct chunk_index_page *pages = x->index.pages;
    uint64_t from = pages[begin].begin;

    bytes->length = 0;
    uint8_t *to =
        buffer_extend(bytes, (size_t)(pages[end - 1].begin + pages[end - 1].bytes - from));
    TRY(buffer_check(bytes, err));
    TRY(source_read(&x->source, to, bytes->length, from, err));
    for (size_t i = begin; i < end; i++) {
        const uint8_t *page = to + (pages[i].begin - from);
        if (hash_block(page, pages[i].bytes) != pages[i].hash)
            return FAIL(err, SIDESTEP_ECORRUPT, "page %zu does not match its hash", i);
        TRY(chunk_list_reader_add(list, page, pages[i].bytes, pages[i].first, err));
    }
    return SIDESTEP_OK;
}

/* Mark the pages that may have what ${filter} selects. */
static void mark_pages(const struct index_file *x, const struct chunk_list_filter *filter,
                       bool *marked)
{
    bool takes_all = filter->state == NULL || filter->all_names || x->checks_all;
    size_t begin, end, left = takes_all ? 0 : x->index.page_count;

    memset(marked, takes_all, x->index.page_count * sizeof(*marked));
    for (size_t e = 0; left != 0 && e < filter->state->count; e++) {
        chunk_index_find(&x->index, filter->state->entries[e].name, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            left -= !marked[i];
            marked[i] = true;
        }
    }
}

/* Read the marked pages, adjacent ones with one read. */
static enum sidestep_status take_marked(struct index_file *x, const bool *marked,
                                        struct chunk_list_reader *list, struct sidestep_error *err)
{
    const struct chunk_index_page *pages = x->index.pages;
    size_t count = x->index.page_count, end;
    OWNED_BUFFER bytes = {0};

    for (size_t begin = 0; begin < count; begin = end) {
        end = begin + 1;
        if (!marked[begin])
            continue;
        while (end < count && marked[end] &&
               pages[end].begin + pages[end].bytes - pages[begin].begin <= INDEX_READ_BYTES)
            end++;
        TRY(take_pages(x, begin, end, &bytes, list, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status take_from(struct index_file *x, const struct chunk_list_filter *filter,
                                      struct metadata *out, struct sidestep_error *err)
{
    OWNED_BY(chunk_list_reader_free) struct chunk_list_reader *list = NULL;
    OWNED bool *marked = NULL;

    TRY(open_index(x, err));
    marked = memory_new(x->index.page_count, sizeof(*marked));
    if (marked == NULL)
        return FAIL_NOMEM(err, x->index.page_count);
    list = chunk_list_reader_new(filter, out, err);
    if (list == NULL)
        return SIDESTEP_ENOMEM;
    mark_pages(x, filter, marked);
    TRY(take_marked(x, marked, list, err));
    return chunk_list_reader_finish(list, err);
}

static enum sidestep_status take_filtered(struct index_file *x, struct chunk_list_filter filter,
                                          struct metadata *out, struct sidestep_error *err)
{
    const struct manifest *manifest = &x->r->manifest;
    OWNED const char **names = memory_new(manifest->file_count, sizeof(*names));

    if (names == NULL)
        return FAIL_NOMEM(err, manifest->file_count * sizeof(*names));
    for (size_t i = 0; i < manifest->file_count; i++)
        names[i] = manifest->files[i].name;
    filter.files = names;
    filter.file_count = manifest->file_count;
    return take_from(x, &filter, out, err);
}

static enum sidestep_status open_stored(struct index_file *x, const char *name,
                                        struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(store_file_open_to_read(x->r->dir, name, x->r->flags & STORE_DROP_CACHE, &x->file, err));
    TRY(store_file_stat(x->file, &stat, err));
    x->source = small_file_source(x->file, stat.size);
    return SIDESTEP_OK;
}

/* ${stored}: as of reader_take_index(). */
static enum sidestep_status take(const struct reader *r, const struct reader_wanted *wanted,
                                 struct buffer *stored, struct metadata *out,
                                 struct sidestep_error *err)
{
    OWNED_BY(index_file_release)
    struct index_file x = {.r = r, .checks_all = stored != NULL && stored->length == 0};
    const struct chunk_list_filter filter = {.state = wanted->state,
                                             .all_names = wanted->all_names};
    enum sidestep_status status = SIDESTEP_OK;
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_INDEX, r->manifest.save_id, 0, 0, name);
    if (x.checks_all)
        status = small_file_read(r->dir, name, 0, r->manifest.index.bytes, stored, err);
    if (stored != NULL)
        x.source = source_from_memory(stored->bytes, stored->length);
    else
        status = open_stored(&x, name, err);
    if (status == SIDESTEP_OK)
        status = take_filtered(&x, filter, out, err);
    return WRAP(status, err, "the index of chunks");
}

enum sidestep_status reader_take_index(struct reader *r, const struct reader_wanted *wanted,
                                       struct buffer *stored, struct sidestep_error *err)
{
    OWNED_METADATA taken = {0};

    TRY(take(r, wanted, stored, &taken, err));
    TRY(arena_copy_text(&taken.arena, r->manifest.save_id, &taken.save_id, err));
    r->metadata = taken;
    taken = (struct metadata){0};
    r->has_index = true;
    return SIDESTEP_OK;
}

enum sidestep_status reader_read_index(const struct reader *r, struct buffer *out,
                                       struct sidestep_error *err)
{
    OWNED_METADATA metadata = {0};

    assert(out->length == 0);
    if (!r->has_manifest || r->manifest.index.bytes == 0)
        return SIDESTEP_OK;
    return take(r, &(struct reader_wanted){0}, out, &metadata, err);
}

enum sidestep_status reader_check_index(const struct reader *r, struct sidestep_error *err)
{
    OWNED_BUFFER stored = {0}, expected = {0};
    struct manifest manifest = r->manifest;
    OWNED_METADATA metadata = {0};

    if (!r->has_manifest || r->manifest.index.bytes == 0)
        return SIDESTEP_OK;
    TRY(take(r, &(struct reader_wanted){0}, NULL, &metadata, err));
    TRY(chunk_index_encode(&metadata, &manifest, &stored, err));
    TRY(chunk_index_encode(&r->metadata, &manifest, &expected, err));
    if (stored.length == expected.length &&
        memcmp(stored.bytes, expected.bytes, stored.length) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "the index of chunks and %s do not agree",
                FILE_NAME_METADATA);
}
