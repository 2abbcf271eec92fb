/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * image_staging.c -- fills and finishes windows; see image.h.  The trainer waits only for
 * image_stage_window(); everything else runs in the background.
 */
#include "snapshot/image.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"

/* The part of an item's data that is in a window: [begin, end) of the data. */
struct part {
    uint64_t begin;
    uint64_t end;
    uint64_t at; /* offset of its first byte in the window */
};

static struct part data_part(const struct image_window *w, const struct footer_item *f)
{
    uint64_t data = f->offset + f->data_offset;
    uint64_t first = max_u64(w->offset, data);
    uint64_t last = min_u64(w->offset + w->bytes, data + f->data_bytes);

    if (first >= last)
        return (struct part){0};
    return (struct part){.begin = first - data, .end = last - data, .at = first - w->offset};
}

static bool reaches(const struct image *image, const struct image_window *w, size_t i)
{
    return i < image->count && image->items[i].footer.offset < w->offset + w->bytes;
}

/* Copy bytes [from, from + length) of the file, as far as they are in the window. */
static void put_bytes(const struct image_window *w, uint8_t *buffer, const uint8_t *bytes,
                      uint64_t from, uint64_t length)
{
    uint64_t first = max_u64(w->offset, from);
    uint64_t last = min_u64(w->offset + w->bytes, from + length);

    if (first < last)
        memcpy(buffer + (first - w->offset), bytes + (first - from), last - first);
}

static void zero(const struct image_window *w, uint8_t *buffer, uint64_t from, uint64_t to)
{
    uint64_t first = max_u64(w->offset, from);
    uint64_t last = min_u64(w->offset + w->bytes, to);

    if (first < last)
        memset(buffer + (first - w->offset), 0, last - first);
}

const uint8_t *image_contiguous_data(const struct image *image, size_t i)
{
    const struct image_item *item = &image->items[i];
    const struct state_entry *entry = item->entry;
    const struct box *box = &item->footer.box;
    int64_t at = 0;

    if (item->footer.is_object || item->on_device || entry->reader != NULL ||
        item->footer.data_bytes == 0 || !box_is_row_major(box->ndim, box->lengths, entry->strides))
        return NULL;
    for (uint32_t d = 0; d < box->ndim; d++)
        at += (box->offsets[d] - entry->box.offsets[d]) * entry->strides[d];
    return (const uint8_t *)entry->data + at * (int64_t)sidestep_dtype_size(entry->dtype);
}

enum sidestep_status image_copy_item_data(const struct image *image, size_t k, uint64_t begin,
                                          uint64_t end, uint8_t *to, struct sidestep_error *err)
{
    const struct image_item *item = &image->items[k];
    const struct state_source *reader = item->entry->reader;

    assert(begin <= end && end <= item->footer.data_bytes);
    if (reader != NULL)
        return reader->read(reader->context, item->entry->reader_tensor, &item->footer.box, begin,
                            end - begin, to, err);
    if (item->in_file)
        return image_copy_from_file(image, k, begin, end, to, err);
    const uint8_t *data = image_contiguous_data(image, k);
    if (data != NULL) {
        nontemporal_copy(to, data + begin, end - begin);
        return SIDESTEP_OK;
    }
    struct box_memory memory = state_entry_memory(item->entry);
    uint64_t moved = box_transfer(&item->footer.box, begin, end - begin, to, &memory, BOX_GATHER);
    assert(moved == end - begin);
    (void)moved;
    return SIDESTEP_OK;
}

static enum sidestep_status stage_part(const struct image *image, size_t k, const struct part *part,
                                       uint8_t *to, struct sidestep_error *err)
{
    const struct image_item *item = &image->items[k];

    if (part->begin >= part->end)
        return SIDESTEP_OK;
    if (item->eager_copy != NULL) {
        memcpy(to, item->eager_copy + part->begin, part->end - part->begin);
        return SIDESTEP_OK;
    }
    return item->on_device ? SIDESTEP_OK
                           : image_copy_item_data(image, k, part->begin, part->end, to, err);
}

/* The parts of item ${k}'s data in the window that are not protected: before the protected range,
 * and after it.  Either may be empty. */
static void unprotected_parts(const struct image *image, const struct image_window *w, size_t k,
                              const struct image_protected_range *protected, struct part parts[2])
{
    struct part all = data_part(w, &image->items[k].footer);

    parts[0] = parts[1] = (struct part){0};
    if (image->items[k].footer.is_object)
        return;
    parts[0] = all;
    if (protected == NULL || protected[k].begin == protected[k].end)
        return;
    parts[0].end = min_u64(all.end, protected[k].begin);
    parts[1] = all;
    parts[1].begin = max_u64(all.begin, protected[k].end);
    if (parts[1].begin < parts[1].end)
        parts[1].at += parts[1].begin - all.begin;
}

enum sidestep_status image_stage_tensor_data(const struct image *image, size_t i,
                                             const struct image_protected_range *protected,
                                             uint8_t *buffer, struct sidestep_error *err)
{
    const struct image_window *w = &image->windows[i];

    assert(i < image->window_count);
    for (size_t k = w->first_item; reaches(image, w, k); k++) {
        struct part parts[2];

        unprotected_parts(image, w, k, protected, parts);
        for (int n = 0; n < 2; n++)
            TRY(stage_part(image, k, &parts[n], buffer + parts[n].at, err));
    }
    return SIDESTEP_OK;
}

/* Where byte ${byte} of an item's data is in the eager copy, which has the data before the
 * protected range, and then the data after it. */
static uint64_t eager_offset(const struct image_protected_range *protected, uint64_t byte)
{
    return byte < protected->end ? byte : byte - (protected->end - protected->begin);
}

