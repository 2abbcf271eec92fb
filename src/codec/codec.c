/* SPDX-License-Identifier: BSD-3-Clause */
/* codec.c -- see codec.h: finds codecs, and reads their inputs. */
#include "codec/codec.h"

#include <string.h>

#include "base/base.h"
#include "codec/codec_custom.h"

static const struct codec *const codecs[] = {&codec_zstd, &codec_planes};

const struct codec *codec_find(const char *descriptor)
{
    for (size_t i = 0; i < ARRAY_LENGTH(codecs); i++)
        if (strcmp(codecs[i]->descriptor, descriptor) == 0)
            return codecs[i];
    return codec_custom_find(descriptor);
}

enum sidestep_status codec_input_read(struct codec_input *input, void *to, size_t bytes,
                                      struct sidestep_error *err)
{
    uint8_t *at = to;

    if (bytes > input->left)
        return FAIL(err, SIDESTEP_ECORRUPT, "the stored bytes end %llu bytes early",
                    (unsigned long long)(bytes - input->left));
    while (bytes != 0) {
        const uint8_t *piece;
        size_t length;
        TRY(input->take(input, bytes, &piece, &length, err));
        memcpy(at, piece, length);
        at += length;
        bytes -= length;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status take_memory(struct codec_input *input, size_t max,
                                        const uint8_t **bytes, size_t *length,
                                        struct sidestep_error *err)
{
    struct codec_memory_input *in = (struct codec_memory_input *)input;

    (void)err;
    *length = (size_t)min_u64(max, input->left);
    *bytes = in->bytes;
    in->bytes += *length;
    input->left -= *length;
    return SIDESTEP_OK;
}

void codec_memory_input_init(struct codec_memory_input *in, const void *bytes, size_t length)
{
    *in =
        (struct codec_memory_input){.input = {.left = length, .take = take_memory}, .bytes = bytes};
}
