/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * image.h -- the layout of one shard file, computed before any byte is copied: the offsets of each
 * item's head, data and tail, and the windows in which the file is staged, hashed and written.
 *
 * A window is a part of the file that starts and ends at a multiple of image_align() and is written
 * with one request.  Windows are split only where an item starts, or between two hash blocks of a
 * large item, so every block is in one window.  Gaps are zero.
 */
#ifndef SNAPSHOT_IMAGE_H
#define SNAPSHOT_IMAGE_H

#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/format.h"
#include "model/model.h"
#include "plan/plan.h"

#define IMAGE_SMALL_ALIGN ((uint64_t)64)           /* of small items */
#define IMAGE_LARGE_ITEM_BYTES ((uint64_t)1 << 20) /* a large item has at least this much data */
/* A window ends at the first possible offset after so many bytes, and never has more than MAX. */
#define IMAGE_WINDOW_BYTES ((uint64_t)4 << 20)
#define IMAGE_WINDOW_MAX_BYTES ((uint64_t)8 << 20)

/* Of windows, and of large items' data: a page, so that no page of the file is written both through
 * the page cache and past it (store_posix_file.c), and at least what FORMAT.md says. */
static inline uint64_t image_align(void)
{
    return max_u64(4096, (uint64_t)sysconf(_SC_PAGESIZE));
}

struct image_item {
    struct footer_item footer;       /* the layout determines all but the hashes */
    const struct state_entry *entry; /* the tensor's memory, or the object */
    struct archive_tensor_layout layout;
    uint8_t *head;          /* layout.head_bytes bytes */
    const uint8_t *object;  /* encoded bytes of an object */
    uint64_t *blocks;       /* writable alias of footer.blocks */
    uint32_t *crcs;         /* CRC32 of each block */
    uint8_t first_bytes[8]; /* first bytes of the data, for the tail */
    bool on_device;         /* the data is on a device: offload.h copies it to the windows */
    bool in_file;           /* some of the memory is of a mapped file: see image_files.c */
    uint8_t *eager_copy;    /* eager copy of all data, or NULL */
    size_t planned;         /* index in the plan */
    /* For tensors, see unchanged.h. */
    bool in_unchanged_file;   /* in the unchanged file; such items come first */
    bool is_known;            /* ${known} and ${known_crcs} are of the last save */
    uint32_t unchanged_saves; /* consecutive saves that found it equal to the save before */
    uint64_t *known;          /* block hashes of the last save; NULL: not tracked */
    uint32_t *known_crcs;     /* CRC32s of the last save */
};

struct image_window {
    uint64_t offset;
    uint64_t bytes;
    size_t first_item; /* first item with a byte in the window */
};

struct image {
    struct arena arena;
    struct arena objects; /* for this save: encoded objects, windows */
    struct image_item *items;
    size_t count;
    size_t tensor_count; /* tensors come first */
    struct image_window *windows;
    size_t window_count;
    uint64_t body_bytes;   /* offset of the footer: a multiple of image_align() */
    bool has_device_items; /* some items are on devices: every window needs a slot before staging */
    size_t unchanged_file_items; /* items in the unchanged file, which come first */
    /* Set before image_bind(): those items get a file of their own, the unchanged file.  Its
     * windows come first, too, and the other file begins where they end. */
    bool splits_file;
    size_t unchanged_file_windows;
    uint64_t unchanged_file_bytes;
    /* The extra files of this save: what the footer says of them (hashes are set when they are
     * written), and their contents (NULL: an alias). */
    struct extra_file *extras;
    struct state_blob **blobs;
    size_t extra_count;
};

/* Lay out the tensors of ${plan}.  Once per layout. */
enum sidestep_status image_build(struct image *image, const struct save_plan *plan,
                                 const struct sidestep_state_dict *state,
                                 struct sidestep_error *err);
/* For each save: take the addresses and the files from ${state}, encode objects, lay them out,
 * split windows. */
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

/* Find the tensors in memory of mapped files, which somebody may cut.  Their data is copied by
 * the kernel, and the copy fails where there is no data any more. */
void image_find_files(struct image *image);
/* Copy bytes [begin, end) of the data of such an item to ${to}. */
enum sidestep_status image_copy_from_file(const struct image *image, size_t k, uint64_t begin,
                                          uint64_t end, uint8_t *to, struct sidestep_error *err);

/* Copy bytes [begin, end) of the data of item ${k}, which is not on a device, to ${to}. */
enum sidestep_status image_copy_item_data(const struct image *image, size_t k, uint64_t begin,
                                          uint64_t end, uint8_t *to, struct sidestep_error *err);

/* The data of item ${i}, a tensor or a part of one, if it is contiguous in host memory, exactly as
 * in the file; else NULL. */
const uint8_t *image_contiguous_data(const struct image *image, size_t i);

/* Copy window ${i} to ${buffer}, with zeros in tails and gaps.  Any thread.  Can fail only for
 * tensors that have a reader instead of memory, or memory of a mapped file. */
enum sidestep_status image_stage_window(const struct image *image, size_t i, uint8_t *buffer,
                                        struct sidestep_error *err);
/* The same in two steps.  First, the tensors' data, except what is protected (one range per
 * item). */
enum sidestep_status image_stage_tensor_data(const struct image *image, size_t i,
                                             const struct image_protected_range *held,
                                             uint8_t *buffer, struct sidestep_error *err);
/* Second, everything else.  This step needs no memory of the caller. */
void image_stage_non_tensor_data(const struct image *image, size_t i, uint8_t *buffer);
/* The first step through an eager copy, which has the unprotected data of item k, concatenated,
 * from at[k] on.  This copies from the tensors to ${eager}. */
enum sidestep_status image_copy_eager(const struct image *image, size_t i,
                                      const struct image_protected_range *held, const uint64_t *at,
                                      uint8_t *eager, struct sidestep_error *err);
/* This copies from ${eager} to the window, and needs no memory of the caller. */
void image_stage_eager(const struct image *image, size_t i,
                       const struct image_protected_range *held, const uint64_t *at,
                       const uint8_t *eager, uint8_t *buffer);
/* The range of item ${k}'s data that is in window ${i}; *begin == *end: none. */
void image_data_in_window(const struct image *image, size_t i, size_t k, uint64_t *begin,
                          uint64_t *end);
/* The window that contains byte ${offset} of the file. */
size_t image_find_window(const struct image *image, uint64_t offset);
/* Bytes of the largest window. */
uint64_t image_largest_window(const struct image *image);
/* Does item ${k}, or a later one, have bytes in window ${i}? */
bool image_window_reaches_item(const struct image *image, size_t i, size_t k);
/* Hash the blocks of window ${i}.  Any thread, once per window. */
void image_hash(struct image *image, size_t i, const uint8_t *buffer);
/* Write the tails of the items that end in window ${i} to ${buffer}.  All windows up to ${i} must
 * be hashed.  In order of windows, one thread at a time. */
enum sidestep_status image_finish_window(struct image *image, size_t i, uint8_t *buffer,
                                         struct sidestep_error *err);

#endif
