/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c -- allocations that end the process if they fail: see memory.h for the reason. */
#include "memory.h"

#include <sidestep/sidestep.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_memory_exhausted(void)
{
    dprintf(STDERR_FILENO, "sidestep: out of memory\n");
    _exit(sidestep_status_exit(SIDESTEP_ENOMEM));
}

void *cli_memory_alloc(size_t bytes)
{
    void *block = malloc(bytes > 0 ? bytes : 1);

    if (block == NULL)
        cli_memory_exhausted();
    return block;
}

void *cli_memory_resize(void *block, size_t count, size_t size)
{
    void *resized = reallocarray(block, count > 0 ? count : 1, size);

    if (resized == NULL)
        cli_memory_exhausted();
    return resized;
}

char *cli_memory_copy(const char *text, size_t length)
{
    char *copy = cli_memory_alloc(length + 1);

    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

FILE *cli_memory_stream(char **text, size_t *length)
{
    FILE *stream = open_memstream(text, length);

    if (stream == NULL)
        cli_memory_exhausted();
    return stream;
}

void cli_memory_stream_close(FILE *stream)
{
    bool failed = ferror(stream) != 0;

    if (fclose(stream) != 0 || failed)
        cli_memory_exhausted();
}
