/* SPDX-License-Identifier: BSD-3-Clause */
/* planes_fuzz.c -- feeds any item to both stream decoders, and to the one that decodes chunks one
 * by one; the output must stay within its limit. */
#include <assert.h>
#include <stdlib.h>

#include "codec/codec.h"

#define MAX_BYTES ((uint64_t)4 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct counting {
    struct codec_sink sink;
    uint64_t bytes;
};

static enum sidestep_status put(struct codec_sink *sink, const uint8_t *bytes, size_t length,
                                struct sidestep_error *err)
{
    struct counting *counting = (struct counting *)sink;

    (void)bytes, (void)err;
    counting->bytes += length;
    return SIDESTEP_OK;
}

static void decode(const struct codec *codec, const uint8_t *data, size_t size)
{
    struct counting counting = {.sink = {put}};
    struct codec_memory_input in;
    struct sidestep_error err = {0};

    codec_memory_input_init(&in, data, size);
    enum sidestep_status status = codec->decode(codec, &in.input, MAX_BYTES, &counting.sink, &err);
    assert(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT ||
           status == SIDESTEP_EUNSUPPORTED || status == SIDESTEP_ENOMEM);
    assert(counting.bytes <= MAX_BYTES);
    assert(status != SIDESTEP_OK || in.input.left == 0);
}

/* Decode it as the item of a tensor of the size in the header, as far as possible. */
static void decode_chunks(const uint8_t *data, size_t size)
{
    static uint8_t chunk[CODEC_CHUNK_BYTES];
    const struct codec_chunk_ops *chunks = codec_planes.chunks;
    static const enum sidestep_dtype dtypes[] = {SIDESTEP_UINT8, SIDESTEP_BFLOAT16,
                                                 SIDESTEP_FLOAT32, SIDESTEP_FLOAT64};
    struct source source = source_from_memory(data, size);
    struct codec_item item = {.dtype = dtypes[size % 4], .data_bytes = CODEC_CHUNK_BYTES + 16};
    struct codec_decoder *decoder = NULL;
    uint64_t places[3];

    if (size > 40)
        memcpy(&item.data_offset, data + 32, sizeof(item.data_offset));
    if (size % 8 > 3)
        item.data_bytes = 16;
    uint64_t count = codec_chunk_count(item.data_bytes);
    if (chunks->locate(&item, &source, 0, size, places, NULL) != SIDESTEP_OK ||
        chunks->decoder_new(&decoder, NULL) != SIDESTEP_OK)
        return;
    assert(places[0] <= places[1] && places[count] <= size);
    for (uint64_t i = 0; i < count; i++)
        (void)chunks->decode(
            decoder, &item, data + places[i], (size_t)(places[i + 1] - places[i]), chunk,
            (size_t)min_u64(CODEC_CHUNK_BYTES, item.data_bytes - i * CODEC_CHUNK_BYTES), NULL);
    chunks->decoder_free(decoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode_chunks(data, size);
    decode(&codec_planes, data, size);
    decode(&codec_zstd, data, size);
    return 0;
}
