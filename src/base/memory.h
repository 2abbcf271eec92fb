/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.h -- the only malloc.  Allocation can fail, is a fault point ("memory"), and never
 * aborts.  An arena holds the structure of one operation and is freed at once.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* NULL when memory is short or count * size overflows; zeroed.  Freed with free(). */
void *memory_new(size_t count, size_t size);
/* Like reallocarray(3); the old block stays valid on failure.  New bytes are not zeroed. */
void *memory_resize(void *block, size_t count, size_t size);
char *memory_strdup(const char *text);

/* Blocks from an arena are zeroed, aligned to 16, and live until arena_release().  A zeroed
 * arena is valid and empty.  ${limit}: total bytes it may take, 0: no limit. */
struct arena {
    struct arena_block *blocks;
    size_t used_bytes;
    size_t limit_bytes;
};
void *arena_new(struct arena *arena, size_t count, size_t size);
char *arena_strndup(struct arena *arena, const char *text, size_t length);
void *arena_copy(struct arena *arena, const void *bytes, size_t length);
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_release(struct arena *arena);
#define OWNED_ARENA __attribute__((cleanup(arena_release))) struct arena

#endif
