/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor_encode.c -- decides which items of one window are encoded, and encodes them. */
#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "save/compressor_internal.h"

static struct codec_item codec_item_of(const struct footer_item *f)
{
    return (struct codec_item){.bytes = f->bytes,
                               .data_offset = f->data_offset,
                               .data_bytes = f->data_bytes,
                               .dtype = f->dtype};
}

static bool is_smaller(uint64_t stored, uint64_t raw)
{
    return stored + raw / COMPRESSOR_MIN_GAIN_DIVISOR < raw;
}

static enum sidestep_status add_part(struct compressed_window *window,
                                     const struct compressor_part *part, struct sidestep_error *err)
{
    TRY_GROW(window->parts, window->part_capacity, window->part_count, err);
    window->parts[window->part_count++] = *part;
    return SIDESTEP_OK;
}

/* Append the encoded form of ${part} to ${window}. */
static enum sidestep_status encode_part(struct compressor *compressor,
                                        struct codec_encoder *encoder,
                                        struct compressed_window *window,
                                        const struct footer_item *f, struct compressor_part *part,
                                        struct sidestep_error *err)
{
    struct codec_item item = codec_item_of(f);
    uint64_t from = clock_now(compressor->clock);

    part->encoded = true;
    part->begin = window->out.length;
    part->index_begin = window->index.length;
    enum sidestep_status status =
        compressor->codec->encode(encoder, &item, &part->raw, &window->out, &window->index, err);
    part->length = window->out.length - part->begin;
    part->index_length = window->index.length - part->index_begin;
    atomic_fetch_add(&compressor->gains[f->dtype].encode_ns, clock_now(compressor->clock) - from);
    TRY(status);
    uint64_t most = part->raw.length + part->raw.length / COMPRESSOR_MAX_GROWTH_DIVISOR +
                    COMPRESSOR_MAX_GROWTH_BYTES;
    if (part->length > most)
        return FAIL(err, SIDESTEP_EINVAL,
                    "the codec '%s' encodes %llu bytes as %zu bytes; at most %llu are allowed",
                    compressor->codec->descriptor, (unsigned long long)part->raw.length,
                    part->length, (unsigned long long)most);
    return SIDESTEP_OK;
}

static void drop_encoded(struct compressed_window *window, struct compressor_part *part)
{
    assert(part->encoded && part->begin + part->length == window->out.length); /* it is the last */
    window->out.length = part->begin;
    window->index.length = part->index_begin;
    part->encoded = false;
}

/* Encode one chunk of an item that spans several windows, to measure whether encoding is fast
 * enough and saves space. */
static enum sidestep_status try_sample(struct compressor *compressor, struct codec_encoder *encoder,
                                       struct compressed_window *window,
                                       const struct footer_item *f,
                                       const struct compressor_part *part, bool *worthwhile,
                                       struct sidestep_error *err)
{
    uint64_t skip = part->raw.begin < f->data_offset ? f->data_offset - part->raw.begin : 0;
    struct compressor_part sample = *part;

    assert(skip < part->raw.length);
    uint64_t from = clock_now(compressor->clock);
    sample.raw.bytes += skip;
    sample.raw.begin += skip;
    sample.raw.length = min_u64(CODEC_CHUNK_BYTES, part->raw.length - skip);
    TRY(encode_part(compressor, encoder, window, f, &sample, err));
    double took_ns = (double)(clock_now(compressor->clock) - from);
    *worthwhile = is_smaller(sample.length, sample.raw.length) &&
                  (compressor->ns_per_byte <= 0 ||
                   took_ns <= compressor->ns_per_byte * (double)sample.raw.length);
    drop_encoded(window, &sample);
    return SIDESTEP_OK;
}

/* Decide once whether an item in several windows is encoded.  The first thread decides, and the
 * others wait for it. */
static enum sidestep_status decide_item(struct compressor *compressor,
                                        struct codec_encoder *encoder,
                                        struct compressed_window *window,
                                        const struct compressor_part *part, bool *encode,
                                        struct sidestep_error *err)
{
    struct pipeline *p = compressor->p;
    struct compressor_item *item = &compressor->items[part->item];
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&p->shared.lock);
    while (item->decision == COMPRESSOR_SAMPLING && !p->shared.failed)
        lock_wait(&p->shared.lock, &p->shared.changed);
    if (item->decision == COMPRESSOR_UNDECIDED) {
        bool worthwhile = false;
        item->decision = COMPRESSOR_SAMPLING;
        lock_release(&p->shared.lock);
        status = try_sample(compressor, encoder, window, &p->image->items[part->item].footer, part,
                            &worthwhile, err);
        lock_acquire(&p->shared.lock);
        item->decision = worthwhile ? COMPRESSOR_ENCODE : COMPRESSOR_STORE;
        lock_wake_all(&p->shared.changed);
    }
    *encode = item->decision == COMPRESSOR_ENCODE;
    lock_release(&p->shared.lock);
    return status;
}

static enum sidestep_status compress_part(struct compressor *compressor,
                                          struct codec_encoder *encoder,
                                          struct compressed_window *window,
                                          struct compressor_part *part, struct sidestep_error *err)
{
    const struct footer_item *f = &compressor->p->image->items[part->item].footer;
    bool whole = part->raw.length == f->bytes, encode = true;

    if (f->bytes < COMPRESSOR_MIN_ITEM_BYTES || f->bytes > COMPRESSOR_MAX_ITEM_BYTES)
        return SIDESTEP_OK;
    if (f->is_object && f->bytes > READER_MAX_OBJECT_BYTES) /* a reader would refuse it */
        return SIDESTEP_OK;
    if (!whole)
        TRY(decide_item(compressor, encoder, window, part, &encode, err));
    if (!encode)
        return SIDESTEP_OK;
    TRY(encode_part(compressor, encoder, window, f, part, err));
    if (whole && !is_smaller(part->length + part->index_length, f->bytes))
        drop_encoded(window, part);
    return SIDESTEP_OK;
}

enum sidestep_status compressor_encode(struct compressor *compressor, struct codec_encoder *encoder,
                                       size_t i, struct sidestep_error *err)
{
    struct image *image = compressor->p->image;
    const struct image_window *w = &image->windows[i];
    struct compressed_window *window = compressor_window_at(compressor, i);
    uint8_t *bytes = pool_slots_get(compressor->p->slots, i);

    assert(i < image->window_count && bytes != NULL);
    window->out.length = 0;
    window->index.length = 0;
    window->part_count = 0;
    TRY(image_finish_window(image, i, bytes, err));
    for (size_t k = w->first_item; image_window_reaches_item(image, i, k); k++) {
        const struct footer_item *f = &image->items[k].footer;
        uint64_t begin = max_u64(w->offset, f->offset);
        uint64_t end = min_u64(w->offset + w->bytes, f->offset + f->bytes);
        struct compressor_part part = {.item = k,
                                       .raw = {.bytes = bytes + (begin - w->offset),
                                               .begin = begin - f->offset,
                                               .length = end - begin}};
        if (begin > end || (begin == end && f->bytes != 0))
            continue; /* the item ends before this window */
        enum sidestep_status status = compress_part(compressor, encoder, window, &part, err);
        if (status == SIDESTEP_OK)
            status = add_part(window, &part, err);
        TRY(WRAP(status, err, "encode '%s'", f->name));
    }
    return SIDESTEP_OK;
}
