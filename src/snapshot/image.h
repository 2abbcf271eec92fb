/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * image.h -- one shard file, laid out before a byte of it is copied: where each item's head,
 * data and tail will lie, and the windows in which it is staged, hashed and written.
 *
 * A window is a stretch of the file that starts and ends at a multiple of 4096 and is written with
 * one request.  Windows are cut only where an item starts, or between two hash blocks of a large
 * item, so every block lies in one window.  Gaps are zero.
 *
 * For what is to be written from where it lies in memory (cut_at_data), the data of a large tensor
 * is placed where its offset in the file and its address agree modulo 4096: then the pages of the
 * one are the pages of the other, wherever the allocator puts tensors (torch: 64 bytes into a
 * page).  Windows are then also cut at the first and behind the last whole page of its data, and at
 * the page in which a block begins.  Such a cut may go through a block: a seam.  Each of the two
 * windows hashes what it has of the block, as it is written, and the later of them joins the two.
 */
#ifndef SNAPSHOT_IMAGE_H
#define SNAPSHOT_IMAGE_H

#include <stdatomic.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/format.h"
#include "model/model.h"
#include "plan/plan.h"

#define IMAGE_ALIGN ((uint64_t)4096)               /* of windows; else of large items' data, too */
#define IMAGE_SMALL_ALIGN ((uint64_t)64)           /* of other items */
#define IMAGE_LARGE_ITEM_BYTES ((uint64_t)1 << 20) /* from here an item is large */
#define IMAGE_WINDOW_BYTES ((uint64_t)4 << 20) /* a window is cut at the first place after this */
#define IMAGE_WINDOW_MAX_BYTES ((uint64_t)8 << 20) /* and is never larger than this */

struct image_item {
    struct footer_item footer; /* place, box, hashes: all but the hashes fixed by the layout */
    const struct state_entry *entry; /* the tensor's memory, or the object */
    struct archive_tensor_layout layout;
    uint8_t *head;          /* layout.head_bytes */
    const uint8_t *object;  /* bytes of an object */
    uint64_t *blocks;       /* = footer.blocks */
    uint32_t *crcs;         /* of each block */
    uint8_t first_bytes[8]; /* of the data, for the tail */
    bool away;              /* in a device's memory: offload.h brings it into the windows ... */
    uint8_t *aside;         /* ... but for what was put aside, in one piece, or NULL */
    size_t planned;         /* its number in the plan */
    /* Of tensors, see unchanged.h. */
    bool kept;            /* it comes first, with all others that are */
    bool is_known;        /* ${known} and ${known_crcs} are those of an earlier save */
    uint32_t unchanged;   /* saves in a row that found it as the one before */
    uint64_t *known;      /* as ${blocks}; NULL: nobody asked */
    uint32_t *known_crcs; /* as ${crcs} */
};

/* Where a window ends in the midst of a block, at most a page behind its beginning or before its
 * end: the lesser part of the block is kept until the other can be hashed with it. */
struct image_split_block {
    struct image_item *item;
    uint64_t at;                /* in the item's data */
    bool at_beginning;          /* the lesser part comes first */
    uint32_t bytes;             /* of the lesser part ... */
    uint8_t *lesser;            /* ... which are kept here */
    struct hash_stream *stream; /* of the block */
    uint32_t crc;               /* of the part that comes first */
    atomic_uint parts;          /* that are hashed */
};

struct image_window {
    uint64_t offset;
    uint64_t bytes;
    size_t first_item;                /* the first that has a byte in it */
    struct image_split_block *opens;  /* at its beginning, or NULL */
    struct image_split_block *closes; /* at its end, or NULL */
    uint64_t print;                   /* of what was hashed where it lies: cow_zero_copy.c */
};

struct image {
    struct arena arena;
    struct arena objects; /* of this save: encoded objects, windows */
    struct image_item *items;
    size_t count;
    size_t tensor_count; /* tensors come first */
    struct image_window *windows;
    size_t window_count;
    struct image_split_block *seams;
    size_t seam_count;
    uint64_t body_bytes; /* where the footer starts: a multiple of IMAGE_ALIGN */
    /* Set before image_bind(): large tensors lie, and windows are cut, so that most windows are
     * inner ones, and whole pages in memory. */
    bool cut_at_data;
    bool away;         /* some items are: windows have places of their own before they are staged */
    size_t kept_count; /* items of unchanged.h's choice, which come first */
    /* Set before image_bind(): they are to be a file of their own, the kept one.  Its windows come
     * first, too, and the other file begins where they end. */
    bool splits;
    size_t kept_windows;
    uint64_t kept_bytes;
};

