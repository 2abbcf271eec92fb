/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safetensors.h -- reads and writes files of safetensors.
 *
 * Such a file has the u64 length of a header, the header (JSON: name -> dtype, shape,
 * data_offsets), and the data of the tensors, row-major, without gaps.  The reader does not trust
 * its input, and follows the rules of the reference implementation.  It and
 * torch can map the files that the writer makes.
 */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "base/base.h"

#define SAFETENSORS_MAX_HEADER_BYTES ((uint64_t)100000000) /* as the reference implementation */
#define SAFETENSORS_INDEX_NAME "model.safetensors.index.json"
#define SAFETENSORS_MAX_INDEX_BYTES ((uint64_t)256 << 20)

struct safetensors_tensor {
    const char *name;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape; /* as in torch: two values of float4_e2m1fn_x2 are one element */
    uint64_t offset;      /* in the file */
    uint64_t bytes;
    const int64_t
        *place; /* offsets in the whole tensor, of which this is a piece; NULL: it is whole */
};

struct safetensors {
    struct safetensors_tensor *tensors; /* in the order of the file */
    size_t count;
};

/* Does a file begin like safetensors?  ${bytes}: its first 9. */
bool safetensors_has_header(const uint8_t bytes[9], uint64_t file_bytes);
/* Does a file begin like safetensors, with a header that is longer than the file? */
bool safetensors_has_truncated_header(const uint8_t bytes[10], uint64_t file_bytes);

/* Read the header.  Everything lives in ${arena}.  ECORRUPT: the reference implementation refuses
 * it, too.  EUNSUPPORTED: torch does not have such a dtype. */
enum sidestep_status safetensors_read_header(const struct source *source, struct arena *arena,
                                             struct safetensors *out, struct sidestep_error *err);

/* The member of a header's metadata in which torch says where pieces lie in their tensors. */
#define SAFETENSORS_SHARDS_KEY "DCP_SHARDING_INFO"
/* Parse its text, and set the places of ${all}.  ${names}: from names to indices in ${all}. */
struct hash_table;
enum sidestep_status safetensors_read_shard_offsets(const char *text, struct safetensors *all,
                                                    const struct hash_table *names,
                                                    struct arena *arena,
                                                    struct sidestep_error *err);

/* Append the header of a file with these tensors, whose data follow it in this order.  Uses only
 * their ${name}, ${dtype}, ${ndim} and ${shape}.  The length is a multiple of 8. */
enum sidestep_status safetensors_write_header(const struct safetensors_tensor *tensors,
                                              size_t count, struct buffer *out,
                                              struct sidestep_error *err);

/* One line of an index: a tensor, and the file that has it. */
struct safetensors_index_entry {
    const char *name;
    const char *file;
};
/* Parse `model.safetensors.index.json`.  ${text} ends with a NUL, and is changed.  Names of files
 * must be one component, so that none leads out of the directory.  The array lives in ${arena}. */
enum sidestep_status safetensors_index_read(char *text, struct arena *arena,
                                            struct safetensors_index_entry **places, size_t *count,
                                            struct sidestep_error *err);
void safetensors_index_write(const struct safetensors_index_entry *places, size_t count,
                             uint64_t total_bytes, struct buffer *out);

#endif
