/* SPDX-License-Identifier: BSD-3-Clause */
/* file_memory.c -- see file_memory.h. */
#include "snapshot/file_memory.h"

struct file_range {
    uint64_t begin;
    uint64_t end;
};

/* ${context}: a buffer of ranges, by address. */
static void add_range(void *context, uint64_t begin, uint64_t end)
{
    struct buffer *ranges = context;
    struct file_range range = {begin, end};

    buffer_put(ranges, &range, sizeof(range));
}

void file_memory_open(struct file_memory *memory)
{
    *memory = (struct file_memory){0};
    memory->asks = memory_map_files_open(&memory->files);
    memory->unknown =
        !memory->asks && (memory_map_read_files(add_range, &memory->ranges, NULL) != SIDESTEP_OK ||
                          memory->ranges.failed);
}

void file_memory_close(struct file_memory *memory)
{
    memory_map_files_close(&memory->files);
    buffer_release(&memory->ranges);
}

bool file_memory_has(struct file_memory *memory, uint64_t begin, uint64_t bytes)
{
    const struct file_range *ranges = (const struct file_range *)(void *)memory->ranges.bytes;
    size_t count = memory->ranges.length / sizeof(*ranges);
    size_t low = 0, high = count; /* the first one that ends behind ${begin} is in [low, high] */

    if (memory->asks)
        return memory_map_has_file(&memory->files, begin, begin + bytes);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return memory->unknown || (low < count && ranges[low].begin < begin + bytes);
}
