/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metadata.h -- says what a checkpoint contains and where: the contents of DCP's `.metadata`.
 *
 * format/dcp_metadata_read.c makes it from torch's pickle, commit/ from footers, and checkpoint/
 * from files of other formats.
 */
#ifndef MODEL_METADATA_H
#define MODEL_METADATA_H

#include "base/base.h"
#include "model/box.h"
#include "model/chunk_table.h"

struct metadata_storage {
    const char *file; /* relative to the checkpoint's directory; NULL: not recorded */
    uint64_t offset;
    uint64_t length;
    /* The codecs: "stream.zstd/1", several joined by ',' in stored order.  NULL: none. */
    const char *transform;
};

struct metadata_chunk {
    struct box box;
    struct metadata_storage storage;
};

struct metadata_entry {
    const char *name;
    bool is_object;
    /* Tensors. */
    enum sidestep_dtype dtype; /* NONE: an unknown dtype */
    const char *dtype_name;    /* torch's, without "torch." */
    uint32_t ndim;
    const int64_t *shape;
    bool requires_grad;
    size_t chunk_count;
    size_t chunk_capacity; /* of ${chunks} while it grows; 0: exactly chunk_count */
    struct metadata_chunk *chunks;
    /* Objects. */
    struct metadata_storage storage;
    const char *unreadable; /* why it cannot be read; NULL: no reason is known */
    /* planner_data: the path in the nested state dict.  0: not recorded. */
    uint32_t path_length;
    const struct sidestep_path_item *path;
};

struct metadata {
    struct arena arena; /* owns everything below, except the two tables */
    struct metadata_entry *entries;
    size_t count;
    size_t capacity; /* of ${entries} while it grows; 0: exactly count */
    struct hash_table names;
    /* Or what a state needs of it was taken from an index: for each entry of that state that is the
     * first with its name, the index of the saved one; SIZE_MAX: it was not saved. */
    size_t *of_state;          /* NULL: use ${names} */
    struct chunk_table chunks; /* empty until metadata_index_chunks() */
    const char *save_id;       /* storage_meta.save_id; NULL: none */
    const char *checkpoint_id; /* storage_meta.checkpoint_id as text; NULL: none */
};

void metadata_release(struct metadata *metadata);
#define OWNED_METADATA __attribute__((cleanup(metadata_release))) struct metadata
/* Build the table of names.  ECORRUPT: two entries have one name. */
enum sidestep_status metadata_index_names(struct metadata *metadata, struct sidestep_error *err);
/* Build the table of chunks.  ECORRUPT: two chunks of a tensor have the same offsets. */
enum sidestep_status metadata_index_chunks(struct metadata *metadata, struct sidestep_error *err);
const struct metadata_entry *metadata_find(const struct metadata *metadata, const char *name);
/* The size of a tensor, in bytes. */
uint64_t metadata_tensor_bytes(const struct metadata_entry *entry);

#endif
