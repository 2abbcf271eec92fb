/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reader_decode.c -- decodes an item written by sidestep, piece by piece; see reader.h.
 *
 * Each stored block is checked before the decoder gets it. The decoded bytes are checked at the
 * end, by the hash of the raw data and the hash of the archive around it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "checkpoint/reader.h"

/* Input of the decoder: stored blocks, in order. */
struct stored {
    struct codec_input input;
    const struct reader_item *item;
    uint8_t *block; /* HASH_BLOCK_BYTES, or the size of the item if that is less */
    uint64_t next;  /* number of the next block */
    size_t length;
    size_t used;
};

static enum sidestep_status next_block(struct stored *in, struct sidestep_error *err)
{
    const struct reader_item *item = in->item;
    uint64_t at = in->next * HASH_BLOCK_BYTES;

    in->length = (size_t)min_u64(HASH_BLOCK_BYTES, item->bytes - at);
    in->used = 0;
    TRY(source_read(&item->file->source, in->block, in->length, item->offset + at, err));
    TRY(reader_check_blocks(item, in->next, in->block, in->length, err));
    in->next++;
    return SIDESTEP_OK;
}

static enum sidestep_status take_stored(struct codec_input *input, size_t limit,
                                        const uint8_t **bytes, size_t *length,
                                        struct sidestep_error *err)
{
    struct stored *in = (struct stored *)input;

    if (in->used == in->length)
        TRY(next_block(in, err));
    *length = (size_t)min_u64(limit, in->length - in->used);
    *bytes = in->block + in->used;
    in->used += *length;
    in->input.left -= *length;
    return SIDESTEP_OK;
}

/* Output of the decoder: the head, blocks of data, the tail. */
struct decoded {
    struct codec_sink sink;
    const struct footer_item *footer;
    const struct reader_sink *target;
    uint64_t at;            /* of the next byte, in the decoded item */
    struct buffer envelope; /* head and tail */
    struct buffer hashes;   /* of the raw blocks, in order */
    uint8_t *block;
    size_t length; /* bytes in the block so far */
};

static enum sidestep_status end_block(struct decoded *out, const uint8_t *bytes, size_t length,
                                      struct sidestep_error *err)
{
    uint64_t begin = out->hashes.length / sizeof(uint64_t) * HASH_BLOCK_BYTES;
    uint64_t hash = hash_block(bytes, length);

    buffer_put(&out->hashes, &hash, sizeof(hash)); /* hash.c makes it little-endian */
    out->length = 0;
    if (out->target == NULL || (out->target->plain != NULL && bytes == out->target->plain + begin))
        return SIDESTEP_OK;
    return out->target->put(out->target->context, begin, bytes, length, err);
}

/* Add ${length} bytes of data, which may begin and end within blocks. ${last}: no more data
 * follows. */
static enum sidestep_status put_data(struct decoded *out, const uint8_t *bytes, size_t length,
                                     bool last, struct sidestep_error *err)
{
    while (length != 0) {
        size_t some = (size_t)min_u64(length, HASH_BLOCK_BYTES - out->length);
        if (out->length == 0 && (some == HASH_BLOCK_BYTES || last)) {
            TRY(end_block(out, bytes, some, err));
            bytes += some;
            length -= some;
            continue;
        }
        memcpy(out->block + out->length, bytes, some);
        out->length += some;
        bytes += some;
        length -= some;
        if (out->length == HASH_BLOCK_BYTES)
            TRY(end_block(out, out->block, HASH_BLOCK_BYTES, err));
    }
    return last && out->length != 0 ? end_block(out, out->block, out->length, err) : SIDESTEP_OK;
}

static enum sidestep_status put_decoded(struct codec_sink *sink, const uint8_t *bytes,
                                        size_t length, struct sidestep_error *err)
{
    struct decoded *out = (struct decoded *)sink;
    const struct footer_item *f = out->footer;
    uint64_t data_end = f->data_offset + f->raw_bytes;

    while (length != 0) {
        bool in_data = out->at >= f->data_offset && out->at < data_end;
        uint64_t end = out->at < f->data_offset ? f->data_offset : in_data ? data_end : UINT64_MAX;
        size_t some = (size_t)min_u64(length, end - out->at);
        if (in_data)
            TRY(put_data(out, bytes, some, out->at + some == data_end, err));
        else
            buffer_put(&out->envelope, bytes, some);
        out->at += some;
        bytes += some;
        length -= some;
    }
    TRY(buffer_check(&out->hashes, err));
    return buffer_check(&out->envelope, err);
}

static uint8_t *decoded_target(struct codec_sink *sink, size_t length)
{
    struct decoded *out = (struct decoded *)sink;
    const struct footer_item *f = out->footer;

    if (out->target == NULL || out->target->plain == NULL || out->length != 0 ||
        out->at < f->data_offset || out->at - f->data_offset > f->raw_bytes ||
        length > f->raw_bytes - (out->at - f->data_offset))
        return NULL;
    return out->target->plain + (out->at - f->data_offset);
}

static enum sidestep_status check_decoded(const struct decoded *out, struct sidestep_error *err)
{
    const struct footer_item *f = out->footer;

    if (out->at < f->data_offset + f->raw_bytes)
        return FAIL(err, SIDESTEP_ECORRUPT, "it decodes to %llu bytes instead of %llu",
                    (unsigned long long)out->at,
                    (unsigned long long)(f->data_offset + f->raw_bytes));
    struct hash128 hash = hash_block_list((const uint64_t *)(const void *)out->hashes.bytes,
                                          out->hashes.length / sizeof(uint64_t));
    if (!hash128_equal(hash, f->raw_hash))
        return FAIL(err, SIDESTEP_ECORRUPT, "the decoded bytes do not match their hash");
    if (f->is_object ? out->envelope.length != 0
                     : hash_block(out->envelope.bytes, out->envelope.length) != f->envelope_hash)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "the decoded archive around the data does not match its hash");
    return SIDESTEP_OK;
}

static void release_decoded(struct decoded *out)
{
    buffer_release(&out->envelope);
    buffer_release(&out->hashes);
    free(out->block);
}

enum sidestep_status reader_item_decode(const struct reader_item *item,
                                        const struct reader_sink *target,
                                        struct sidestep_error *err)
{
    const struct footer_item *f = item->footer;
    const struct codec *codec = codec_find(item->transform);
    size_t block_bytes = (size_t)min_u64(HASH_BLOCK_BYTES, item->bytes);
    OWNED_BY(release_decoded)
    struct decoded out = {.sink = {put_decoded, decoded_target}, .footer = f, .target = target};

    if (codec == NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "it is stored with the codec '%s', which this program does not have"
                    " (see sidestep_codec_register())",
                    item->transform);
    OWNED uint8_t *block = memory_resize(NULL, block_bytes, 1);
    out.block = memory_resize(NULL, min_u64(HASH_BLOCK_BYTES, f->raw_bytes), 1);
    if (block == NULL || out.block == NULL)
        return FAIL_NOMEM(err, block_bytes + HASH_BLOCK_BYTES);
    struct stored in = {
        .input = {.left = item->bytes, .take = take_stored}, .item = item, .block = block};
    /* The limit for a tensor allows the largest possible tail. An object has no tail. */
    uint64_t limit = f->data_offset + f->raw_bytes + (f->is_object ? 0 : FOOTER_MAX_ENVELOPE_BYTES);
    TRY(codec->decode(codec, &in.input, limit, &out.sink, err));
    return check_decoded(&out, err);
}
