/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive.h -- writes and reads archives: the zip files of torch.save().  Each item is one.
 *
 * The writer makes the same bytes as torch >= 2.7, with real CRC32s.  The reader
 * does not trust its input.
 */
#ifndef FORMAT_ARCHIVE_H
#define FORMAT_ARCHIVE_H

#include "base/base.h"
#include "format/pickle.h"
#include "model/model.h"

/* data.pkl of an object: what pickle_parse() takes.  Memory is limited by the size of the item. */
#define ARCHIVE_MAX_PICKLE_BYTES ((uint64_t)PICKLE_MAX_BYTES)
#define ARCHIVE_MAX_RECORDS 1024u
#define ARCHIVE_MAX_DIRECTORY_BYTES ((uint64_t)1 << 20)
/* The limits for a whole file of torch.save(). */
#define ARCHIVE_LARGE_MAX_PICKLE_BYTES ((uint64_t)256 << 20)
#define ARCHIVE_LARGE_MAX_RECORDS ((uint64_t)1 << 20)
#define ARCHIVE_LARGE_MAX_DIRECTORY_BYTES ((uint64_t)256 << 20)

#define ARCHIVE_HEAD_MEMBERS 4

/*
 * The archive of a row-major, contiguous tensor is head | data | tail.  Everything but the data is
 * known from its dtype and lengths, except the CRC32 of the data, which is in the tail.
 */
struct archive_tensor_layout {
    uint64_t head_bytes;
    uint64_t data_bytes;
    uint64_t tail_bytes;
    /* The members in the head, and the data.  The directory in the tail lists them. */
    struct {
        uint32_t offset;
        uint32_t size;
        uint32_t crc;
    } head[ARCHIVE_HEAD_MEMBERS];
    uint32_t data_header; /* offset of the data's local header */
};
/* Compute the layout, and append the head to ${head} unless that is NULL. */
enum sidestep_status archive_tensor_write_head(enum sidestep_dtype dtype, uint32_t ndim,
                                               const int64_t *lengths, struct buffer *head,
                                               struct archive_tensor_layout *layout,
                                               struct sidestep_error *err);
/* Append the tail of layout->tail_bytes.  ${first_bytes}: the first eight bytes of the data, on
 * which torch's serialization_id may depend.  Ignored if there are fewer. */
enum sidestep_status archive_tensor_write_tail(const struct archive_tensor_layout *layout,
                                               uint32_t data_crc, const uint8_t first_bytes[8],
                                               struct buffer *tail, struct sidestep_error *err);
/* The last tail that was written.  Tails of the same layout differ only in the data's CRC, in the
 * serialization id, which depends on it, and in the id's CRC.  Zeroed at first. */
struct archive_tail_cache {
    struct archive_tensor_layout layout;
    struct buffer bytes; /* the tail; empty: none yet */
    size_t data_crcs[2]; /* where ${bytes} has the data's CRC */
    size_t id_crcs[2];   /* where it has the id's CRC */
    size_t id;           /* where it has the id */
};
void archive_tail_cache_release(struct archive_tail_cache *cache);
/* As archive_tensor_write_tail(), but changes the last tail if it has the same layout. */
enum sidestep_status archive_tensor_write_tail_cached(
    struct archive_tail_cache *cache, const struct archive_tensor_layout *layout, uint32_t data_crc,
    const uint8_t first_bytes[8], struct buffer *tail, struct sidestep_error *err);

/* Append the whole archive of an object, as torch.save(obj) writes it. */
enum sidestep_status archive_object_write(const struct sidestep_value *value, struct buffer *out,
                                          struct sidestep_error *err);

/* The one tensor of an archive. */
struct archive_tensor {
    enum sidestep_dtype dtype;
    uint32_t ndim;
    int64_t shape[SIDESTEP_MAX_NDIM];
    int64_t strides[SIDESTEP_MAX_NDIM]; /* elements */
    uint64_t storage_offset;            /* elements */
    uint64_t data_offset;               /* of the storage's bytes, in the archive */
    uint64_t data_bytes;
    uint32_t data_crc;
    bool has_crc;   /* false: the writer omitted CRCs */
    bool swapped;   /* big-endian */
    bool conjugate; /* the reader must conjugate the elements */
    bool negative;  /* the reader must negate the elements */
    bool row_major; /* contiguous: element 0 is at data_offset + storage_offset * size */
};

/*
 * Parse the archive that fills [offset, offset + length) of ${source} and has one plain tensor.
 * Reads the directory and data.pkl, not the data.  Checks all sizes, and the CRCs of what it
 * reads.  ECORRUPT, or EUNSUPPORTED (quantised, sparse, subclass, compressed member), with the
 * reason.
 */
enum sidestep_status archive_tensor_read(const struct source *source, uint64_t offset,
                                         uint64_t length, struct archive_tensor *out,
                                         struct sidestep_error *err);

/* Decode the object whose archive is ${bytes}.  Objects of classes become OPAQUE. */
enum sidestep_status archive_object_read(const void *bytes, size_t length,
                                         struct sidestep_value **out, struct sidestep_error *err);

/* The same of the archive in [offset, offset + length) of ${source}.  Reads no storages. */
enum sidestep_status archive_object_read_at(const struct source *source, uint64_t offset,
                                            uint64_t length, struct sidestep_value **out,
                                            struct sidestep_error *err);

/* As archive_object_read(), without loss.  EUNSUPPORTED: it is not plain data (see
 * pickle_to_plain_value()). */
enum sidestep_status archive_object_read_plain(const void *bytes, size_t length,
                                               struct sidestep_value **out,
                                               struct sidestep_error *err);

/* Check the structure and all CRCs of an archive, whatever it contains. */
enum sidestep_status archive_check(const struct source *source, uint64_t offset, uint64_t length,
                                   struct sidestep_error *err);

/* The same for a whole file of torch.save(). */
enum sidestep_status archive_check_file(const struct source *source, struct sidestep_error *err);

/* Undo, in place, what the flags of ${tensor} say (swapped, conjugate, negative) about ${elements}
 * elements. */
void archive_tensor_resolve(const struct archive_tensor *tensor, void *data, uint64_t elements);

#endif
