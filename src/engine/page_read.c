/* SPDX-License-Identifier: BSD-3-Clause */
/* page_read.c -- see page_read.h. */
#include "engine/page_read.h"

#include "base/checked.h"

enum sidestep_status page_read(const struct reader_file *file, uint8_t *buffer, uint64_t begin,
                               uint64_t end, uint8_t **bytes, struct sidestep_error *err)
{
    uint64_t page = file->file != NULL ? store_file_alignment(file->file) : 0;
    uint64_t first = begin, last = end;

    if (page != 0 && page <= PAGE_READ_SLACK / 2) {
        first = round_down(begin, page);
        last = max_u64(end, min_u64(round_up(end, page), file->source.length));
    }
    *bytes = buffer + (begin - first);
    return source_read(&file->source, buffer, last - first, first, err);
}
