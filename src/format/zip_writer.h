/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zip_writer.h -- zips as torch.save() of torch >= 2.7 writes them, byte for byte: stored members,
 * each with a descriptor behind it and padded so that its data is aligned; zip64 where a value
 * needs it.  Other readers of zips (Python's, NumPy's) find all that they need.
 *
 * The writer keeps the position in the archive itself, so the data of a member may be left out of
 * what is written (zip_writer_skip()), and all of it may only be counted.
 */
#ifndef FORMAT_ZIP_WRITER_H
#define FORMAT_ZIP_WRITER_H

#include "base/base.h"

#define ZIP_WRITER_ALIGNMENT 64u

struct zip_writer_member {
    const char *name;
    uint64_t offset; /* of the local header */
    uint64_t size;
    uint32_t crc;
    uint64_t crc_at[2]; /* where in the archive it stands: descriptor (0: has none), directory */
};

struct zip_writer {
    const char *prefix; /* of all names: "archive/" */
    struct zip_writer_member *members;
    size_t room; /* for members; the caller's */
    size_t count;
    struct buffer *out; /* NULL: only count */
    uint64_t position;  /* in the archive */
    uint64_t crc_hash;  /* of the CRCs so far, as torch's serialization id has it */
};

/* Begin a member: its data begins at w->position afterwards, aligned.  ${name} must outlive ${w}.
 */
struct zip_writer_member *zip_writer_begin_member(struct zip_writer *w, const char *name,
                                                  uint64_t size);
/* Bytes of the data of the member that was begun, written by others. */
void zip_writer_skip(struct zip_writer *w, uint64_t bytes);
/* End the member whose data is at w->position. */
void zip_writer_end_member(struct zip_writer *w, struct zip_writer_member *member, uint32_t crc);
/* How many bytes zip_writer_end_member() writes. */
unsigned zip_writer_descriptor_bytes(const struct zip_writer_member *member);
/* A whole member. */
void zip_writer_add_member(struct zip_writer *w, const char *name, const void *bytes, size_t size);
/* Fold a CRC into w->crc_hash. */
void zip_writer_fold_crc(struct zip_writer *w, uint32_t crc);
/* The directory and the end records. */
void zip_writer_finish(struct zip_writer *w);

#endif
