/* SPDX-License-Identifier: BSD-3-Clause */
/* image_hash.c -- see image.h: the hashes of windows, whose blocks may reach into the next one. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "snapshot/image.h"

static uint64_t block_bytes(const struct footer_item *f, uint64_t block)
{
    return min_u64(HASH_BLOCK_BYTES, f->data_bytes - block * HASH_BLOCK_BYTES);
}

/* Of the block that goes through ${seam}, both parts are known. */
static void join_parts(struct image_split_block *seam)
{
    struct image_item *item = seam->item;
    uint64_t block = seam->at / HASH_BLOCK_BYTES;
    uint64_t left = seam->at % HASH_BLOCK_BYTES, right = block_bytes(&item->footer, block) - left;

    if (!seam->at_beginning) {
        hash_stream_update(seam->stream, seam->lesser, right);
        seam->crc = hash_crc32(seam->crc, seam->lesser, right);
    }
    item->blocks[block] = hash_stream_finish(seam->stream);
    item->crcs[block] = seam->crc;
}

/* One part of a block is at ${bytes}: what comes first of it, or the rest.  Where the lesser part
 * comes first, it has been here before (image_hash_needs_previous()). */
static void take_part(struct image_split_block *seam, bool first, const uint8_t *bytes,
                      uint64_t length)
{
    if (seam->at_beginning == first) {
        assert(length == seam->bytes);
        memcpy(seam->lesser, bytes, length);
    }
    if (first || seam->at_beginning) {
        hash_stream_update(seam->stream, bytes, length);
        seam->crc = hash_crc32(seam->crc, bytes, length);
    }
    if (atomic_fetch_add(&seam->parts, 1) == 1)
        join_parts(seam);
}

static void keep_first_bytes(struct image_item *item, uint64_t at, const uint8_t *bytes,
                             uint64_t length)
{
    if (at < sizeof(item->first_bytes))
        memcpy(item->first_bytes + at, bytes, min_u64(sizeof(item->first_bytes) - at, length));
}

/* Bytes [at, at + length) of an item's data, all in one block, and all of it that window ${w} has,
 * are at ${bytes}. */
static void hash_stretch(const struct image_window *w, struct image_item *item, uint64_t at,
                         const uint8_t *bytes, uint64_t length)
{
    uint64_t block = at / HASH_BLOCK_BYTES;

    keep_first_bytes(item, at, bytes, length);
    if (length != block_bytes(&item->footer, block)) {
        bool first = at % HASH_BLOCK_BYTES == 0;
        take_part(first ? w->closes : w->opens, first, bytes, length);
        return;
    }
    item->blocks[block] = hash_block(bytes, length);
    if (!item->footer.is_object)
        item->crcs[block] = hash_crc32(0, bytes, length);
}

/* To the end of the block, or of what is there. */
static uint64_t stretch_bytes(uint64_t at, uint64_t end)
{
    return min_u64(HASH_BLOCK_BYTES - at % HASH_BLOCK_BYTES, end - at);
}

uint64_t image_tensor_part_bytes(const struct image *image, size_t i, uint64_t at)
{
    uint64_t begin, end;

    image_data_in_window(image, i, image->windows[i].first_item, &begin, &end);
    return begin + at < end ? stretch_bytes(begin + at, end) : 0;
}

uint64_t image_hash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes)
{
    const struct image_window *w = &image->windows[i];
    struct image_item *item = &image->items[w->first_item];
    uint64_t begin, end;

    image_data_in_window(image, i, w->first_item, &begin, &end);
    uint64_t length = stretch_bytes(begin + at, end), block = (begin + at) / HASH_BLOCK_BYTES;
    hash_stretch(w, item, begin + at, bytes, length);
    return length == block_bytes(&item->footer, block) ? item->blocks[block]
                                                       : hash_block(bytes, length);
}

uint64_t image_rehash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes)
{
    return hash_block(bytes, image_tensor_part_bytes(image, i, at));
}

bool image_hash_needs_previous(const struct image *image, size_t i)
{
    const struct image_split_block *seam = image->windows[i].opens;

    return seam != NULL && seam->at_beginning;
}

void image_hash(struct image *image, size_t i, const uint8_t *buffer)
{
    const struct image_window *w = &image->windows[i];

    for (size_t k = w->first_item; image_window_reaches_item(image, i, k); k++) {
        struct image_item *item = &image->items[k];
        const struct footer_item *f = &item->footer;
        const uint8_t *bytes = buffer;
        uint64_t begin, end;

        image_data_in_window(image, i, k, &begin, &end);
        bytes += f->offset + f->data_offset + begin - w->offset;
        for (uint64_t at = begin, length; at < end; at += length, bytes += length) {
            length = stretch_bytes(at, end);
            hash_stretch(w, item, at, bytes, length);
        }
    }
}
