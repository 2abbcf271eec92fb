/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zip_writer.h -- writes zips with the same bytes as torch.save() of torch >= 2.7.
 *
 * Members are not compressed.  Padding aligns their data, and a descriptor follows each.  Values
 * of more than 32 bits use zip64.  Python and NumPy read these zips, too.
 *
 * The writer counts the position in the archive.  So other code may write the data of a member
 * (zip_writer_skip()), and the writer may count without writing.
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
    uint64_t crc_at[2]; /* offsets in the archive of its CRC: in the descriptor (0: there is none),
                           and in the directory */
};

struct zip_writer {
    const char *prefix; /* of all names: "archive/" */
    struct zip_writer_member *members;
    size_t capacity; /* of ${members}, which the caller owns */
    size_t count;
    struct buffer *out; /* NULL: only count */
    uint64_t position;  /* in the archive */
    uint64_t crc_hash;  /* of the CRCs so far, as in torch's serialization id */
};

/* Begin a member.  Its data begins at the new w->position, aligned.  ${name} must outlive ${w}. */
struct zip_writer_member *zip_writer_begin_member(struct zip_writer *w, const char *name,
                                                  uint64_t size);
/* Skip ${bytes} of the member's data, which other code writes. */
void zip_writer_skip(struct zip_writer *w, uint64_t bytes);
/* End the member whose data ends at w->position. */
void zip_writer_end_member(struct zip_writer *w, struct zip_writer_member *member, uint32_t crc);
/* The bytes that zip_writer_end_member() writes. */
unsigned zip_writer_descriptor_bytes(const struct zip_writer_member *member);
/* Write a whole member. */
void zip_writer_add_member(struct zip_writer *w, const char *name, const void *bytes, size_t size);
/* Fold a CRC into w->crc_hash. */
void zip_writer_fold_crc(struct zip_writer *w, uint32_t crc);
/* Write the directory and the end records. */
void zip_writer_finish(struct zip_writer *w);

#endif
