/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.c -- see buffer.h. */
#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define BUFFER_MIN_BYTES 256u

void buffer_release(struct buffer *b)
{
    free(b->bytes);
    *b = (struct buffer){0};
}

void buffer_wipe(struct buffer *b)
{
    if (b->bytes != NULL)
        explicit_bzero(b->bytes, b->capacity);
    buffer_release(b);
}

uint8_t *buffer_extend_slow(struct buffer *b, size_t n)
{
    if (b->failed || n > SIZE_MAX / 4 - b->length) {
        b->failed = true;
        return NULL;
    }
    if (b->bytes == NULL || n > b->capacity - b->length) {
        size_t want = b->capacity * 2 > BUFFER_MIN_BYTES ? b->capacity * 2 : BUFFER_MIN_BYTES;
        if (want < b->length + n)
            want = b->length + n;
        uint8_t *bytes = memory_resize(b->bytes, want, 1);
        if (bytes == NULL) {
            b->failed = true;
            return NULL;
        }
        b->bytes = bytes;
        b->capacity = want;
    }
    b->length += n;
    return b->bytes + b->length - n;
}

static void buffer_put_le(struct buffer *b, uint64_t v, unsigned bytes)
{
    uint8_t *to = buffer_extend(b, bytes);

    for (unsigned i = 0; to != NULL && i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

void buffer_put_u8(struct buffer *b, uint8_t v)
{
    buffer_put_le(b, v, 1);
}
void buffer_put_u16le(struct buffer *b, uint16_t v)
{
    buffer_put_le(b, v, 2);
}
void buffer_put_u32le(struct buffer *b, uint32_t v)
{
    buffer_put_le(b, v, 4);
}
void buffer_put_u64le(struct buffer *b, uint64_t v)
{
    buffer_put_le(b, v, 8);
}
void buffer_put_text(struct buffer *b, const char *text)
{
    buffer_put(b, text, strlen(text));
}

void buffer_printf(struct buffer *b, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *to = length >= 0 ? (char *)buffer_extend(b, (size_t)length + 1) : NULL;
    if (to == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(to, (size_t)length + 1, fmt, args);
    va_end(args);
    b->length--; /* without the NUL */
}

enum sidestep_status buffer_check(const struct buffer *b, struct sidestep_error *err)
{
    return b->failed ? FAIL_NOMEM(err, b->length + 1) : SIDESTEP_OK;
}
