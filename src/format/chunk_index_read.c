/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_index_read.c -- see chunk_index.h: reads the table of an index of chunks, which is not
 * trusted. */
#include <inttypes.h>
#include <string.h>

#include "format/chunk_index_layout.h"

#define FAIL_FORMAT(err, ...) FAIL(err, SIDESTEP_ECORRUPT, __VA_ARGS__)

/* Read the header, and set ${*count} to the number of pages. */
static enum sidestep_status read_header(struct cursor *c, const char *save_id, size_t *count,
                                        struct sidestep_error *err)
{
    const uint8_t *magic = cursor_take(c, CHUNK_INDEX_MAGIC_BYTES);

    if (magic == NULL || memcmp(magic, CHUNK_INDEX_MAGIC, CHUNK_INDEX_MAGIC_BYTES) != 0)
        return FAIL_FORMAT(err, "the table does not begin with its magic");
    uint32_t version = cursor_u32le(c);
    *count = cursor_u32le(c);
    const uint8_t *id = cursor_take(c, SAVE_ID_BYTES);
    uint64_t required = cursor_u64le(c);
    (void)cursor_u64le(c); /* optional features */
    char hex[SAVE_ID_HEX];

    if (c->overrun)
        return FAIL_FORMAT(err, "the table is cut off");
    if (version > CHUNK_INDEX_VERSION)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "version %u is newer than this library", version);
    if (version == 0)
        return FAIL_FORMAT(err, "version 0");
    if (required != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "feature bit %d is required, and newer than this library",
                    __builtin_ctzll(required));
    hash_to_hex(id, SAVE_ID_BYTES, hex);
    if (strcmp(hex, save_id) != 0)
        return FAIL_FORMAT(err, "it is of save %s, not %s", hex, save_id);
    return SIDESTEP_OK;
}

static enum sidestep_status read_rows(struct cursor *c, struct chunk_index_page *pages,
                                      size_t count, uint64_t page_bytes, struct sidestep_error *err)
{
    uint64_t begin = 0;

    for (size_t i = 0; i < count; i++) {
        pages[i].bytes = cursor_u32le(c);
        pages[i].hash = cursor_u64le(c);
        pages[i].begin = begin;
        begin += pages[i].bytes;
        if (pages[i].bytes == 0 || pages[i].bytes > CHUNK_INDEX_MAX_PAGE_BYTES)
            return FAIL_FORMAT(err, "page %zu has %u bytes", i, pages[i].bytes);
    }
    if (begin == page_bytes)
        return SIDESTEP_OK;
    return FAIL_FORMAT(err, "its pages have %" PRIu64 " bytes, not %" PRIu64, begin, page_bytes);
}

static enum sidestep_status read_names(struct cursor *c, struct chunk_index_page *pages,
                                       size_t count, struct arena *arena,
                                       struct sidestep_error *err)
{
    const char *texts = arena_copy(arena, c->bytes + c->position, cursor_remaining(c));
    size_t left = cursor_remaining(c);

    if (texts == NULL)
        return FAIL_NOMEM(err, left);
    for (size_t i = 0; i < count; i++) {
        const char *end = memchr(texts, 0, left);
        if (end == NULL || end == texts || end - texts > SIDESTEP_MAX_NAME)
            return FAIL_FORMAT(err, "the name of page %zu is missing, or too long", i);
        pages[i].first = texts;
        if (i != 0 && strcmp(pages[i - 1].first, texts) > 0)
            return FAIL_FORMAT(err, "page %zu is not in the order of names", i);
        left -= (size_t)(end + 1 - texts);
        texts = end + 1;
    }
    return left == 0 ? SIDESTEP_OK : FAIL_FORMAT(err, "%zu bytes follow the table", left);
}

enum sidestep_status chunk_index_table_read(const void *table, size_t length, uint64_t page_bytes,
                                            const char *save_id, struct arena *arena,
                                            struct chunk_index *out, struct sidestep_error *err)
{
    struct cursor c = cursor_from_memory(table, length);
    size_t count = 0;

    *out = (struct chunk_index){0};
    if (length > CHUNK_INDEX_MAX_TABLE_BYTES)
        return FAIL_FORMAT(err, "a table of %zu bytes (at most %zu)", length,
                           CHUNK_INDEX_MAX_TABLE_BYTES);
    TRY(read_header(&c, save_id, &count, err));
    if (count > cursor_remaining(&c) / CHUNK_INDEX_ROW_BYTES)
        return FAIL_FORMAT(err, "a table of %zu bytes with %zu pages", length, count);
    struct chunk_index_page *pages = arena_new(arena, count, sizeof(*pages));
    if (pages == NULL)
        return FAIL_NOMEM(err, count * sizeof(*pages));
    TRY(read_rows(&c, pages, count, page_bytes, err));
    TRY(read_names(&c, pages, count, arena, err));
    out->page_count = count;
    out->pages = pages;
    return SIDESTEP_OK;
}

/* The number of pages that begin with a name before ${name}, or, if ${or_equal}, with ${name}. */
static size_t count_before(const struct chunk_index *index, const char *name, bool or_equal)
{
    size_t low = 0, high = index->page_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(index->pages[middle].first, name);
        if (order < 0 || (or_equal && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void chunk_index_find(const struct chunk_index *index, const char *name, size_t *begin, size_t *end)
{
    size_t before = count_before(index, name, false);

    *begin = before != 0 ? before - 1 : 0;
    *end = count_before(index, name, true);
}
