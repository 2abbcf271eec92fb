/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory_map.h -- what kinds of memory the process has, as /proc/self/maps says: which of it can be
 * write-protected so that nobody gets by.  That is private anonymous memory, writable, and not a
 * stack: files and memory that is shared have writers in other processes, and devices in none.
 */
#ifndef SNAPSHOT_MEMORY_MAP_H
#define SNAPSHOT_MEMORY_MAP_H

#include <stdint.h>

#include "base/error.h"

enum memory_kind {
    MEMORY_PRIVATE, /* anonymous, writable */
    MEMORY_READ_ONLY,
    MEMORY_SHARED,
    MEMORY_FILE,
    MEMORY_STACK, /* of the first thread, or of the caller */
};

/* "it is shared", for a message; never NULL. */
const char *memory_kind_text(enum memory_kind kind);

/* Call ${each} for all mappings of the process, by ascending address. */
enum sidestep_status memory_map_read(void (*each)(void *context, uint64_t begin, uint64_t end,
                                                  enum memory_kind kind),
                                     void *context, struct sidestep_error *err);

#endif
