/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch_item.h -- a stored item that has to be seen whole: objects, and whatever torch wrote. */
#ifndef LOAD_FETCH_ITEM_H
#define LOAD_FETCH_ITEM_H

#include "checkpoint/checkpoint.h"
#include "plan/plan.h"
#include "snapshot/snapshot.h"

/* Read, check and place ${item} into the targets of ${chunk}, which may lie on ${devices}. */
enum sidestep_status fetch_item(const struct reader_item *item, const struct load_plan_chunk *chunk,
                                struct devices *devices, struct sidestep_error *err);

/* Tensors of torch.save() that are views of one storage: its bytes are read once, and checked.
 * Those that are not row-major are in memory with all that lies between them. */
struct fetch_views {
    const struct reader_item *items;
    const struct load_plan_chunk *chunks; /* as many */
    size_t count;
    struct devices *devices;
};
bool fetch_can_merge_views(const struct reader_item *a, const struct reader_item *b);
enum sidestep_status fetch_views(const struct fetch_views *views, struct sidestep_error *err);
/* Which bytes of the file a tensor has its elements in. */
enum sidestep_status fetch_item_byte_range(const struct reader_item *item,
                                           const struct load_plan_chunk *chunk, uint64_t *begin,
                                           uint64_t *end, struct sidestep_error *err);

/* If bytes of ${chunk} lie in one target exactly as they are stored: where.  Else NULL. */
uint8_t *fetch_contiguous_target(const struct load_plan_chunk *chunk);
/* What is decoded of ${chunk} goes to its targets; ${placing} must outlive it. */
struct fetch_sink {
    const struct load_plan_chunk *chunk;
    struct devices *devices;
};
struct reader_sink fetch_sink_as_reader_sink(const struct fetch_sink *placing);

#endif
