/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parallel_read.h -- stretches of files, read in order by a gang with many requests in flight; each
 * is handed on, to be checked and placed, while others are still being read.
 */
#ifndef CHECKPOINT_PARALLEL_READ_H
#define CHECKPOINT_PARALLEL_READ_H

#include "base/base.h"
#include "checkpoint/reader.h"
#include "snapshot/snapshot.h"
#include "store/store.h"

struct parallel_read_range {
    struct reader_file *file; /* NULL: nothing is to be read, use() does all */
    uint64_t begin;
    uint64_t end;
    uint8_t *target; /* where the bytes are wanted as they are; NULL: in any buffer */
};

struct parallel_read {
    const struct store_queue_config *kind;
    bool direct;  /* whole pages around what is wanted, since only those go past the cache */
    size_t count; /* of stretches */
    struct devices *devices; /* buffers are pinned, if they can be, for copies to these; or NULL */
    void *context;
    /* Any thread, any number of times. */
    struct parallel_read_range (*describe)(void *context, size_t i);
    /* Any thread; once for each stretch, until stopped() says so; those that were begun are still
     * used.  They are read in order, but come in any.  ${bytes} are those from begin to
     * end: in the target or in a buffer.  Where ${status} is not OK, ${why} says why. */
    void (*use)(void *context, size_t i, uint8_t *bytes, enum sidestep_status status,
                const struct sidestep_error *why);
    bool (*stopped)(void *context);
};

/* On the caller and ${workers}.  Fails only for want of memory, before anything was read. */
enum sidestep_status parallel_read_run(const struct parallel_read *many, struct workers *workers,
                                       struct sidestep_error *err);

#endif
