/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c -- see memory.h. */
#include "base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/fault.h"

#define MIN_ARRAY_CAPACITY 64u
#define ARENA_BLOCK_BYTES ((size_t)4 << 10)
#define ARENA_MAX_BLOCK_BYTES ((size_t)2 << 20) /* of a block for many small allocations */
#define ARENA_HUGE_BYTES ((size_t)2 << 20)
#define ARENA_ALIGN 16u

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t size;
    size_t mapped; /* bytes of the block's own mapping; 0: malloc() made it */
    _Alignas(ARENA_ALIGN) unsigned char bytes[];
};

void *memory_new(size_t count, size_t size)
{
    if (fault_hit("memory"))
        return NULL;
    return calloc(count != 0 ? count : 1, size != 0 ? size : 1);
}

void *memory_resize(void *block, size_t count, size_t size)
{
    if (fault_hit("memory"))
        return NULL;
    return reallocarray(block, count != 0 ? count : 1, size != 0 ? size : 1);
}

void *memory_grow(void *array, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity)
        return array;
    size_t wanted = max_u64(*capacity != 0 ? *capacity * 2 : MIN_ARRAY_CAPACITY, count + 1);
    void *grown = memory_resize(array, wanted, item_bytes);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

char *memory_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = memory_new(1, bytes);

    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

/* Map a block on its own, with huge pages.  A load of 100,000 tensors touches each page of its
 * arenas once and frees them; with pages of 4 KiB this takes a fifth of the load's time.  The heap
 * belongs to the program, so we do not ask for huge pages there. */
static struct arena_block *map_block(size_t bytes)
{
    size_t mapped = (size_t)round_up(bytes, ARENA_HUGE_BYTES);
    struct arena_block *block;

    if (fault_hit("memory"))
        return NULL;
    block = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    (void)madvise(block, mapped, MADV_HUGEPAGE);
    block->mapped = mapped;
    block->size = mapped - sizeof(*block);
    return block;
}

static void free_block(struct arena_block *block)
{
    if (block->mapped != 0)
        (void)munmap(block, block->mapped);
    else
        free(block);
}

static struct arena_block *new_block(size_t size)
{
    struct arena_block *block;

    if (size > SIZE_MAX / 2)
        return NULL;
    if (sizeof(*block) + size >= ARENA_HUGE_BYTES)
        return map_block(sizeof(*block) + size);
    block = memory_new(1, sizeof(*block) + size);
    if (block != NULL)
        block->size = size;
    return block;
}

/* The size of the next block: blocks grow with the arena, up to a limit. */
static size_t block_bytes(const struct arena *arena)
{
    size_t size = ARENA_BLOCK_BYTES;

    while (size < ARENA_MAX_BLOCK_BYTES && size * 4 <= arena->used_bytes)
        size *= 2;
    return size < ARENA_MAX_BLOCK_BYTES ? size : size - sizeof(struct arena_block);
}

static struct arena_block *arena_grow(struct arena *arena, size_t bytes)
{
    size_t usual = block_bytes(arena);
    bool is_large = bytes > usual / 4;
    struct arena_block *block = new_block(is_large ? bytes : usual);

    if (block == NULL)
        return NULL;
    /* A large allocation gets a block of its own, behind the block that is being filled. */
    if (is_large && arena->blocks != NULL) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *arena_new(struct arena *arena, size_t count, size_t size)
{
    uint64_t bytes;

    if (!checked_mul(count, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = round_up(bytes != 0 ? bytes : 1, ARENA_ALIGN);
    if (arena->limit_bytes != 0 && bytes > arena->limit_bytes - arena->used_bytes)
        return NULL;
    struct arena_block *block = arena->blocks;
    if (block == NULL || bytes > block->size - block->used)
        block = arena_grow(arena, bytes);
    if (block == NULL)
        return NULL;
    void *p = block->bytes + block->used;
    block->used += bytes;
    arena->used_bytes += bytes;
    return p;
}

void *arena_reserve(struct arena *arena, void *array, size_t *capacity, size_t count,
                    size_t item_bytes)
{
    size_t wanted = max_u64(count, *capacity != 0 ? *capacity * 2 : MIN_ARRAY_CAPACITY);

    if (array != NULL && count <= *capacity)
        return array;
    void *grown = arena_new(arena, wanted, item_bytes);
    if (grown == NULL)
        return NULL;
    if (array != NULL)
        memcpy(grown, array, *capacity * item_bytes);
    *capacity = wanted;
    return grown;
}

char *arena_strndup(struct arena *arena, const char *text, size_t length)
{
    char *copy = arena_new(arena, length + 1, 1);

    if (copy != NULL && length != 0)
        memcpy(copy, text, length);
    return copy;
}

enum sidestep_status arena_copy_text(struct arena *arena, const char *text, const char **copy,
                                     struct sidestep_error *err)
{
    *copy = NULL;
    if (text == NULL || text[0] == '\0')
        return SIDESTEP_OK;
    *copy = arena_strndup(arena, text, strlen(text));
    return *copy != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(text) + 1);
}

void *arena_copy(struct arena *arena, const void *bytes, size_t length)
{
    void *copy = arena_new(arena, length, 1);

    if (copy != NULL && length != 0)
        memcpy(copy, bytes, length);
    return copy;
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;

    va_start(args, fmt);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length >= 0)
        text = arena_new(arena, (size_t)length + 1, 1);
    if (text != NULL) {
        va_start(args, fmt);
        vsnprintf(text, (size_t)length + 1, fmt, args);
        va_end(args);
    }
    return text;
}

void arena_adopt(struct arena *arena, struct arena *from)
{
    struct arena_block **end = &arena->blocks;

    assert(arena->limit_bytes == 0);
    while (*end != NULL)
        end = &(*end)->next;
    *end = from->blocks;
    arena->used_bytes += from->used_bytes;
    from->blocks = NULL;
    from->used_bytes = 0;
}

void arena_release(struct arena *arena)
{
    struct arena_block *block = arena->blocks;

    while (block != NULL) {
        struct arena_block *next = block->next;
        free_block(block);
        block = next;
    }
    arena->blocks = NULL;
    arena->used_bytes = 0;
}