/* Lay out the tensors of ${plan}: once per layout. */
enum sidestep_status image_build(struct image *image, const struct save_plan *plan,
                                 const struct sidestep_state_dict *state,
                                 struct sidestep_error *err);
/* For each save: take the addresses from ${state}, encode the objects, lay them out, cut windows.
 */
enum sidestep_status image_bind(struct image *image, const struct save_plan *plan,
                                const struct sidestep_state_dict *state,
                                struct sidestep_error *err);
void image_release(struct image *image);

/* Of an item: bytes [begin, end) of its data, which somebody else copies. */
struct image_protected_range {
    uint64_t begin;
    uint64_t end;
};

/* The first place from ${at} on where an item that is stored as it is lies as it should. */
uint64_t image_align_offset(const struct footer_item *item, uint64_t at);

/* Bytes [begin, end) of the data of item ${k}, which is not on a device, to ${to}. */
enum sidestep_status image_copy_item_data(const struct image *image, size_t k, uint64_t begin,
                                          uint64_t end, uint8_t *to, struct sidestep_error *err);

/* Do the bytes of item ${i}, as the file will have them, lie in host memory just so? */
bool image_is_contiguous(const struct image *image, size_t i);

/* Copy window ${i} into ${buffer} (zeroes first where tails and gaps are).  Any thread.  Fails only
 * for tensors that are read, not in memory. */
enum sidestep_status image_stage_window(const struct image *image, size_t i, uint8_t *buffer,
                                        struct sidestep_error *err);
/* The same in two steps: first the tensors' data, but for what is held (one per item) ... */
enum sidestep_status image_stage_tensor_data(const struct image *image, size_t i,
                                             const struct image_protected_range *held,
                                             uint8_t *buffer, struct sidestep_error *err);
/* ... and all else, which needs nothing of the caller's. */
void image_stage_non_tensor_data(const struct image *image, size_t i, uint8_t *buffer);
/* The first of these steps by way of ${aside}, where what is not held of item k lies from at[k] on,
 * in one piece: into it ... */
enum sidestep_status image_copy_eager(const struct image *image, size_t i,
                                      const struct image_protected_range *held, const uint64_t *at,
                                      uint8_t *aside, struct sidestep_error *err);
/* ... and from there, which needs nothing of the caller's either. */
void image_stage_eager(const struct image *image, size_t i,
                       const struct image_protected_range *held, const uint64_t *at,
                       const uint8_t *aside, uint8_t *buffer);
/* The bytes of item ${k}'s data in window ${i}: *begin == *end if there are none. */
void image_data_in_window(const struct image *image, size_t i, size_t k, uint64_t *begin,
                          uint64_t *end);
/* Bytes of the largest window. */
uint64_t image_largest_window(const struct image *image);
/* Has item ${k}, or a later one, bytes in window ${i}? */
bool image_window_reaches_item(const struct image *image, size_t i, size_t k);
/* Is all of window ${i} data of one tensor: an inner window?  Of item ${*k}, from byte ${*begin} of
 * its data on.  As all that happens in the background, it does not look at ${entry}, which the
 * caller may have freed. */
bool image_is_tensor_only(const struct image *image, size_t i, size_t *k, uint64_t *begin);
/* The bytes of inner window ${i} from byte ${at} of it on that are, or may be, hashed at once: no
 * more than a block; 0: it ends there. */
uint64_t image_tensor_part_bytes(const struct image *image, size_t i, uint64_t at);
/* Hash them; a copy is at ${bytes}.  Returns hash_block() of them. */
uint64_t image_hash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes);
/* The same number once more, for comparison. */
uint64_t image_rehash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes);
/* Must the window before ${i} be hashed before it?  They are short. */
bool image_hash_needs_previous(const struct image *image, size_t i);
/* Hash the blocks of window ${i}.  Any thread, once per window. */
void image_hash(struct image *image, size_t i, const uint8_t *buffer);
/* Put the tails of the items that end in window ${i} into ${buffer}.  All windows up to ${i} have
 * been hashed.  In order of windows, one thread at a time. */
enum sidestep_status image_finish_window(struct image *image, size_t i, uint8_t *buffer,
                                         struct sidestep_error *err);

#endif
