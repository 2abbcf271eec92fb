/* SPDX-License-Identifier: BSD-3-Clause */
/* planes_fuzz.c -- items of any contents for both stream decoders; what comes out stays within its
 * limit. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(&codec_planes, data, size);
    decode(&codec_zstd, data, size);
    return 0;
}
