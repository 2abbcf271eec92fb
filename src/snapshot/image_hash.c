/* SPDX-License-Identifier: BSD-3-Clause */
/* image_hash.c -- hashes windows, whose blocks may continue in the next window; see image.h. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "snapshot/image.h"

static uint64_t block_bytes(const struct footer_item *f, uint64_t block)
{
    assert(block < f->block_count);
    return min_u64(HASH_BLOCK_BYTES, f->data_bytes - block * HASH_BLOCK_BYTES);
}

/* Combine the two hashed parts of a split block. */
static void combine_parts(struct image_split_block *split)
{
    struct image_item *item = split->item;
    uint64_t block = split->at / HASH_BLOCK_BYTES;
    uint64_t left = split->at % HASH_BLOCK_BYTES, right = block_bytes(&item->footer, block) - left;

    assert(left != 0 && block < item->footer.block_count);
    if (!split->smaller_is_first) {
        hash_stream_update(split->stream, split->smaller_part, right);
        split->crc = hash_crc32(split->crc, split->smaller_part, right);
    }
    item->blocks[block] = hash_stream_finish(split->stream);
    item->crcs[block] = split->crc;
}

/* Hash one part of a split block, which is at ${bytes}: the first part, or the rest.  If the
 * smaller part is the first, it was hashed before (image_hash_needs_previous()). */
static void hash_part(struct image_split_block *split, bool first, const uint8_t *bytes,
                      uint64_t length)
{
    if (split->smaller_is_first == first) {
        assert(length == split->smaller_bytes);
        memcpy(split->smaller_part, bytes, length);
    }
    if (first || split->smaller_is_first) {
        hash_stream_update(split->stream, bytes, length);
        split->crc = hash_crc32(split->crc, bytes, length);
    }
    unsigned hashed = atomic_fetch_add(&split->parts_hashed, 1);
    assert(hashed < 2);
    if (hashed == 1)
        combine_parts(split);
}

static void copy_first_bytes(struct image_item *item, uint64_t at, const uint8_t *bytes,
                             uint64_t length)
{
    if (at < sizeof(item->first_bytes))
        memcpy(item->first_bytes + at, bytes, min_u64(sizeof(item->first_bytes) - at, length));
}

/* Hash bytes [at, at + length) of an item's data, which are at ${bytes}.  They are all that window
 * ${w} has of one block. */
static void hash_bytes(const struct image_window *w, struct image_item *item, uint64_t at,
                       const uint8_t *bytes, uint64_t length)
{
    uint64_t block = at / HASH_BLOCK_BYTES;

    copy_first_bytes(item, at, bytes, length);
    if (length != block_bytes(&item->footer, block)) {
        bool first = at % HASH_BLOCK_BYTES == 0;
        assert((first ? w->split_at_end : w->split_at_begin) != NULL);
        hash_part(first ? w->split_at_end : w->split_at_begin, first, bytes, length);
        return;
    }
    item->blocks[block] = hash_block(bytes, length);
    if (!item->footer.is_object)
        item->crcs[block] = hash_crc32(0, bytes, length);
}

/* The number of bytes to the end of the block or to ${end}. */
static uint64_t bytes_in_block(uint64_t at, uint64_t end)
{
    assert(at < end);
    return min_u64(HASH_BLOCK_BYTES - at % HASH_BLOCK_BYTES, end - at);
}

uint64_t image_tensor_part_bytes(const struct image *image, size_t i, uint64_t at)
{
    uint64_t begin, end;

    image_data_in_window(image, i, image->windows[i].first_item, &begin, &end);
    return begin + at < end ? bytes_in_block(begin + at, end) : 0;
}

uint64_t image_hash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes)
{
    const struct image_window *w = &image->windows[i];
    struct image_item *item = &image->items[w->first_item];
    uint64_t begin, end;

    image_data_in_window(image, i, w->first_item, &begin, &end);
    uint64_t length = bytes_in_block(begin + at, end), block = (begin + at) / HASH_BLOCK_BYTES;
    hash_bytes(w, item, begin + at, bytes, length);
    return length == block_bytes(&item->footer, block) ? item->blocks[block]
                                                       : hash_block(bytes, length);
}

uint64_t image_rehash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes)
{
    return hash_block(bytes, image_tensor_part_bytes(image, i, at));
}

bool image_hash_needs_previous(const struct image *image, size_t i)
{
    const struct image_split_block *split = image->windows[i].split_at_begin;

    assert(i < image->window_count);
    assert(i != 0 || split == NULL); /* the first window continues none */
    return split != NULL && split->smaller_is_first;
}

void image_hash(struct image *image, size_t i, const uint8_t *buffer)
{
    const struct image_window *w = &image->windows[i];

    assert(i < image->window_count);
    for (size_t k = w->first_item; image_window_reaches_item(image, i, k); k++) {
        struct image_item *item = &image->items[k];
        const struct footer_item *f = &item->footer;
        const uint8_t *bytes = buffer;
        uint64_t begin, end;

        image_data_in_window(image, i, k, &begin, &end);
        bytes += f->offset + f->data_offset + begin - w->offset;
        for (uint64_t at = begin, length; at < end; at += length, bytes += length) {
            length = bytes_in_block(at, end);
            hash_bytes(w, item, at, bytes, length);
        }
    }
}
