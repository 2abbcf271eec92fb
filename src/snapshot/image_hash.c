/* SPDX-License-Identifier: BSD-3-Clause */
/* image_hash.c -- hashes the blocks of windows; see image.h. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "snapshot/image.h"

/* Hash bytes [begin, end) of an item's data, whole blocks, which are at ${bytes}. */
static void hash_blocks(struct image_item *item, uint64_t begin, uint64_t end, const uint8_t *bytes)
{
    if (begin == 0)
        memcpy(item->first_bytes, bytes, min_u64(sizeof(item->first_bytes), end));
    for (uint64_t at = begin, length; at < end; at += length, bytes += length) {
        uint64_t block = at / HASH_BLOCK_BYTES;

        length = min_u64(HASH_BLOCK_BYTES, item->footer.data_bytes - at);
        assert(at % HASH_BLOCK_BYTES == 0 && at + length <= end);
        item->blocks[block] = hash_block(bytes, length);
        if (!item->footer.is_object)
            item->crcs[block] = hash_crc32(0, bytes, length);
    }
}

void image_hash(struct image *image, size_t i, const uint8_t *buffer)
{
    const struct image_window *w = &image->windows[i];

    assert(i < image->window_count);
    for (size_t k = w->first_item; image_window_reaches_item(image, i, k); k++) {
        const struct footer_item *f = &image->items[k].footer;
        uint64_t begin, end;

        image_data_in_window(image, i, k, &begin, &end);
        if (begin < end)
            hash_blocks(&image->items[k], begin, end,
                        buffer + (f->offset + f->data_offset + begin - w->offset));
    }
}
