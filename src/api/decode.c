/* SPDX-License-Identifier: BSD-3-Clause */
/* decode.c -- sidestep_decode(): decodes items for programs that read checkpoint files themselves.
 */
#include "base/base.h"
#include "codec/codec.h"
#include "sidestep/sidestep_tools.h"

struct decoded_bytes {
    struct codec_sink sink;
    struct buffer bytes;
};

static enum sidestep_status put(struct codec_sink *sink, const uint8_t *bytes, size_t length,
                                struct sidestep_error *err)
{
    struct decoded_bytes *out = (struct decoded_bytes *)sink;

    buffer_put(&out->bytes, bytes, length);
    return buffer_check(&out->bytes, err);
}

static void release(struct decoded_bytes *out)
{
    buffer_release(&out->bytes);
}

enum sidestep_status sidestep_decode(const char *transform, const void *stored, size_t length,
                                     uint64_t most, void **bytes, size_t *bytes_length,
                                     struct sidestep_error *err)
{
    OWNED_BY(release) struct decoded_bytes out = {.sink = {put}};
    struct codec_memory_input in;

    if (transform == NULL || (stored == NULL && length != 0) || bytes == NULL ||
        bytes_length == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "transform, stored, bytes or bytes_length is NULL");
    const struct codec *codec = codec_find(transform);
    if (codec == NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "transform '%s'", transform);
    codec_memory_input_init(&in, stored, length);
    TRY(codec->decode(codec, &in.input, most, &out.sink, err));
    *bytes = TAKE(out.bytes.bytes);
    *bytes_length = out.bytes.length;
    return SIDESTEP_OK;
}