enum sidestep_status image_copy_eager(const struct image *image, size_t i,
                                      const struct image_protected_range *protected,
                                      const uint64_t *at, uint8_t *eager,
                                      struct sidestep_error *err)
{
    const struct image_window *w = &image->windows[i];

    assert(i < image->window_count);
    for (size_t k = w->first_item; reaches(image, w, k); k++) {
        struct part parts[2];

        unprotected_parts(image, w, k, protected, parts);
        for (int n = 0; n < 2; n++)
            TRY(stage_part(image, k, &parts[n],
                           eager + at[k] + eager_offset(&protected[k], parts[n].begin), err));
    }
    return SIDESTEP_OK;
}

void image_stage_eager(const struct image *image, size_t i,
                       const struct image_protected_range *protected, const uint64_t *at,
                       const uint8_t *eager, uint8_t *buffer)
{
    const struct image_window *w = &image->windows[i];

    assert(i < image->window_count);
    for (size_t k = w->first_item; reaches(image, w, k); k++) {
        struct part parts[2];

        unprotected_parts(image, w, k, protected, parts);
        for (int n = 0; n < 2; n++)
            if (parts[n].begin < parts[n].end)
                memcpy(buffer + parts[n].at,
                       eager + at[k] + eager_offset(&protected[k], parts[n].begin),
                       parts[n].end - parts[n].begin);
    }
}

void image_stage_non_tensor_data(const struct image *image, size_t i, uint8_t *buffer)
{
    const struct image_window *w = &image->windows[i];
    uint64_t at = w->offset; /* everything before this offset is filled */

    assert(i < image->window_count);
    for (size_t k = w->first_item; reaches(image, w, k); k++) {
        const struct image_item *item = &image->items[k];
        const struct footer_item *f = &item->footer;

        if (f->offset > at)
            zero(w, buffer, at, f->offset);
        put_bytes(w, buffer, item->head, f->offset, item->layout.head_bytes);
        if (f->is_object)
            put_bytes(w, buffer, item->object, f->offset + f->data_offset, f->data_bytes);
        zero(w, buffer, f->offset + f->data_offset + f->data_bytes, f->offset + f->bytes);
        at = f->offset + f->bytes;
    }
    zero(w, buffer, at, w->offset + w->bytes);
}

enum sidestep_status image_stage_window(const struct image *image, size_t i, uint8_t *buffer,
                                        struct sidestep_error *err)
{
    image_stage_non_tensor_data(image, i, buffer);
    return image_stage_tensor_data(image, i, NULL, buffer, err);
}

void image_data_in_window(const struct image *image, size_t i, size_t k, uint64_t *begin,
                          uint64_t *end)
{
    assert(i < image->window_count && k < image->count);
    struct part part = data_part(&image->windows[i], &image->items[k].footer);

    *begin = part.begin;
    *end = part.end;
}

size_t image_find_window(const struct image *image, uint64_t offset)
{
    size_t low = 0, high = image->window_count;

    assert(offset < image->body_bytes);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (image->windows[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t image_largest_window(const struct image *image)
{
    uint64_t largest = 0;

    for (size_t i = 0; i < image->window_count; i++)
        largest = max_u64(largest, image->windows[i].bytes);
    return largest;
}

bool image_window_reaches_item(const struct image *image, size_t i, size_t k)
{
    assert(i < image->window_count);
    return reaches(image, &image->windows[i], k);
}

static uint32_t combine_crcs(const struct image_item *item)
{
    uint32_t crc = 0;
    uint64_t left = item->footer.data_bytes;

    for (uint64_t block = 0; block < item->footer.block_count; block++) {
        uint64_t length = min_u64(HASH_BLOCK_BYTES, left);
        crc = block == 0 ? item->crcs[0] : hash_crc32_combine(crc, item->crcs[block], length);
        left -= length;
    }
    return crc;
}

/* ${envelope}: buffer for the item's head and tail, which are hashed together.  ${last}: cache with
 * the previous tail. */
static enum sidestep_status finish_tensor(struct image_item *item, const struct image_window *w,
                                          uint8_t *buffer, struct buffer *envelope,
                                          struct archive_tail_cache *last,
                                          struct sidestep_error *err)
{
    struct footer_item *f = &item->footer;

    envelope->length = 0;
    buffer_put(envelope, item->head, item->layout.head_bytes);
    TRY(archive_tensor_write_tail_cached(last, &item->layout, combine_crcs(item), item->first_bytes,
                                         envelope, err));
    assert(envelope->length == item->layout.head_bytes + item->layout.tail_bytes);
    f->envelope_hash = hash_block(envelope->bytes, envelope->length);
    put_bytes(w, buffer, envelope->bytes + item->layout.head_bytes,
              f->offset + f->data_offset + f->data_bytes, item->layout.tail_bytes);
    return SIDESTEP_OK;
}

enum sidestep_status image_finish_window(struct image *image, size_t i, uint8_t *buffer,
                                         struct sidestep_error *err)
{
    const struct image_window *w = &image->windows[i];
    OWNED_BUFFER envelope = {0};
    OWNED_BY(archive_tail_cache_release) struct archive_tail_cache last = {0};

    assert(i < image->window_count);
    for (size_t k = w->first_item; reaches(image, w, k); k++) {
        struct image_item *item = &image->items[k];
        struct footer_item *f = &item->footer;

        if (f->offset + f->bytes > w->offset + w->bytes)
            break; /* it ends in a later window */
        f->raw_hash = hash_block_list(item->blocks, f->block_count);
        if (!f->is_object)
            TRY(finish_tensor(item, w, buffer, &envelope, &last, err));
    }
    return SIDESTEP_OK;
}
