/* SPDX-License-Identifier: BSD-3-Clause */
/* compressed_item.c -- decodes single chunks of compressed items; see compressed_item.h. */
#include "load/compressed_item.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"

_Static_assert(CODEC_CHUNK_BYTES == HASH_BLOCK_BYTES, "a decoded chunk is a block with a hash");

struct compressed_item_decoder {
    struct compressed_item_decoder *next;
    const struct codec_chunk_ops *chunks; /* the codec of this decoder */
    struct codec_decoder *codec_decoder;
    uint8_t bytes[CODEC_CHUNK_BYTES];
};

void compressed_item_decoders_init(struct compressed_item_decoders *decoders)
{
    *decoders = (struct compressed_item_decoders){.free = NULL};
    lock_init(&decoders->lock, LOCK_DECODERS);
}

void compressed_item_decoders_release(struct compressed_item_decoders *decoders)
{
    lock_alone(&decoders->lock);
    for (struct compressed_item_decoder *decoder = decoders->free, *next; decoder != NULL;
         decoder = next) {
        next = decoder->next;
        decoder->chunks->decoder_free(decoder->codec_decoder);
        free(decoder);
    }
    lock_destroy(&decoders->lock);
}

static enum sidestep_status take_decoder(struct compressed_item_decoders *decoders,
                                         const struct codec_chunk_ops *chunks,
                                         struct compressed_item_decoder **out,
                                         struct sidestep_error *err)
{
    lock_acquire(&decoders->lock);
    struct compressed_item_decoder **at = &decoders->free;
    while (*at != NULL && (*at)->chunks != chunks)
        at = &(*at)->next;
    *out = *at;
    if (*at != NULL)
        *at = (*at)->next;
    lock_release(&decoders->lock);
    if (*out != NULL)
        return SIDESTEP_OK;
    struct compressed_item_decoder *decoder = memory_resize(NULL, 1, sizeof(*decoder));
    if (decoder == NULL)
        return FAIL_NOMEM(err, sizeof(*decoder));
    decoder->chunks = chunks;
    enum sidestep_status status = chunks->decoder_new(&decoder->codec_decoder, err);
    if (status != SIDESTEP_OK) {
        free(decoder);
        return status;
    }
    *out = decoder;
    return SIDESTEP_OK;
}

static void return_decoder(struct compressed_item_decoders *decoders,
                           struct compressed_item_decoder *decoder)
{
    lock_acquire(&decoders->lock);
    decoder->next = decoders->free;
    decoders->free = decoder;
    lock_release(&decoders->lock);
}

/* Can its chunks be decoded separately?  With one chunk nothing is gained. */
static bool has_chunks(const struct reader_item *item, const struct codec *codec)
{
    const struct footer_item *f = item->footer;
    size_t size = f != NULL ? sidestep_dtype_size(f->dtype) : 0;

    return codec != NULL && codec->chunks != NULL && size != 0 && !f->is_object &&
           item->blocks != NULL && f->raw_bytes > CODEC_CHUNK_BYTES && f->raw_bytes % size == 0;
}

enum sidestep_status compressed_item_open(const struct reader_item *item, bool all,
                                          struct compressed_item *out, struct sidestep_error *err)
{
    const struct footer_item *f = item->footer;
    const struct codec *codec = item->transform != NULL ? codec_find(item->transform) : NULL;
    struct sidestep_error why = {0};

    *out = (struct compressed_item){.item = item};
    if (!has_chunks(item, codec))
        return SIDESTEP_OK;
    out->raw = (struct codec_item){
        .data_offset = f->data_offset, .data_bytes = f->raw_bytes, .dtype = f->dtype};
    out->count = codec_chunk_count(f->raw_bytes);
    /* The index has 4 bytes for each chunk. */
    if (out->count > item->bytes / 4)
        return SIDESTEP_OK;
    out->places = memory_new(out->count + 1, sizeof(*out->places));
    out->hashes = all ? memory_new(out->count, sizeof(*out->hashes)) : NULL;
    if (out->places == NULL || (all && out->hashes == NULL)) {
        compressed_item_close(out);
        return FAIL_NOMEM(err, out->count * sizeof(*out->places));
    }
    atomic_init(&out->left, out->count);
    enum sidestep_status status = codec->chunks->locate(
        &out->raw, &item->file->source, item->offset, item->bytes, out->places, &why);
    if (status == SIDESTEP_OK)
        out->chunks = codec->chunks;
    else
        compressed_item_close(out);
    if (status == SIDESTEP_ENOMEM)
        error_copy(err, &why);
    return status == SIDESTEP_ENOMEM ? status : SIDESTEP_OK;
}

