/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor_append.c -- the file as it grows: items where they fall, in blocks that are written.
 */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "save/compressor_internal.h"

#define ENCODED_ALIGN IMAGE_SMALL_ALIGN

/* A block that is full goes to be written; another one is begun. */
static void next_block(struct compressor *press)
{
    struct compressor_output *tail = &press->tail;
    struct pipeline *p = press->p;

    pthread_mutex_lock(&p->shared.lock);
    if (tail->block != NULL) {
        *press->shared.full_end = tail->block;
        press->shared.full_end = &tail->block->next;
        pthread_cond_broadcast(&p->shared.changed);
    }
    tail->block = press->shared.free;
    assert(tail->block != NULL);
    press->shared.free = tail->block->next;
    press->shared.free_count--;
    pthread_mutex_unlock(&p->shared.lock);
    tail->block->next = NULL;
    tail->block->length = 0;
    tail->block->offset = tail->at;
}

/* ${bytes} NULL: zeroes. */
static void put(struct compressor *press, const uint8_t *bytes, uint64_t length)
{
    struct compressor_output *tail = &press->tail;

    while (length != 0) {
        if (tail->block == NULL || tail->block->length == COMPRESSOR_BLOCK_BYTES)
            next_block(press);
        size_t some = (size_t)min_u64(length, COMPRESSOR_BLOCK_BYTES - tail->block->length);
        uint8_t *to = tail->block->bytes + tail->block->length;
        if (bytes != NULL) {
            memcpy(to, bytes, some);
            bytes += some;
        } else {
            memset(to, 0, some);
        }
        tail->block->length += some;
        tail->at += some;
        length -= some;
    }
}

static void end_hash(struct compressor_output *tail, struct footer_item *f)
{
    assert(f->block_count < tail->room);
    tail->blocks[f->block_count++] = hash_stream_finish(tail->hash);
    tail->hashed = 0;
}

/* Stored bytes of an encoded item. */
static void put_encoded(struct compressor *press, struct footer_item *f, const uint8_t *bytes,
                        uint64_t length)
{
    struct compressor_output *tail = &press->tail;

    put(press, bytes, length);
    while (length != 0) {
        size_t some = (size_t)min_u64(length, HASH_BLOCK_BYTES - tail->hashed);
        hash_stream_update(tail->hash, bytes, some);
        tail->hashed += some;
        bytes += some;
        length -= some;
        if (tail->hashed == HASH_BLOCK_BYTES)
            end_hash(tail, f);
    }
}

static enum sidestep_status begin_item(struct compressor *press, const struct compressor_part *part,
                                       struct sidestep_error *err)
{
    struct footer_item *f = &press->items[part->item].footer;
    struct compressor_output *tail = &press->tail;

    f->offset = part->encoded ? round_up(tail->at, ENCODED_ALIGN) : image_align_offset(f, tail->at);
    put(press, NULL, f->offset - tail->at);
    if (!part->encoded)
        return SIDESTEP_OK;
    /* More than this no encoded item has: compressor_encode() sees to it, and an index is smaller.
     */
    tail->room = hash_block_count(f->bytes + f->bytes / COMPRESSOR_MAX_GROWTH_DIVISOR +
                                  COMPRESSOR_MAX_INDEX_BYTES) +
                 f->bytes / IMAGE_WINDOW_BYTES;
    tail->blocks = arena_new(&press->arena, tail->room, sizeof(*tail->blocks));
    if (tail->blocks == NULL)
        return FAIL_NOMEM(err, tail->room * sizeof(*tail->blocks));
    tail->index.length = 0;
    f->blocks = tail->blocks;
    f->block_count = 0;
    f->transform = 1;
    return SIDESTEP_OK;
}

static void end_item(struct compressor *press, const struct compressor_part *part)
{
    const struct footer_item *raw = &press->p->image->items[part->item].footer;
    struct footer_item *f = &press->items[part->item].footer;
    struct compressor_output *tail = &press->tail;

    /* What image_finish_window() found when the last window of the item was encoded. */
    f->raw_hash = raw->raw_hash;
    f->envelope_hash = raw->envelope_hash;
    if (part->encoded) {
        put_encoded(press, f, tail->index.bytes, tail->index.length);
        if (tail->hashed != 0)
            end_hash(tail, f);
        f->bytes = tail->at - f->offset;
        f->data_bytes = f->bytes;
        assert(f->block_count == hash_block_count(f->bytes));
    }
    press->gains[f->dtype].raw_bytes += raw->bytes;
    press->gains[f->dtype].stored_bytes += f->bytes;
}

static enum sidestep_status append_part(struct compressor *press,
                                        const struct compressed_window *window,
                                        const struct compressor_part *part,
                                        struct sidestep_error *err)
{
    struct footer_item *f = &press->items[part->item].footer;
    uint64_t raw_bytes = press->p->image->items[part->item].footer.bytes;

    if (part->raw.begin == 0)
        TRY(begin_item(press, part, err));
    if (part->encoded) {
        put_encoded(press, f, window->out.bytes + part->begin, part->length);
        buffer_put(&press->tail.index, window->index.bytes + part->index_begin, part->index_length);
        TRY(buffer_check(&press->tail.index, err));
    } else {
        put(press, part->raw.bytes, part->raw.length);
    }
    if (part->raw.begin + part->raw.length == raw_bytes)
        end_item(press, part);
    return SIDESTEP_OK;
}

enum sidestep_status compressor_append(struct compressor *press, size_t i,
                                       struct sidestep_error *err)
{
    const struct compressed_window *window = &press->room->windows[i % press->room->window_count];
    struct compressor_output *tail = &press->tail;

    for (size_t k = 0; k < window->part_count; k++)
        TRY(append_part(press, window, &window->parts[k], err));
    if (i + 1 < press->p->image->window_count)
        return SIDESTEP_OK;
    put(press, NULL, round_up(tail->at, IMAGE_ALIGN) - tail->at);
    if (tail->block != NULL && tail->block->length != 0) {
        pthread_mutex_lock(&press->p->shared.lock);
        *press->shared.full_end = tail->block;
        press->shared.full_end = &tail->block->next;
        pthread_mutex_unlock(&press->p->shared.lock);
        tail->block = NULL;
    }
    return SIDESTEP_OK;
}
