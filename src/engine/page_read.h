/* SPDX-License-Identifier: BSD-3-Clause */
/* page_read.h -- read a stretch of a file past the page cache, whatever its ends are. */
#ifndef ENGINE_PAGE_READ_H
#define ENGINE_PAGE_READ_H

#include "commit/reader.h"

/* A buffer needs this much more than the stretch. */
#define PAGE_READ_SLACK ((uint64_t)128 << 10)

/*
 * Bytes [begin, end) of ${file}: ${*bytes} says where in ${buffer}, which starts at a page, they
 * lie.  Where the file was opened with STORE_DIRECT, whole pages around them are asked for, since
 * only such requests go past the cache.
 */
enum sidestep_status page_read(const struct reader_file *file, uint8_t *buffer, uint64_t begin,
                               uint64_t end, uint8_t **bytes, struct sidestep_error *err);

#endif
