/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive.h -- one item of a data file: the small zip that torch.save() makes.  Written byte for
 * byte as torch >= 2.7 does ("generation B"), with real CRC32s; read as hostile input.
 */
#ifndef FORMAT_ARCHIVE_H
#define FORMAT_ARCHIVE_H

#include "base/base.h"
#include "model/model.h"

#define ARCHIVE_MAX_PICKLE_BYTES ((uint64_t)64 << 20) /* data.pkl of a tensor or object */
#define ARCHIVE_MAX_RECORDS 1024u
#define ARCHIVE_MAX_DIRECTORY_BYTES ((uint64_t)1 << 20)
/* The same for a whole file of torch.save(). */
#define ARCHIVE_LARGE_MAX_PICKLE_BYTES ((uint64_t)256 << 20)
#define ARCHIVE_LARGE_MAX_RECORDS ((uint64_t)1 << 20)
#define ARCHIVE_LARGE_MAX_DIRECTORY_BYTES ((uint64_t)256 << 20)

#define ARCHIVE_HEAD_MEMBERS 4

/*
 * The archive of a row-major, contiguous tensor is head | data | tail.  All sizes and all bytes
 * are known beforehand, except the CRC32 of the data, which the tail needs.
 */
struct archive_tensor_layout {
    uint64_t head_bytes;
    uint64_t data_bytes;
    uint64_t tail_bytes;
    /* Of the members in the head, and of the data: what the tail's directory repeats. */
    struct {
        uint32_t offset;
        uint32_t size;
        uint32_t crc;
    } head[ARCHIVE_HEAD_MEMBERS];
    uint32_t data_header; /* where the data's local header lies */
};
/* Compute the layout, and append the head to ${head} if that is not NULL. */
enum sidestep_status archive_tensor_write_head(enum sidestep_dtype dtype, uint32_t ndim,
                                               const int64_t *lengths, struct buffer *head,
                                               struct archive_tensor_layout *layout,
                                               struct sidestep_error *err);
/* Append the tail: exactly layout->tail_bytes.  ${first_bytes}: the first eight bytes of the data
 * as stored (unread if there are fewer), for torch's serialization_id quirk. */
enum sidestep_status archive_tensor_write_tail(const struct archive_tensor_layout *layout,
                                               uint32_t data_crc, const uint8_t first_bytes[8],
                                               struct buffer *tail, struct sidestep_error *err);
/* The last tail of one who makes many: tensors that are alike have tails that differ in a number, a
 * text made of it, and their CRCs.  Begins zeroed. */
struct archive_tail_cache {
    struct archive_tensor_layout layout;
    struct buffer bytes; /* empty: none yet */
    size_t data_crcs[2]; /* where in ${bytes} the CRC of the data stands ... */
    size_t id_crcs[2];   /* ... and that of the id ... */
    size_t id;           /* ... which is there */
};
void archive_tail_cache_release(struct archive_tail_cache *last);
/* archive_tensor_write_tail(), out of the last one if that was of the same layout. */
enum sidestep_status archive_tensor_write_tail_cached(
    struct archive_tail_cache *last, const struct archive_tensor_layout *layout, uint32_t data_crc,
    const uint8_t first_bytes[8], struct buffer *tail, struct sidestep_error *err);

/* Append the whole archive of an object, as torch.save(obj) writes it. */
enum sidestep_status archive_object_write(const struct sidestep_value *value, struct buffer *out,
                                          struct sidestep_error *err);

/* What an archive says about the one tensor that it holds. */
struct archive_tensor {
    enum sidestep_dtype dtype;
    uint32_t ndim;
    int64_t shape[SIDESTEP_MAX_NDIM];
    int64_t strides[SIDESTEP_MAX_NDIM]; /* elements */
    uint64_t storage_offset;            /* elements */
    uint64_t data_offset;               /* of the storage's bytes, in the slice */
    uint64_t data_bytes;
    uint32_t data_crc;
    bool has_crc;   /* false: the writer left CRCs out */
    bool swapped;   /* big-endian */
    bool conjugate; /* lazily: the reader must conjugate / negate */
    bool negative;
    bool row_major; /* contiguous: element 0 is at data_offset + storage_offset * size */
};

/*
 * Parse the archive that fills [offset, offset + length) of ${source} and holds one plain tensor.
 * Reads the directory and data.pkl, not the data.  Checks every size; CRCs of what it reads.
 * ECORRUPT, or EUNSUPPORTED (quantised, sparse, subclass, compressed member), with the reason.
 */
enum sidestep_status archive_tensor_read(const struct source *source, uint64_t offset,
                                         uint64_t length, struct archive_tensor *out,
                                         struct sidestep_error *err);

/* Decode the object whose archive is ${bytes}.  What is not a builtin becomes OPAQUE. */
enum sidestep_status archive_object_read(const void *bytes, size_t length,
                                         struct sidestep_value **out, struct sidestep_error *err);

/* The same of plain data, which loses nothing by it; EUNSUPPORTED: it is more than that. */
enum sidestep_status archive_object_read_plain(const void *bytes, size_t length,
                                               struct sidestep_value **out,
                                               struct sidestep_error *err);

/* Check structure and all CRCs of an archive of any kind (objects of stock checkpoints). */
enum sidestep_status archive_check(const struct source *source, uint64_t offset, uint64_t length,
                                   struct sidestep_error *err);

/* The same of a whole file of torch.save(), whatever it holds. */
enum sidestep_status archive_check_file(const struct source *source, struct sidestep_error *err);

/*
 * Make ${elements} elements plain in place: byte order, conjugation, negation as flagged.
 * A no-op for an unflagged tensor.
 */
void archive_tensor_resolve(const struct archive_tensor *tensor, void *data, uint64_t elements);

#endif
