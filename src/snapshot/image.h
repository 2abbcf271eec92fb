/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * image.h -- the layout of one shard file, computed before any byte is copied: the offsets of each
 * item's head, data and tail, and the windows in which the file is staged, hashed and written.
 *
 * A window is a part of the file that starts and ends at a multiple of 4096 bytes and is written
 * with one request.  Windows are split only where an item starts, or between two hash blocks of a
 * large item, so every block is in one window.  Gaps are zero.
 *
 * For zero-copy (cut_at_data), the data of a large tensor is placed where its offset in the file
 * and its address agree modulo 4096: then pages in the file are pages in memory, wherever the
 * allocator puts tensors (torch: 64 bytes into a page).  Windows are then also split at the first
 * whole page of its data, behind the last one, and at the page in which a block begins.  Such a
 * split may divide a block (struct image_split_block).  Each of the two windows hashes its part of
 * the block as it is written, and the later of them combines the two.
 */
#ifndef SNAPSHOT_IMAGE_H
#define SNAPSHOT_IMAGE_H

#include <stdatomic.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/format.h"
#include "model/model.h"
#include "plan/plan.h"

#define IMAGE_ALIGN ((uint64_t)4096) /* of windows, and of large items' data unless cut_at_data */
#define IMAGE_SMALL_ALIGN ((uint64_t)64) /* of small items */
#define IMAGE_LARGE_ITEM_BYTES                                                                     \
    ((uint64_t)1 << 20) /* an item with at least this much data is large */
#define IMAGE_WINDOW_BYTES                                                                         \
    ((uint64_t)4 << 20) /* a window ends at the first possible offset after this many bytes */
#define IMAGE_WINDOW_MAX_BYTES ((uint64_t)8 << 20) /* and never has more than this many */

struct image_item {
    struct footer_item footer; /* offset, box, hashes: the layout determines all but the hashes */
    const struct state_entry *entry; /* the tensor's memory, or the object */
    struct archive_tensor_layout layout;
    uint8_t *head;          /* layout.head_bytes bytes */
    const uint8_t *object;  /* encoded bytes of an object */
    uint64_t *blocks;       /* writable alias of footer.blocks */
    uint32_t *crcs;         /* CRC32 of each block */
    uint8_t first_bytes[8]; /* first bytes of the data, for the tail */
    bool on_device;         /* the data is on a device: offload.h copies it to the windows */
    uint8_t *eager_copy;    /* eager copy of all data, or NULL */
    size_t planned;         /* index in the plan */
    /* For tensors, see unchanged.h. */
    bool in_unchanged_file;   /* in the unchanged file; such items come first */
    bool is_known;            /* ${known} and ${known_crcs} are of the last save */
    uint32_t unchanged_saves; /* consecutive saves that found it equal to the save before */
    uint64_t *known;          /* block hashes of the last save; NULL: not tracked */
    uint32_t *known_crcs;     /* CRC32s of the last save */
};

/* A block that is divided between two windows, less than a page after its beginning or before its
 * end.  The smaller part is saved until the other part can be hashed with it. */
struct image_split_block {
    struct image_item *item;
    uint64_t at;                /* where it is split: offset in the item's data */
    bool smaller_is_first;      /* the smaller part is the first */
    uint32_t smaller_bytes;     /* size of the smaller part ... */
    uint8_t *smaller_part;      /* ... and its bytes */
    struct hash_stream *stream; /* hash of the block */
    uint32_t crc;               /* CRC32 of the first part */
    atomic_uint parts_hashed;   /* number of parts that are hashed */
};

struct image_window {
    uint64_t offset;
    uint64_t bytes;
    size_t first_item;                        /* first item with a byte in the window */
    struct image_split_block *split_at_begin; /* split block at its beginning, or NULL */
    struct image_split_block *split_at_end;   /* split block at its end, or NULL */
    uint64_t print; /* fingerprint of a zero-copy window, see cow_zero_copy.c */
};

struct image {
    struct arena arena;
    struct arena objects; /* for this save: encoded objects, windows */
    struct image_item *items;
    size_t count;
    size_t tensor_count; /* tensors come first */
    struct image_window *windows;
    size_t window_count;
    struct image_split_block *split_blocks;
    size_t split_block_count;
    uint64_t body_bytes; /* offset of the footer: a multiple of IMAGE_ALIGN */
    /* Set before image_bind().  Lays out large tensors, and splits windows, so that most windows
     * are inner ones and consist of whole pages in memory. */
    bool cut_at_data;
    bool has_device_items; /* some items are on devices: every window needs a slot before staging */
    size_t unchanged_file_items; /* items in the unchanged file, which come first */
    /* Set before image_bind(): these items get a file of their own, the unchanged file.  Its
     * windows come first, too, and the other file begins where they end. */
    bool splits_file;
    size_t unchanged_file_windows;
    uint64_t unchanged_file_bytes;
};

