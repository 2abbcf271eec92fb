/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow_plan.h -- plans which memory of the tensors is write-protected in a save, and which bytes of
 * the file it holds.
 *
 *   item      a tensor of the image; cow_plan.protected has the range of its data to protect
 *   range     protected memory, whole pages; adjacent tensors share one
 *   granule   up to 2 MiB of a range, split at multiples of 2 MiB: protection is lifted granule by
 *             granule, so that huge pages stay whole
 *   piece     bytes of one item in one granule and in one window of the file
 *   gap       a page in a range with bytes that belong to no tensor
 *
 * If windows share the pool (pool_slots.h), a writer may have to wait for a slot.  Other code
 * that writes to a gap must not wait, because the save itself may depend on it (malloc's list of
 * free blocks, for example).  So in that case only whole pages of a tensor are protected.  The rest
 * of the tensor is copied in the call, and a fault in a page without a piece is served by
 * unprotecting that page.
 *
 * A range includes a page in which one tensor ends and the next begins, whatever is between them:
 * otherwise every tensor would cost a huge page.  So a protected page may hold bytes of other code,
 * even malloc's, and no thread that serves faults may write to memory outside its own mappings.
 */
#ifndef SNAPSHOT_COW_PLAN_H
#define SNAPSHOT_COW_PLAN_H

#include "base/base.h"
#include "snapshot/bypass.h"
#include "snapshot/image.h"
#include "snapshot/memory_map.h"

#define COW_GRANULE_BYTES ((uint64_t)2 << 20)
#define COW_MIN_RANGE_BYTES ((uint64_t)1 << 20) /* copying less is cheaper than protecting it */

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
    size_t first_piece; /* its pieces end where those of the next granule begin */
};

/* Where an item's data is in memory: what a plan was made for. */
struct cow_item_memory {
    uint64_t address; /* 0: the data is not contiguous in host memory */
    uint64_t bytes;   /* 0: also if the item is not a tensor in host memory */
    uint64_t file_offset;
    uint32_t flags; /* SIDESTEP_TENSOR_PINNED and _CPU_WRITES */
    bool excluded;  /* set by the plan: not to be protected */
};

struct cow_plan {
    struct arena arena;
    struct cow_item_memory *items;           /* one per item */
    struct image_protected_range *protected; /* one per item */
    size_t item_count;
    struct cow_range *ranges; /* by address */
    size_t range_count;
    struct cow_granule *granules; /* one more than granule_count */
    size_t granule_count;
    struct cow_piece *pieces;
    size_t piece_count;
    uint64_t *window_offsets; /* offsets of the windows that have bytes of tensors */
    size_t window_count;
    uint64_t held_bytes;
    struct bypass bypass;    /* of the process when the plan was made */
    size_t pinned_item;      /* the first item that may be pinned; SIZE_MAX: none */
    bool shares_pool;        /* windows share the pool: only whole pages of tensors are protected */
    uint64_t eager_bytes;    /* the unprotected rest of all items, concatenated: the eager copy */
    uint64_t *eager_offsets; /* per item: offset of its rest in the eager copy */
    char reason[120];        /* why a tensor is not protected although it is large enough; or "" */
};

/* Sort ranges of memory, and merge those whose pages touch.  Returns how many are left. */
size_t cow_plan_merge_ranges(struct cow_range *ranges, size_t count);
/* Store where the tensors of ${image} are in memory, in places[image->count]. */
void cow_plan_locate_items(const struct image *image, struct cow_item_memory *places);
/* Plan the ranges for ${image}, from the memory map of the process.  ${plan} is empty. */
enum sidestep_status cow_plan_build_ranges(struct cow_plan *plan, const struct image *image,
                                           const struct bypass *bypass, struct sidestep_error *err);
/* Is the plan still valid for a process in this state? */
bool cow_plan_is_valid(const struct cow_plan *plan, const struct bypass *bypass);
/* Build items, granules and pieces for the ranges, of which the caller may have removed some.
 * ${shared}: for a pool that windows share. */
enum sidestep_status cow_plan_build_pieces(struct cow_plan *plan, const struct image *image,
                                           bool shared, struct sidestep_error *err);
/* Does ${image} have the windows that the plan was made for? */
bool cow_plan_matches_windows(const struct cow_plan *plan, const struct image *image);
void cow_plan_release(struct cow_plan *plan);
/* The granule that contains ${address}; SIZE_MAX: none. */
size_t cow_plan_find_granule(const struct cow_plan *plan, uint64_t address);
/* Does granule ${g} have a piece in [begin, end)? */
bool cow_plan_has_piece_in(const struct cow_plan *plan, size_t g, uint64_t begin, uint64_t end);
/* The first reason counts. */
void cow_plan_set_reason(struct cow_plan *plan, const char *name, const char *why);
/* The same for the first tensor of at least ${min_bytes} with bytes in [begin, end), memory that
 * cannot be protected. */
void cow_plan_set_reason_at(struct cow_plan *plan, const struct image *image, uint64_t begin,
                            uint64_t end, uint64_t min_bytes, const char *why);
/* If a tensor may be pinned, make that the reason, with the bytes that are pinned now. */
void cow_plan_set_pinned_reason(struct cow_plan *plan, const struct image *image,
                                uint64_t pinned_bytes);

#endif
