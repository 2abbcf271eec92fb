/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * codec_skeleton.c -- an example of a codec: it encodes runs of zeroes, as sparse gradients and
 * masks have them.
 *
 * A stored item is a sequence of records: the number of literal bytes (4 bytes, little-endian),
 * the number of zeroes after them (4 bytes), the literal bytes. Records do not depend on each
 * other, so records of parts that several threads have encoded can be concatenated.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "skeletons.h"

#define RECORD_BYTES 8u
#define MIN_RUN 32u /* shorter runs get no record, so that a part grows by at most one record */

static void put_word(uint8_t *to, size_t word)
{
    for (unsigned i = 0; i < 4; i++)
        to[i] = (uint8_t)(word >> (8 * i));
}

static uint32_t get_word(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static size_t zeroes_at(const uint8_t *bytes, size_t length)
{
    size_t n = 0;

    while (n < length && bytes[n] == 0)
        n++;
    return n;
}

/* The offset of the next run of at least MIN_RUN zeroes; ${length}: there is none. */
static size_t find_run(const uint8_t *bytes, size_t at, size_t length, size_t *zeroes)
{
    while (at < length) {
        *zeroes = zeroes_at(bytes + at, length - at);
        if (*zeroes >= MIN_RUN)
            return at;
        at += *zeroes + 1;
    }
    *zeroes = 0;
    return length;
}

/* Parts have a few MiB, so 4 bytes are enough for any length. */
static enum sidestep_status encode(void *context, void *encoder,
                                   const struct sidestep_codec_item *item, const void *part,
                                   uint64_t begin, size_t length,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_codec_output *index, struct sidestep_error *err)
{
    const uint8_t *bytes = part;
    uint8_t record[RECORD_BYTES];
    enum sidestep_status status = SIDESTEP_OK;

    (void)context, (void)encoder, (void)item, (void)begin, (void)index;
    for (size_t at = 0; status == SIDESTEP_OK && at < length;) {
        size_t zeroes, end = find_run(bytes, at, length, &zeroes);
        put_word(record, end - at);
        put_word(record + 4, zeroes);
        status = sidestep_codec_put(output, record, RECORD_BYTES, err);
        if (status == SIDESTEP_OK)
            status = sidestep_codec_put(output, bytes + at, end - at, err);
        at = end + zeroes;
    }
    return status;
}

/* Take ${length} stored bytes, and copy them to ${to}; NULL: to the output. */
static enum sidestep_status copy_stored(struct sidestep_codec_input *input, size_t length,
                                        uint8_t *to, struct sidestep_codec_output *output,
                                        struct sidestep_error *err)
{
    while (length != 0) {
        const void *some;
        size_t n;
        enum sidestep_status status = sidestep_codec_take(input, length, &some, &n, err);
        if (status == SIDESTEP_OK && to == NULL)
            status = sidestep_codec_put(output, some, n, err);
        if (status != SIDESTEP_OK)
            return status;
        if (to != NULL) {
            memcpy(to, some, n);
            to += n;
        }
        length -= n;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status put_zeroes(uint32_t count, struct sidestep_codec_output *output,
                                       struct sidestep_error *err)
{
    static const uint8_t zeroes[4096];

    while (count != 0) {
        uint32_t n = count < sizeof(zeroes) ? count : (uint32_t)sizeof(zeroes);
        enum sidestep_status status = sidestep_codec_put(output, zeroes, n, err);
        if (status != SIDESTEP_OK)
            return status;
        count -= n;
    }
    return SIDESTEP_OK;
}

/* sidestep_codec_put() limits the output, whatever the records say. */
static enum sidestep_status decode(void *context, struct sidestep_codec_input *input, uint64_t most,
                                   struct sidestep_codec_output *output, struct sidestep_error *err)
{
    (void)context, (void)most;
    while (sidestep_codec_left(input) != 0) {
        uint8_t record[RECORD_BYTES];
        enum sidestep_status status = copy_stored(input, RECORD_BYTES, record, NULL, err);
        if (status == SIDESTEP_OK && get_word(record) == 0 && get_word(record + 4) == 0) {
            snprintf(err->message, sizeof(err->message), "a record is empty");
            return SIDESTEP_ECORRUPT;
        }
        if (status == SIDESTEP_OK)
            status = copy_stored(input, get_word(record), NULL, output, err);
        if (status == SIDESTEP_OK)
            status = put_zeroes(get_word(record + 4), output, err);
        if (status != SIDESTEP_OK)
            return status;
    }
    return SIDESTEP_OK;
}

const struct sidestep_codec codec_skeleton = {
    .struct_size = sizeof(codec_skeleton),
    .descriptor = "skeleton.zeroes/1",
    .encode = encode,
    .decode = decode,
};
