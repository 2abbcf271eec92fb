/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch_item.h -- reads stored items that must be read completely: objects, and items that torch
 * wrote. */
#ifndef LOAD_FETCH_ITEM_H
#define LOAD_FETCH_ITEM_H

#include "checkpoint/checkpoint.h"
#include "plan/plan.h"
#include "snapshot/snapshot.h"

/* Read and check ${item}, and write it to the targets of ${chunk}, which may be on ${devices}. */
enum sidestep_status fetch_item(const struct reader_item *item, const struct load_plan_chunk *chunk,
                                struct devices *devices, struct sidestep_error *err);

/* Tensors of torch.save() that are views of one storage.  Its bytes are read and checked once.
 * Tensors that are not row-major are buffered in memory, with all bytes between them. */
struct fetch_views {
    const struct reader_item *items;
    const struct load_plan_chunk *chunks; /* one per item */
    size_t count;
    struct devices *devices;
};
/* Are the tensors of ${a} and ${b} views of one storage that can be read together? */
bool fetch_can_merge_views(const struct reader_item *a, const struct reader_item *b);
enum sidestep_status fetch_views(const struct fetch_views *views, struct sidestep_error *err);
/* The byte range of the file that contains the elements of a tensor. */
enum sidestep_status fetch_item_byte_range(const struct reader_item *item,
                                           const struct load_plan_chunk *chunk, uint64_t *begin,
                                           uint64_t *end, struct sidestep_error *err);

/* The memory of the only target of ${chunk}, if bytes lie there exactly as they are stored, and
 * nothing else writes there; otherwise NULL. */
uint8_t *fetch_contiguous_target(const struct load_plan_chunk *chunk);
/* Writes decoded bytes of ${chunk} to its targets; ${sink} must outlive the result. */
struct fetch_sink {
    const struct load_plan_chunk *chunk;
    struct devices *devices;
};
struct reader_sink fetch_sink_as_reader_sink(const struct fetch_sink *sink);

#endif