/* Lay out the tensors of ${plan}.  Once per layout. */
enum sidestep_status image_build(struct image *image, const struct save_plan *plan,
                                 const struct sidestep_state_dict *state,
                                 struct sidestep_error *err);
/* For each save: take the addresses from ${state}, encode objects, lay them out, split windows. */
enum sidestep_status image_bind(struct image *image, const struct save_plan *plan,
                                const struct sidestep_state_dict *state,
                                struct sidestep_error *err);
void image_release(struct image *image);

/* Bytes [begin, end) of an item's data that are write-protected and copied later. */
struct image_protected_range {
    uint64_t begin;
    uint64_t end;
};

/* The first offset from ${at} on that has the alignment of an item that is stored uncompressed. */
uint64_t image_align_offset(const struct footer_item *item, uint64_t at);

/* Copy bytes [begin, end) of the data of item ${k}, which is not on a device, to ${to}. */
enum sidestep_status image_copy_item_data(const struct image *image, size_t k, uint64_t begin,
                                          uint64_t end, uint8_t *to, struct sidestep_error *err);

/* Is the data of item ${i} contiguous in host memory, exactly as in the file? */
bool image_is_contiguous(const struct image *image, size_t i);

/* Copy window ${i} to ${buffer}, with zeros in tails and gaps.  Any thread.  Can fail only for
 * tensors that have a reader instead of memory. */
enum sidestep_status image_stage_window(const struct image *image, size_t i, uint8_t *buffer,
                                        struct sidestep_error *err);
/* The same in two steps.  First, the tensors' data, except what is protected (one range per
 * item). */
enum sidestep_status image_stage_tensor_data(const struct image *image, size_t i,
                                             const struct image_protected_range *held,
                                             uint8_t *buffer, struct sidestep_error *err);
/* Second, everything else.  This step needs no memory of the caller. */
void image_stage_non_tensor_data(const struct image *image, size_t i, uint8_t *buffer);
/* The first step by way of ${aside}, an eager copy.  It has the unprotected data of item k,
 * concatenated, from at[k] on.  This copies from the tensors to ${aside} ... */
enum sidestep_status image_copy_eager(const struct image *image, size_t i,
                                      const struct image_protected_range *held, const uint64_t *at,
                                      uint8_t *aside, struct sidestep_error *err);
/* ... and this from ${aside} to the window, without memory of the caller. */
void image_stage_eager(const struct image *image, size_t i,
                       const struct image_protected_range *held, const uint64_t *at,
                       const uint8_t *aside, uint8_t *buffer);
/* The range of item ${k}'s data that is in window ${i}; *begin == *end: none. */
void image_data_in_window(const struct image *image, size_t i, size_t k, uint64_t *begin,
                          uint64_t *end);
/* The window that contains byte ${offset} of the file. */
size_t image_find_window(const struct image *image, uint64_t offset);
/* Bytes of the largest window. */
uint64_t image_largest_window(const struct image *image);
/* Does item ${k}, or a later one, have bytes in window ${i}? */
bool image_window_reaches_item(const struct image *image, size_t i, size_t k);
/* Is window ${i} an inner window: data of one tensor only?  That is item ${*k}, from byte ${*begin}
 * of its data on.  Like everything that runs in the background, this does not use item->entry,
 * which the caller may have freed. */
bool image_is_tensor_only(const struct image *image, size_t i, size_t *k, uint64_t *begin);
/* The number of bytes from byte ${at} of inner window ${i} on that are hashed in one call: at most
 * one block.  0: end of the window. */
uint64_t image_tensor_part_bytes(const struct image *image, size_t i, uint64_t at);
/* Hash that part of the window, a copy of which is at ${bytes}.  Returns hash_block() of it. */
uint64_t image_hash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes);
/* Compute the same value again, for comparison. */
uint64_t image_rehash_tensor_part(struct image *image, size_t i, uint64_t at, const uint8_t *bytes);
/* Must the window before ${i} be hashed first?  Such windows are short. */
bool image_hash_needs_previous(const struct image *image, size_t i);
/* Hash the blocks of window ${i}.  Any thread, once per window. */
void image_hash(struct image *image, size_t i, const uint8_t *buffer);
/* Write the tails of the items that end in window ${i} to ${buffer}.  All windows up to ${i} must
 * be hashed.  In order of windows, one thread at a time. */
enum sidestep_status image_finish_window(struct image *image, size_t i, uint8_t *buffer,
                                         struct sidestep_error *err);

#endif
