/* SPDX-License-Identifier: BSD-3-Clause */
/* compressed_item.c -- decodes single chunks of compressed items; see compressed_item.h. */
#include "load/compressed_item.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"

_Static_assert(CODEC_CHUNK_BYTES == HASH_BLOCK_BYTES, "a chunk, decoded, is a block with a hash");

struct compressed_item_decoder {
    struct compressed_item_decoder *next;
    const struct codec_chunk_ops *chunks; /* the codec of this decoder */
    struct codec_decoder *decoder;
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
    for (struct compressed_item_decoder *bench = decoders->free, *next; bench != NULL;
         bench = next) {
        next = bench->next;
        bench->chunks->decoder_free(bench->decoder);
        free(bench);
    }
    lock_destroy(&decoders->lock);
}

static enum sidestep_status take_bench(struct compressed_item_decoders *decoders,
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
    struct compressed_item_decoder *bench = memory_resize(NULL, 1, sizeof(*bench));
    if (bench == NULL)
        return FAIL_NOMEM(err, sizeof(*bench));
    bench->chunks = chunks;
    enum sidestep_status status = chunks->decoder_new(&bench->decoder, err);
    if (status != SIDESTEP_OK) {
        free(bench);
        return status;
    }
    *out = bench;
    return SIDESTEP_OK;
}

static void give_bench(struct compressed_item_decoders *decoders,
                       struct compressed_item_decoder *bench)
{
    lock_acquire(&decoders->lock);
    bench->next = decoders->free;
    decoders->free = bench;
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

void compressed_item_close(struct compressed_item *coded)
{
    free(coded->places);
    free(coded->hashes);
    *coded = (struct compressed_item){.item = coded->item};
}

uint64_t compressed_item_next_range(const struct compressed_item *coded, uint64_t first,
                                    uint64_t end, uint64_t *file_begin, uint64_t *file_end)
{
    const struct reader_item *item = coded->item;
    uint64_t begin = round_down(coded->places[first], HASH_BLOCK_BYTES), last = first + 1;

    assert(first < end && end <= coded->count);
    while (last < end && coded->places[last + 1] - begin <= COMPRESSED_ITEM_READ_BYTES)
        last++;
    *file_begin = item->offset + begin;
    *file_end =
        item->offset + min_u64(round_up(coded->places[last], HASH_BLOCK_BYTES), item->bytes);
    return last;
}

/* After all chunks were decoded: check the hash of the decoded bytes. */
static enum sidestep_status check_hash(const struct compressed_item *coded,
                                       struct sidestep_error *err)
{
    const struct footer_item *f = coded->item->footer;
    struct hash128 hash = hash_block_list(coded->hashes, coded->count);

    if (hash.low != f->raw_hash.low || hash.high != f->raw_hash.high)
        return FAIL(err, SIDESTEP_ECORRUPT, "the decoded bytes do not match their hash");
    return SIDESTEP_OK;
}

static enum sidestep_status decode_one(struct compressed_item *coded,
                                       struct compressed_item_decoder *bench, uint64_t i,
                                       const uint8_t *bytes, const struct reader_sink *place,
                                       struct sidestep_error *err)
{
    uint64_t begin = i * CODEC_CHUNK_BYTES;
    size_t length = (size_t)min_u64(CODEC_CHUNK_BYTES, coded->raw.data_bytes - begin);
    size_t stored = (size_t)(coded->places[i + 1] - coded->places[i]);
    uint8_t *to = place->plain != NULL ? place->plain + begin : bench->bytes;

    TRY(coded->chunks->decode(bench->decoder, &coded->raw, bytes, stored, to, length, err));
    if (coded->hashes != NULL)
        coded->hashes[i] = hash_block(to, length);
    if (place->plain == NULL)
        TRY(place->put(place->context, begin, to, length, err));
    return SIDESTEP_OK;
}

enum sidestep_status compressed_item_decode(struct compressed_item *coded,
                                            struct compressed_item_decoders *decoders,
                                            uint64_t first, uint64_t end, const uint8_t *bytes,
                                            const struct reader_sink *place,
                                            struct sidestep_error *err)
{
    uint64_t begin = round_down(coded->places[first], HASH_BLOCK_BYTES);
    uint64_t stored_end =
        min_u64(round_up(coded->places[end], HASH_BLOCK_BYTES), coded->item->bytes);
    enum sidestep_status status = SIDESTEP_OK;
    struct compressed_item_decoder *bench;

    TRY(reader_check_blocks(coded->item, begin / HASH_BLOCK_BYTES, bytes, stored_end - begin, err));
    TRY(take_bench(decoders, coded->chunks, &bench, err));
    for (uint64_t i = first; i < end && status == SIDESTEP_OK; i++)
        status = decode_one(coded, bench, i, bytes + (coded->places[i] - begin), place, err);
    give_bench(decoders, bench);
    TRY(status);
    /* The thread that decodes the last chunk sees the hashes of all others. */
    if (atomic_fetch_sub(&coded->left, end - first) == end - first && coded->hashes != NULL)
        return check_hash(coded, err);
    return SIDESTEP_OK;
}
