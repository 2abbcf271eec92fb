/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor_append.c -- appends encoded windows, in order, to blocks of the shard file. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "save/compressor_internal.h"

#define ENCODED_ALIGN IMAGE_SMALL_ALIGN

/* Queue the full block for writing, and take a free one. */
static void next_block(struct compressor *compressor)
{
    struct compressor_output *output = &compressor->output;
    struct pipeline *p = compressor->p;

    lock_acquire(&p->shared.lock);
    if (output->block != NULL) {
        *compressor->shared.write_queue_end = output->block;
        compressor->shared.write_queue_end = &output->block->next;
        lock_wake_all(&p->shared.changed);
    }
    output->block = compressor->shared.free;
    assert(output->block != NULL);
    compressor->shared.free = output->block->next;
    compressor->shared.free_count--;
    lock_release(&p->shared.lock);
    output->block->next = NULL;
    output->block->length = 0;
    output->block->offset = output->offset;
}

/* Append ${bytes} to the file (NULL: zeros). */
static void append(struct compressor *compressor, const uint8_t *bytes, uint64_t length)
{
    struct compressor_output *output = &compressor->output;

    while (length != 0) {
        if (output->block == NULL || output->block->length == COMPRESSOR_BLOCK_BYTES)
            next_block(compressor);
        size_t some = (size_t)min_u64(length, COMPRESSOR_BLOCK_BYTES - output->block->length);
        uint8_t *to = output->block->bytes + output->block->length;
        if (bytes != NULL) {
            memcpy(to, bytes, some);
            bytes += some;
        } else {
            memset(to, 0, some);
        }
        output->block->length += some;
        output->offset += some;
        length -= some;
    }
}

static void end_hash(struct compressor_output *output, struct footer_item *f)
{
    assert(f->block_count < output->block_capacity);
    output->blocks[f->block_count++] = hash_stream_finish(output->hash);
    output->hashed = 0;
}

/* Append stored bytes of an encoded item, and hash them. */
static void append_encoded(struct compressor *compressor, struct footer_item *f,
                           const uint8_t *bytes, uint64_t length)
{
    struct compressor_output *output = &compressor->output;

    append(compressor, bytes, length);
    while (length != 0) {
        size_t some = (size_t)min_u64(length, HASH_BLOCK_BYTES - output->hashed);
        hash_stream_update(output->hash, bytes, some);
        output->hashed += some;
        bytes += some;
        length -= some;
        if (output->hashed == HASH_BLOCK_BYTES)
            end_hash(output, f);
    }
}

static enum sidestep_status begin_item(struct compressor *compressor,
                                       const struct compressor_part *part,
                                       struct sidestep_error *err)
{
    struct footer_item *f = &compressor->items[part->item].footer;
    struct compressor_output *output = &compressor->output;

    f->offset = part->encoded ? round_up(output->offset, ENCODED_ALIGN)
                              : image_align_offset(f, output->offset);
    assert(f->offset >= output->offset && output->hashed == 0);
    append(compressor, NULL, f->offset - output->offset);
    if (!part->encoded)
        return SIDESTEP_OK;
    /* For the largest encoded item: compressor_encode() limits the data, and the index is smaller
     * than its limit. */
    output->block_capacity = hash_block_count(f->bytes + f->bytes / COMPRESSOR_MAX_GROWTH_DIVISOR +
                                              COMPRESSOR_MAX_INDEX_BYTES) +
                             f->bytes / IMAGE_WINDOW_BYTES;
    output->blocks = arena_new(&compressor->arena, output->block_capacity, sizeof(*output->blocks));
    if (output->blocks == NULL)
        return FAIL_NOMEM(err, output->block_capacity * sizeof(*output->blocks));
    output->index.length = 0;
    f->blocks = output->blocks;
    f->block_count = 0;
    f->transform = 1;
    return SIDESTEP_OK;
}

static void end_item(struct compressor *compressor, const struct compressor_part *part)
{
    const struct footer_item *raw = &compressor->p->image->items[part->item].footer;
    struct footer_item *f = &compressor->items[part->item].footer;
    struct compressor_output *output = &compressor->output;

    /* image_finish_window() has set these hashes when the last window of the item was encoded. */
    f->raw_hash = raw->raw_hash;
    f->envelope_hash = raw->envelope_hash;
    if (part->encoded) {
        append_encoded(compressor, f, output->index.bytes, output->index.length);
        if (output->hashed != 0)
            end_hash(output, f);
        f->bytes = output->offset - f->offset;
        f->data_bytes = f->bytes;
        assert(f->block_count == hash_block_count(f->bytes));
    }
    compressor->gains[f->dtype].raw_bytes += raw->bytes;
    compressor->gains[f->dtype].stored_bytes += f->bytes;
}

static enum sidestep_status append_part(struct compressor *compressor,
                                        const struct compressed_window *window,
                                        const struct compressor_part *part,
                                        struct sidestep_error *err)
{
    struct footer_item *f = &compressor->items[part->item].footer;
    uint64_t raw_bytes = compressor->p->image->items[part->item].footer.bytes;

    if (part->raw.begin == 0)
        TRY(begin_item(compressor, part, err));
    if (part->encoded) {
        append_encoded(compressor, f, window->out.bytes + part->begin, part->length);
        buffer_put(&compressor->output.index, window->index.bytes + part->index_begin,
                   part->index_length);
        TRY(buffer_check(&compressor->output.index, err));
    } else {
        append(compressor, part->raw.bytes, part->raw.length);
    }
    if (part->raw.begin + part->raw.length == raw_bytes)
        end_item(compressor, part);
    return SIDESTEP_OK;
}

enum sidestep_status compressor_append(struct compressor *compressor, size_t i,
                                       struct sidestep_error *err)
{
    const struct compressed_window *window = compressor_window_at(compressor, i);
    struct compressor_output *output = &compressor->output;

    assert(i == compressor->shared.append_next);
    for (size_t k = 0; k < window->part_count; k++)
        TRY(append_part(compressor, window, &window->parts[k], err));
    if (i + 1 < compressor->p->image->window_count)
        return SIDESTEP_OK;
    append(compressor, NULL, round_up(output->offset, image_align()) - output->offset);
    if (output->block != NULL && output->block->length != 0) {
        lock_acquire(&compressor->p->shared.lock);
        *compressor->shared.write_queue_end = output->block;
        compressor->shared.write_queue_end = &output->block->next;
        lock_release(&compressor->p->shared.lock);
        output->block = NULL;
    }
    return SIDESTEP_OK;
}
