/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory_map.h -- reads from /proc/self/maps which memory of the process can be write-protected.
 *
 * That is writable private anonymous memory, except stacks.  Files and shared memory
 * have writers in other processes, and device mappings are written without faults.  Also reports
 * which memory is of files, which should have huge pages, and how much of it has them.
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
    MEMORY_MAP_STACK, /* of the main thread, or of the calling thread */
};

/* For example "its memory is shared", for a message; never NULL. */
const char *memory_map_kind_text(enum memory_map_kind kind);

/* Call ${each} for every mapping of the process, by ascending address. */
enum sidestep_status memory_map_read(void (*each)(void *context, uint64_t begin, uint64_t end,
                                                  enum memory_map_kind kind),
                                     void *context, struct sidestep_error *err);

/* Call ${each} for every mapping, and tell it whether the mapping is writable. */
enum sidestep_status memory_map_read_access(void (*each)(void *context, uint64_t begin,
                                                         uint64_t end, bool writable),
                                            void *context, struct sidestep_error *err);

/* Call ${each} for every mapping of a file that somebody can cut: of any file but a device. */
enum sidestep_status memory_map_read_files(void (*each)(void *context, uint64_t begin,
                                                        uint64_t end),
                                           void *context, struct sidestep_error *err);

/* Finds such mappings one at a time, since Linux 6.11: a program may have thousands of others. */
struct memory_map_files {
    int fd; /* of /proc/self/maps */
    /* Ranges without such a mapping, as far as the kernel was asked.  A state has few: the tensors
     * of the host's heap and those of a device lie between the same mappings. */
    struct memory_map_range {
        uint64_t begin, end;
    } safe[16];
    size_t safe_count, replaced; /* the first is replaced after the last */
};
/* False: the kernel cannot answer. */
bool memory_map_files_open(struct memory_map_files *files);
void memory_map_files_close(struct memory_map_files *files);
/* Is some of [begin, end) mapped from a file?  Without an answer: true. */
bool memory_map_has_file(struct memory_map_files *files, uint64_t begin, uint64_t end);

/* A mapping, and what it has to do with huge pages. */
struct memory_map_huge {
    uint64_t begin, end;
    uint64_t huge_bytes; /* on huge pages */
    bool asks;           /* MADV_HUGEPAGE */
    bool may;            /* private memory of no file, without MADV_NOHUGEPAGE */
};
/* Call ${each} for every mapping.  Slow: the kernel walks the pages of all of them. */
enum sidestep_status memory_map_read_huge(void (*each)(void *context,
                                                       const struct memory_map_huge *mapping),
                                          void *context, struct sidestep_error *err);

#endif
