/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cursor.h -- reads untrusted bytes, and never past their end.
 *
 * Each get moves forward or fails.  After the first failure all later gets return zero, so a parser
 * may read a whole header and check `overrun` once.  Pointer arithmetic on input is only here.
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
    const uint8_t *bytes;
    size_t length;
    size_t position; /* <= length, always */
    bool overrun;
};

static inline struct cursor cursor_from_memory(const void *bytes, size_t length)
{
    return (struct cursor){.bytes = (const uint8_t *)bytes, .length = length};
}

static inline size_t cursor_remaining(const struct cursor *c)
{
    return c->overrun ? 0 : c->length - c->position;
}

/* The next ${n} bytes, or NULL. */
static inline const uint8_t *cursor_take(struct cursor *c, size_t n)
{
    if (c->overrun || n > c->length - c->position) {
        c->overrun = true;
        return NULL;
    }
    c->position += n;
    return c->bytes + c->position - n;
}

/* A number of 0 to 8 bytes. */
static inline uint64_t cursor_le(struct cursor *c, unsigned bytes)
{
    const uint8_t *p = cursor_take(c, bytes);
    uint64_t value = 0;

    for (unsigned i = bytes; p != NULL && i-- > 0;)
        value = value << 8 | p[i];
    return value;
}
static inline uint8_t cursor_u8(struct cursor *c)
{
    return (uint8_t)cursor_le(c, 1);
}
static inline uint16_t cursor_u16le(struct cursor *c)
{
    return (uint16_t)cursor_le(c, 2);
}
static inline uint32_t cursor_u32le(struct cursor *c)
{
    return (uint32_t)cursor_le(c, 4);
}
static inline uint64_t cursor_u64le(struct cursor *c)
{
    return cursor_le(c, 8);
}

#endif
