/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.h -- allocates memory; nothing else in the library calls malloc.
 *
 * Allocation can fail, is a fault point ("memory"), and never aborts.  An arena holds the structs
 * of one operation, and is freed as a whole.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zeroed memory, to be freed with free().  NULL: out of memory, or count * size overflows. */
void *memory_new(size_t count, size_t size);
/* As reallocarray(3): on failure the old block stays valid.  New bytes are not zeroed. */
void *memory_resize(void *block, size_t count, size_t size);
char *memory_strdup(const char *text);
/* Make room for item ${count} of ${array}, which has ${*capacity} items.  Returns the array, which
 * may have moved.  NULL: out of memory, and ${array} stays valid. */
void *memory_grow(void *array, size_t *capacity, size_t count, size_t item_bytes);
/* The same for a typed array and its capacity.  On failure the calling function returns ENOMEM. */
#define TRY_GROW(array, capacity, count, err)                                                      \
    do {                                                                                           \
        void *grown_ = memory_grow((array), &(capacity), (count), sizeof(*(array)));               \
        if (grown_ == NULL)                                                                        \
            return FAIL_NOMEM((err), ((count) + 1) * sizeof(*(array)));                            \
        (array) = grown_;                                                                          \
    } while (0)

/* Memory from an arena is zeroed, aligned to 16 bytes, and lives until arena_release().  A zeroed
 * arena is valid and empty. */
struct arena {
    struct arena_block *blocks;
    size_t used_bytes;
    size_t limit_bytes; /* of ${used_bytes}; 0: no limit */
};
void *arena_new(struct arena *arena, size_t count, size_t size);
/* Make room for ${count} items of ${array}, which is in ${arena} and has ${*capacity} items.
 * Returns the array, which may have moved.  The arena keeps the old arrays, which together are
 * smaller than the new one.  Large arrays lie on huge pages.  NULL: out of memory. */
void *arena_reserve(struct arena *arena, void *array, size_t *capacity, size_t count,
                    size_t item_bytes);
/* The same for a typed array and its capacity.  On failure the calling function returns ENOMEM. */
#define TRY_RESERVE(arena, array, capacity, count, err)                                            \
    do {                                                                                           \
        void *reserved_ = arena_reserve((arena), (array), &(capacity), (count), sizeof(*(array))); \
        if (reserved_ == NULL)                                                                     \
            return FAIL_NOMEM((err), (count) * sizeof(*(array)));                                  \
        (array) = reserved_;                                                                       \
    } while (0)
char *arena_strndup(struct arena *arena, const char *text, size_t length);
/* Copy ${text}; NULL and "" become NULL. */
enum sidestep_status arena_copy_text(struct arena *arena, const char *text, const char **copy,
                                     struct sidestep_error *err);
void *arena_copy(struct arena *arena, const void *bytes, size_t length);
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Move all memory of ${from} to ${arena}, which has no limit.  Afterwards ${from} is empty. */
void arena_adopt(struct arena *arena, struct arena *from);
void arena_release(struct arena *arena);
#define OWNED_ARENA __attribute__((cleanup(arena_release))) struct arena

#endif
