/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.h -- memory of the command line.  A command that cannot allocate a few kilobytes has
 * nothing to clean up, so these functions then end the process with a message.
 */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include <stddef.h>
#include <stdio.h>

/** cli_memory_exhausted(): report that memory is exhausted, and end the process. */
void cli_memory_exhausted(void) __attribute__((noreturn));

/** Never NULL; free it with free(). */
void *cli_memory_alloc(size_t bytes);
void *cli_memory_resize(void *block, size_t count, size_t size);
/** cli_memory_copy(text, length): the first ${length} bytes of ${text}, and a NUL. */
char *cli_memory_copy(const char *text, size_t length);
/** cli_memory_stream(&text, &length): a stream into memory.  ${*text} is valid after
 * cli_memory_stream_close(); the caller frees it. */
FILE *cli_memory_stream(char **text, size_t *length);
void cli_memory_stream_close(FILE *stream);

#endif
