/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory_reader.h -- reads memory of this process that another thread may unmap at any time.
 *
 * Unmapped memory is an error, and not a signal.  Nothing is allocated, and no lock is acquired.
 */
#ifndef SNAPSHOT_MEMORY_READER_H
#define SNAPSHOT_MEMORY_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#define MEMORY_READER_BYTES ((size_t)128 << 10) /* at most, in one call; fits into the caches */
#define MEMORY_READER_PARTS 16u                 /* at most, in one call */

/* One for each thread that reads at the same time.  Zeroed: unused. */
struct memory_reader {
    bool opened;
    int pipe[2]; /* -1: none */
};

/* Copies ${count} parts, from[i] to to[i], which are equally long.  Returns 0 or an errno: EFAULT
 * if some of it cannot be read. */
int memory_reader_copy(struct memory_reader *reader, const struct iovec *to,
                       const struct iovec *from, size_t count);
void memory_reader_close(struct memory_reader *reader);

/* Is process_vm_readv(2) of this process itself allowed?  If not, returns false and sets errno. */
bool memory_reader_works(void);

#endif
