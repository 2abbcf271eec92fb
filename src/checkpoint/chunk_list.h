/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_list.h -- the stored chunks of a checkpoint in few bytes, as ranks tell them to each other.
 *
 * A load by many ranks reads each footer once. Each rank lists the items of some footers, rank 0
 * puts the lists behind each other, and each rank takes from them the chunks that its state needs.
 * So no rank holds the metadata of the whole checkpoint. Lists may be joined at any place between
 * two of them.
 *
 * The format is not on storage, and may change with each version. A record has
 *      flags (1 byte) | name: length in common with the one before, length of the rest, the rest |
 *      of tensors: dtype (1 byte), shape, box | number of the file, offset, length | transform
 * Numbers are LEB128. Flags say what is left out.
 */
#ifndef CHECKPOINT_CHUNK_LIST_H
#define CHECKPOINT_CHUNK_LIST_H

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"

enum chunk_list_flags {
    CHUNK_LIST_OBJECT = 1,
    CHUNK_LIST_REQUIRES_GRAD = 2,
    CHUNK_LIST_SAME_SHAPE = 4, /* as the tensor before; not in the first record of a list */
    CHUNK_LIST_WHOLE = 8,      /* the box is the tensor */
    CHUNK_LIST_TRANSFORM = 16,
    CHUNK_LIST_ALL_FLAGS = 31,
};

/* A chunk of a tensor, or an object. */
struct chunk_record {
    const char *name;
    bool is_object;
    bool requires_grad;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    struct box box;
    size_t file; /* its number in the manifest */
    uint64_t offset;
    uint64_t length;
    const char *transform; /* NULL: none */
};

struct chunk_list {
    struct buffer bytes;
    char name[SIDESTEP_MAX_NAME + 1]; /* of the record before */
    uint32_t ndim;                    /* of the tensor before; SIDESTEP_MAX_NDIM + 1: none */
    int64_t shape[SIDESTEP_MAX_NDIM];
};
struct chunk_list *chunk_list_new(struct sidestep_error *err);
void chunk_list_free(struct chunk_list **list);
void chunk_list_add(struct chunk_list *list, const struct chunk_record *record);
/* Add the items of a footer. */
void chunk_list_add_footer(struct chunk_list *list, const struct footer *footer, size_t file);

/* What a rank takes from a list. */
struct chunk_list_wish {
    const struct sidestep_state_dict
        *state;               /* the chunks that overlap its shards, and its objects */
    bool all_names;           /* also all other names, without chunks */
    const char *const *files; /* names of the files by number */
    size_t file_count;
};
/* Add what is wished to ${out}, which is empty; names of files are not copied.
 * EPEER: the bytes are no list. ECORRUPT: two chunks of a tensor say different things about it. */
enum sidestep_status chunk_list_read(const void *bytes, size_t length,
                                     const struct chunk_list_wish *wish, struct metadata *out,
                                     struct sidestep_error *err);

#endif
