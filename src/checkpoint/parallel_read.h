/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parallel_read.h -- reads ranges of files in order, on several threads, with many requests in
 * flight.
 *
 * The caller gets each range, to check and copy it, while others are still being read.
 */
#ifndef CHECKPOINT_PARALLEL_READ_H
#define CHECKPOINT_PARALLEL_READ_H

#include "base/base.h"
#include "checkpoint/reader.h"
#include "snapshot/snapshot.h"
#include "store/store.h"

/* Buffers for requests to distant storage, in bytes: 16 ranges of 8 MiB, and their headroom. */
#define PARALLEL_READ_FAR_BYTES ((uint64_t)136 << 20)

struct parallel_read_range {
    struct reader_file *file; /* NULL: nothing to read; use() is called at once */
    uint64_t begin;
    uint64_t end;
    uint8_t *target; /* where to read the bytes to; NULL: any buffer */
    /* The places to read the bytes to, if there are several; otherwise NULL. They take exactly the
     * range, and the file must be held open. Bytes of places without memory, ${rest_bytes} in all,
     * go to a buffer. */
    const struct store_place *places;
    size_t place_count;
    uint64_t rest_bytes;
};

struct parallel_read {
    const struct store_queue_config *kind;
    struct store *store;     /* of the files */
    bool direct;             /* read whole pages around a range, because O_DIRECT needs them */
    size_t count;            /* of ranges */
    struct devices *devices; /* if possible, pin buffers for copies to these; NULL: do not */
    void *context;
    /* Describe range ${i}. Called on any thread, any number of times. */
    struct parallel_read_range (*describe)(void *context, size_t i);
    /* Called once per range, on any thread, until stopped() returns true; ranges that were started
     * are still used. Ranges are read in order, but may complete in any order. ${bytes} are those
     * from begin to end, in the target or in a buffer; of a range with places, those in the buffer.
     * If ${status} is not OK, ${why} is the reason.
     * Returns a device to which copies from ${bytes} were submitted, the only one, or -1. They read
     * the buffer until they are done. If they fail, use() is called once more, with that status and
     * no bytes. */
    int32_t (*use)(void *context, size_t i, uint8_t *bytes, enum sidestep_status status,
                   const struct sidestep_error *why);
    bool (*stopped)(void *context);
};

/* Read all ranges, on the calling thread and ${workers}; or, if the store asks for more reads at
 * once, on threads of its own, with buffers of PARALLEL_READ_FAR_BYTES at most. Fails only if
 * memory is short, or no thread can be started, before it reads anything. */
enum sidestep_status parallel_read_run(const struct parallel_read *many, struct workers *workers,
                                       struct sidestep_error *err);

#endif
