/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffer.h -- a growing byte buffer for encoders.  After a failed allocation all later puts do
 * nothing, so an encoder checks once, at the end, with buffer_check().
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

struct buffer {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
    bool failed;
};

void buffer_release(struct buffer *b);
/* Overwrite a secret, then release the buffer. */
void buffer_wipe(struct buffer *b);
#define OWNED_BUFFER __attribute__((cleanup(buffer_release))) struct buffer

/* Append ${n} bytes, which the caller fills.  NULL on failure. */
uint8_t *buffer_extend_slow(struct buffer *b, size_t n);
static inline uint8_t *buffer_extend(struct buffer *b, size_t n)
{
    if (b->bytes == NULL || b->failed || n > b->capacity - b->length)
        return buffer_extend_slow(b, n);
    b->length += n;
    return b->bytes + b->length - n;
}
static inline void buffer_put(struct buffer *b, const void *bytes, size_t n)
{
    uint8_t *to = buffer_extend(b, n);

    if (to != NULL && n != 0)
        memcpy(to, bytes, n);
}
void buffer_put_u8(struct buffer *b, uint8_t v);
void buffer_put_u16le(struct buffer *b, uint16_t v);
void buffer_put_u32le(struct buffer *b, uint32_t v);
void buffer_put_u64le(struct buffer *b, uint64_t v);
void buffer_put_text(struct buffer *b, const char *text); /* without the NUL */
void buffer_printf(struct buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum sidestep_status buffer_check(const struct buffer *b, struct sidestep_error *err);

#endif
