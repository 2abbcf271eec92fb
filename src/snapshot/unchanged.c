/* SPDX-License-Identifier: BSD-3-Clause */
/* unchanged.c -- tracks which tensors do not change; see unchanged.h. */
#include "snapshot/unchanged.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The unchanged file is written again when other unchanged tensors have at least 1 / this of its
 * bytes. */
#define MIN_LATE_FRACTION 4u

enum sidestep_status unchanged_prepare(struct image *image, struct sidestep_error *err)
{
    for (size_t k = 0; k < image->tensor_count; k++) {
        struct image_item *item = &image->items[k];
        uint64_t count = item->footer.block_count;
        if (item->known != NULL)
            continue;
        uint64_t *known = arena_new(&image->arena, count, sizeof(*known));
        item->known_crcs = arena_new(&image->arena, count, sizeof(*item->known_crcs));
        if (known == NULL || item->known_crcs == NULL)
            return FAIL_NOMEM(err, count * sizeof(*known));
        item->known = known;
    }
    return SIDESTEP_OK;
}

/* Has tensor ${k} not changed since the save before? */
static bool is_unchanged(const struct image *image, size_t k)
{
    return image->items[k].unchanged_saves != 0 && image->items[k].footer.data_bytes != 0;
}

/* Items of the unchanged file first, each group in the order of the plan. */
static int compare_items(const void *a, const void *b)
{
    const struct image_item *x = a, *y = b;

    if (x->in_unchanged_file != y->in_unchanged_file)
        return x->in_unchanged_file ? -1 : 1;
    return x->planned < y->planned ? -1 : x->planned > y->planned;
}

static void sort_items(struct image *image, bool splits)
{
    bool changed = false;

    image->unchanged_file_items = 0;
    for (size_t k = 0; k < image->tensor_count; k++) {
        bool unchanged = splits && is_unchanged(image, k);
        changed |= unchanged != image->items[k].in_unchanged_file;
        image->items[k].in_unchanged_file = unchanged;
        image->unchanged_file_items += unchanged;
    }
    if (changed)
        qsort(image->items, image->tensor_count, sizeof(*image->items), compare_items);
}

void unchanged_choose(struct image *image, uint64_t min_bytes)
{
    uint64_t bytes = 0;

    for (size_t k = 0; k < image->tensor_count; k++)
        bytes += is_unchanged(image, k) ? image->items[k].footer.data_bytes : 0;
    sort_items(image, bytes >= min_bytes);
}

bool unchanged_is_current(const struct image *image, uint64_t min_bytes)
{
    uint64_t stored = 0, late = 0;

    for (size_t k = 0; k < image->tensor_count; k++) {
        const struct image_item *item = &image->items[k];
        if (item->in_unchanged_file && item->unchanged_saves == 0)
            return false;
        if (item->in_unchanged_file)
            stored += item->footer.data_bytes;
        else if (is_unchanged(image, k))
            late += item->footer.data_bytes;
    }
    return late < min_bytes || late < stored / MIN_LATE_FRACTION;
}

/* A range of block indexes of an item: [first, last). */
struct blocks {
    uint64_t first;
    uint64_t last;
};

static struct blocks blocks_in(const struct image *image, size_t i, size_t k)
{
    uint64_t begin, end;

    image_data_in_window(image, i, k, &begin, &end);
    if (begin == end)
        return (struct blocks){0};
    return (struct blocks){begin / HASH_BLOCK_BYTES, hash_block_count(end)};
}

bool unchanged_matches_previous(const struct image *image, size_t i)
{
    for (size_t k = image->windows[i].first_item; image_window_reaches_item(image, i, k); k++) {
        const struct image_item *item = &image->items[k];
        struct blocks b = blocks_in(image, i, k);
        size_t count = b.last - b.first;
        assert(item->in_unchanged_file);
        if (memcmp(item->known + b.first, item->blocks + b.first, count * sizeof(*item->known)) !=
                0 ||
            memcmp(item->known_crcs + b.first, item->crcs + b.first, count * sizeof(*item->crcs)) !=
                0)
            return false;
    }
    return true;
}

bool unchanged_matches_hashes(const struct image *image, size_t i, const uint8_t *buffer)
{
    for (size_t k = image->windows[i].first_item; image_window_reaches_item(image, i, k); k++) {
        const struct image_item *item = &image->items[k];
        const struct footer_item *f = &item->footer;
        uint64_t begin, end;

        image_data_in_window(image, i, k, &begin, &end);
        const uint8_t *bytes =
            buffer + (f->offset + f->data_offset + begin - image->windows[i].offset);
        for (uint64_t at = begin; at < end; at += HASH_BLOCK_BYTES) {
            uint64_t length = min_u64(HASH_BLOCK_BYTES, end - at), block = at / HASH_BLOCK_BYTES;
            if (hash_block(bytes + (at - begin), length) != item->blocks[block] ||
                hash_crc32(0, bytes + (at - begin), length) != item->crcs[block])
                return false;
        }
    }
    return true;
}

void unchanged_record(struct image *image)
{
    for (size_t k = 0; k < image->tensor_count; k++) {
        struct image_item *item = &image->items[k];
        size_t bytes = item->footer.block_count * sizeof(*item->known);
        size_t crc_bytes = item->footer.block_count * sizeof(*item->crcs);
        assert(item->known != NULL && item->known_crcs != NULL); /* unchanged_prepare() */
        bool same = item->is_known && memcmp(item->known, item->blocks, bytes) == 0 &&
                    memcmp(item->known_crcs, item->crcs, crc_bytes) == 0;

        item->unchanged_saves = same ? item->unchanged_saves + 1 : 0;
        item->is_known = true;
        memcpy(item->known, item->blocks, bytes);
        memcpy(item->known_crcs, item->crcs, crc_bytes);
    }
}
