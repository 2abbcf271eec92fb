/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow_plan.h -- which of the tensors' memory is write-protected in a save, and which bytes of the
 * file lie there.
 *
 *   item      a tensor of the image; bytes [held.begin, held.end) of its data are protected
 *   range     protected memory, whole pages; neighbouring tensors share one
 *   granule   up to 2 MiB of a range, cut at multiples of 2 MiB: protected pages are given back by
 *             the granule, so that huge pages stay whole
 *   piece     bytes of one item in one granule and in one window of the file
 *   gap       a page in a range with bytes that belong to no tensor
 *
 * Where windows share the pool (pool_slots.h), who writes may have to wait for a place.  That must
 * not happen to a stranger in a gap, whom saving itself may need to get on (malloc's list of free
 * blocks, say).  So there only whole pages of a tensor are held: what it has in other pages is
 * copied aside in the call, and a fault in a page without a piece is served by lifting that page.
 *
 * A range goes on over a page in which one tensor ends and the next begins, whatever lies between
 * them: else every tensor would cost a huge page.  So a protected page may hold a stranger's bytes,
 * even malloc's, and nobody who serves faults may write to memory that is not his own mapping.
 */
#ifndef SNAPSHOT_COW_PLAN_H
#define SNAPSHOT_COW_PLAN_H

#include "base/base.h"
#include "snapshot/bypass.h"
#include "snapshot/image.h"
#include "snapshot/memory_map.h"

#define COW_GRANULE_BYTES ((uint64_t)2 << 20)
#define COW_MIN_RANGE_BYTES ((uint64_t)1 << 20) /* shorter stretches are cheaper to copy */

struct cow_range {
    uint64_t begin;
    uint64_t end;
    size_t first_granule;
};

struct cow_piece {
    uint64_t address;
    uint64_t bytes;
    uint64_t file_offset;
    size_t item;
    size_t window;
};

struct cow_granule {
    uint64_t begin;
    uint64_t end;
    size_t first_piece; /* those of the next granule follow */
};

/* Where an item's data lies: what a plan was made for. */
struct cow_item_memory {
    uint64_t address; /* 0: the bytes do not lie there as they are written */
    uint64_t bytes;   /* 0: it is no tensor, too */
    uint64_t file_offset;
    uint32_t flags; /* of SIDESTEP_TENSOR_... those that matter here */
    bool excluded;  /* found out by the plan: not to be protected */
};

struct cow_plan {
    struct arena arena;
    struct cow_item_memory *places;     /* one per item */
    struct image_protected_range *held; /* one per item */
    size_t item_count;
    struct cow_range *ranges; /* by address */
    size_t range_count;
    struct cow_granule *granules; /* one more than there are */
    size_t granule_count;
    struct cow_piece *pieces;
    size_t piece_count;
    uint64_t *cuts; /* where the windows begin that have bytes of tensors */
    size_t cut_count;
    uint64_t held_bytes;
    struct bypass bypass; /* what the process was like */
    size_t pinned_item;   /* the first that may be pinned for all we know; SIZE_MAX: none */
    bool shared;          /* windows share the pool: tensors are held by whole pages ... */
    uint64_t aside_bytes; /* ... the rest, of all items one after the other, is copied aside: */
    uint64_t *aside_at;   /* where that of each item lies there */
    char reason[120];     /* why a tensor that could be protected by its size is not; "" */
};

/* Sort stretches of memory, and make one of those whose pages touch; returns how many are left. */
size_t cow_plan_merge_ranges(struct cow_range *ranges, size_t count);
/* Where the tensors of ${image} lie, into places[image->count]. */
void cow_plan_locate_items(const struct image *image, struct cow_item_memory *places);
/* Make a plan for ${image} from what memory there is.  ${plan} is empty. */
enum sidestep_status cow_plan_build_ranges(struct cow_plan *plan, const struct image *image,
                                           const struct bypass *bypass, struct sidestep_error *err);
/* Is that still good, now that the process is like this? */
bool cow_plan_is_valid(const struct cow_plan *plan, const struct bypass *bypass);
/* Items, granules and pieces of the ranges, of which the caller may have taken some away, for a
 * pool that is shared or whole. */
enum sidestep_status cow_plan_build_pieces(struct cow_plan *plan, const struct image *image,
                                           bool shared, struct sidestep_error *err);
/* Has ${image} the windows that the plan was made for? */
bool cow_plan_matches_windows(const struct cow_plan *plan, const struct image *image);
void cow_plan_release(struct cow_plan *plan);
/* The granule that holds ${address}; SIZE_MAX: none. */
size_t cow_plan_find_granule(const struct cow_plan *plan, uint64_t address);
/* Is there a piece of granule ${g} in [begin, end)? */
bool cow_plan_has_piece_in(const struct cow_plan *plan, size_t g, uint64_t begin, uint64_t end);
/* The first reason counts. */
void cow_plan_set_reason(struct cow_plan *plan, const char *name, const char *why);
/* Where memory may be pinned, that is the reason, with what is pinned now. */
void cow_plan_set_pinned_reason(struct cow_plan *plan, const struct image *image,
                                uint64_t pinned_bytes);

#endif
