/* SPDX-License-Identifier: BSD-3-Clause */
/* file_memory.h -- tells which memory is of mapped files: somebody may cut such a file, and then a
 * load from its memory is a SIGBUS. */
#ifndef SNAPSHOT_FILE_MEMORY_H
#define SNAPSHOT_FILE_MEMORY_H

#include "snapshot/memory_map.h"

/* The mappings of this process at one moment. */
struct file_memory {
    struct memory_map_files files;
    struct buffer ranges; /* where the kernel does not answer questions: all of them, by address */
    bool asks;
    bool unknown; /* without an answer, any memory may be of a file */
};

void file_memory_open(struct file_memory *memory);
void file_memory_close(struct file_memory *memory);
/* Is some of the ${bytes} at ${begin} of a mapped file? */
bool file_memory_has(struct file_memory *memory, uint64_t begin, uint64_t bytes);

#endif
