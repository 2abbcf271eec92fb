/* SPDX-License-Identifier: BSD-3-Clause */
/* source.h -- reads bytes at an offset: all that a parser needs of a file. */
#ifndef BASE_SOURCE_H
#define BASE_SOURCE_H

#include <string.h>

#include "base/error.h"

struct source {
    uint64_t length; /* bytes that can be read */
    /* Fill ${to} with exactly ${bytes} bytes from ${offset}, or fail.  Thread-safe. */
    enum sidestep_status (*read_at)(const struct source *source, void *to, size_t bytes,
                                    uint64_t offset, struct sidestep_error *err);
    const void *context; /* for ${read_at} */
};

/* Check the bounds, then read. */
static inline enum sidestep_status source_read(const struct source *source, void *to, size_t bytes,
                                               uint64_t offset, struct sidestep_error *err)
{
    if (offset > source->length || bytes > source->length - offset)
        return FAIL(err, SIDESTEP_ECORRUPT, "%zu bytes at offset %llu lie outside %llu bytes",
                    bytes, (unsigned long long)offset, (unsigned long long)source->length);
    return source->read_at(source, to, bytes, offset, err);
}

static inline enum sidestep_status source_memory_read_at(const struct source *source, void *to,
                                                         size_t bytes, uint64_t offset,
                                                         struct sidestep_error *err)
{
    (void)err;
    memcpy(to, (const unsigned char *)source->context + offset, bytes);
    return SIDESTEP_OK;
}

/* A source that reads from memory.  The memory must outlive it. */
static inline struct source source_from_memory(const void *bytes, size_t length)
{
    return (struct source){.length = length, .read_at = source_memory_read_at, .context = bytes};
}

#endif
