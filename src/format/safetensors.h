/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safetensors.h -- files of safetensors: u64 length of a header, the header (JSON: name -> dtype,
 * shape, data_offsets), then the data of the tensors, row-major, without gaps.  Read as hostile
 * input, by the rules of the reference implementation; written so that it and torch can map them.
 */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "base/base.h"

#define SAFETENSORS_MAX_HEADER_BYTES ((uint64_t)100000000) /* the reference implementation's */
#define SAFETENSORS_INDEX_NAME "model.safetensors.index.json"
#define SAFETENSORS_MAX_INDEX_BYTES ((uint64_t)256 << 20)

struct safetensors_tensor {
    const char *name;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape; /* torch's: two values of float4_e2m1fn_x2 are one element */
    uint64_t offset;      /* in the file */
    uint64_t bytes;
    const int64_t *place; /* in a tensor of which this is a piece, see below; NULL: it is whole */
};

struct safetensors {
    struct safetensors_tensor *tensors; /* as the file has them */
    size_t count;
};

/* Is that how a file of safetensors begins?  ${bytes}: its first 9. */
bool safetensors_has_header(const uint8_t bytes[9], uint64_t file_bytes);
/* Or does it begin with the header of one, which goes on behind the file's end? */
bool safetensors_has_truncated_header(const uint8_t bytes[10], uint64_t file_bytes);

/* The header.  Everything lives in ${arena}.  ECORRUPT for everything that the reference refuses;
 * EUNSUPPORTED for a dtype that torch does not have. */
enum sidestep_status safetensors_read_header(const struct source *source, struct arena *arena,
                                             struct safetensors *out, struct sidestep_error *err);

/* The member of a header's metadata by which torch says that files hold pieces of tensors. */
#define SAFETENSORS_SHARDS_KEY "DCP_SHARDING_INFO"
/* Its text into the places of ${all}; ${names}: their numbers. */
struct hash_table;
enum sidestep_status safetensors_read_shard_offsets(const char *text, struct safetensors *all,
                                                    const struct hash_table *names,
                                                    struct arena *arena,
                                                    struct sidestep_error *err);

/* How safetensors spells a dtype; NULL if it has none such. */
const char *safetensors_dtype_name(enum sidestep_dtype dtype);

/* Append the header of a file with these tensors (${name}, ${dtype}, ${ndim} and ${shape} are
 * looked at), whose data follow it in this order; its length is a multiple of 8. */
enum sidestep_status safetensors_write_header(const struct safetensors_tensor *tensors,
                                              size_t count, struct buffer *out,
                                              struct sidestep_error *err);

/* One line of an index: which file has a tensor. */
struct safetensors_index_entry {
    const char *name;
    const char *file;
};
/* Read `model.safetensors.index.json`, a text that ends with a NUL and is changed.  Names of files
 * are one component, so that none leads out of the directory.  The array lives in ${arena}. */
enum sidestep_status safetensors_index_read(char *text, struct arena *arena,
                                            struct safetensors_index_entry **places, size_t *count,
                                            struct sidestep_error *err);
void safetensors_index_write(const struct safetensors_index_entry *places, size_t count,
                             uint64_t total_bytes, struct buffer *out);

#endif
