/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory_map.h -- what kinds of memory the process has, as /proc/self/maps says: which of it can be
 * write-protected so that nobody gets by.  That is private anonymous memory, writable, and not a
 * stack: files and memory that is shared have writers in other processes, and devices in none.
 * And which of it is to have huge pages, and has.
 */
#ifndef SNAPSHOT_MEMORY_MAP_H
#define SNAPSHOT_MEMORY_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum memory_map_kind {
    MEMORY_MAP_PRIVATE, /* anonymous, writable */
    MEMORY_MAP_READ_ONLY,
    MEMORY_MAP_SHARED,
    MEMORY_MAP_FILE,
    MEMORY_MAP_STACK, /* of the first thread, or of the caller */
};

/* "it is shared", for a message; never NULL. */
const char *memory_map_kind_text(enum memory_map_kind kind);

/* Call ${each} for all mappings of the process, by ascending address. */
enum sidestep_status memory_map_read(void (*each)(void *context, uint64_t begin, uint64_t end,
                                                  enum memory_map_kind kind),
                                     void *context, struct sidestep_error *err);

/* The same, with whether it may be written. */
enum sidestep_status memory_map_read_access(void (*each)(void *context, uint64_t begin,
                                                         uint64_t end, bool writable),
                                            void *context, struct sidestep_error *err);

/* The same for mappings for which huge pages were asked (MADV_HUGEPAGE), with how many bytes are on
 * such.  It walks the pages of all mappings. */
enum sidestep_status memory_map_read_huge(void (*each)(void *context, uint64_t begin, uint64_t end,
                                                       uint64_t huge_bytes),
                                          void *context, struct sidestep_error *err);

#endif