void compressed_item_close(struct compressed_item *compressed)
{
    free(compressed->places);
    free(compressed->hashes);
    *compressed = (struct compressed_item){.item = compressed->item};
}

uint64_t compressed_item_next_range(const struct compressed_item *compressed, uint64_t first,
                                    uint64_t end, uint64_t *file_begin, uint64_t *file_end)
{
    const struct reader_item *item = compressed->item;
    uint64_t begin = round_down(compressed->places[first], HASH_BLOCK_BYTES), last = first + 1;

    assert(first < end && end <= compressed->count);
    while (last < end && compressed->places[last + 1] - begin <= COMPRESSED_ITEM_READ_BYTES)
        last++;
    *file_begin = item->offset + begin;
    *file_end =
        item->offset + min_u64(round_up(compressed->places[last], HASH_BLOCK_BYTES), item->bytes);
    return last;
}

/* After all chunks were decoded: check the hash of the decoded bytes. */
static enum sidestep_status check_hash(const struct compressed_item *compressed,
                                       struct sidestep_error *err)
{
    const struct footer_item *f = compressed->item->footer;
    struct hash128 hash = hash_block_list(compressed->hashes, compressed->count);

    if (!hash128_equal(hash, f->raw_hash))
        return FAIL(err, SIDESTEP_ECORRUPT, "the decoded bytes do not match their hash");
    return SIDESTEP_OK;
}

static enum sidestep_status decode_one(struct compressed_item *compressed,
                                       struct compressed_item_decoder *decoder, uint64_t i,
                                       const uint8_t *bytes, const struct reader_sink *sink,
                                       struct sidestep_error *err)
{
    uint64_t begin = i * CODEC_CHUNK_BYTES;
    size_t length = (size_t)min_u64(CODEC_CHUNK_BYTES, compressed->raw.data_bytes - begin);
    size_t stored = (size_t)(compressed->places[i + 1] - compressed->places[i]);
    uint8_t *to = sink->plain != NULL ? sink->plain + begin : decoder->bytes;

    TRY(compressed->chunks->decode(decoder->codec_decoder, &compressed->raw, bytes, stored, to,
                                   length, err));
    if (compressed->hashes != NULL)
        compressed->hashes[i] = hash_block(to, length);
    if (sink->plain == NULL)
        TRY(sink->put(sink->context, begin, to, length, err));
    return SIDESTEP_OK;
}

enum sidestep_status compressed_item_decode(struct compressed_item *compressed,
                                            struct compressed_item_decoders *decoders,
                                            uint64_t first, uint64_t end, const uint8_t *bytes,
                                            const struct reader_sink *sink,
                                            struct sidestep_error *err)
{
    uint64_t begin = round_down(compressed->places[first], HASH_BLOCK_BYTES);
    uint64_t stored_end =
        min_u64(round_up(compressed->places[end], HASH_BLOCK_BYTES), compressed->item->bytes);
    enum sidestep_status status = SIDESTEP_OK;
    struct compressed_item_decoder *decoder;

    TRY(reader_check_blocks(compressed->item, begin / HASH_BLOCK_BYTES, bytes, stored_end - begin,
                            err));
    TRY(take_decoder(decoders, compressed->chunks, &decoder, err));
    for (uint64_t i = first; i < end && status == SIDESTEP_OK; i++)
        status =
            decode_one(compressed, decoder, i, bytes + (compressed->places[i] - begin), sink, err);
    return_decoder(decoders, decoder);
    TRY(status);
    /* The thread that decodes the last chunk sees the hashes of all others. */
    if (atomic_fetch_sub(&compressed->left, end - first) == end - first &&
        compressed->hashes != NULL)
        return check_hash(compressed, err);
    return SIDESTEP_OK;
}
