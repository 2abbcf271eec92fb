/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_list.h -- writes and reads lists of the stored chunks of a checkpoint, in few bytes.
 *
 * A list is a page of an index (chunk_index.h).  A rank takes from it the chunks that its state
 * needs, so it does not have the metadata of the whole checkpoint.
 *
 * docs/FORMAT.md, section 4.1, specifies the bytes of a record.
 */
#ifndef FORMAT_CHUNK_LIST_H
#define FORMAT_CHUNK_LIST_H

#include "base/base.h"
#include "format/footer.h"
#include "model/model.h"

enum chunk_list_flags {
    CHUNK_LIST_OBJECT = 1,
    CHUNK_LIST_REQUIRES_GRAD = 2,
    CHUNK_LIST_SAME_SHAPE = 4, /* as the previous tensor; not in the first record of a list */
    CHUNK_LIST_WHOLE = 8,      /* the box is the tensor */
    CHUNK_LIST_TRANSFORM = 16,
    CHUNK_LIST_FIRST = 32,  /* first of its name: place and path follow the name */
    CHUNK_LIST_JOINED = 64, /* with FIRST: the texts of the path, joined, are the name */
    CHUNK_LIST_ALL_FLAGS = 127,
};

/* In the number of an item of a path; the rest of the number is 4 times the length of its text. */
enum chunk_list_path_kinds {
    CHUNK_LIST_INDEX = 1,
    CHUNK_LIST_INT_KEY = 2,
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
    /* Only in the first record of a name. */
    bool is_first;
    size_t place; /* of the name in .metadata */
    uint32_t path_length;
    const struct sidestep_path_item *path;
};

struct chunk_list {
    struct buffer bytes;
    char name[SIDESTEP_MAX_NAME + 1]; /* of the previous record */
    uint32_t ndim;                    /* of the previous tensor; SIDESTEP_MAX_NDIM + 1: none */
    int64_t shape[SIDESTEP_MAX_NDIM];
};
struct chunk_list *chunk_list_new(struct sidestep_error *err);
void chunk_list_free(struct chunk_list **list);
void chunk_list_add(struct chunk_list *list, const struct chunk_record *record);
/* The next record is the first of another list, which follows this one. */
void chunk_list_begin(struct chunk_list *list);

/* What a reader takes from a list. */
struct chunk_list_filter {
    /* Take the chunks that overlap its shards, and its objects.  NULL: take everything, with the
     * paths, in the order of .metadata; the lists must be all pages of an index. */
    const struct sidestep_state_dict *state;
    bool all_names;           /* take all other names, too, without chunks */
    const char *const *files; /* names of the files by number */
    size_t file_count;
};
/* Add what ${filter} selects to ${out}, which is empty; names of files are not copied.  With a
 * state,
 * ${out} gets ->of_state and no table of names.  ${filter} and ${out} must outlive the reader. */
struct chunk_list_reader;
struct chunk_list_reader *chunk_list_reader_new(const struct chunk_list_filter *filter,
                                                struct metadata *out, struct sidestep_error *err);
void chunk_list_reader_free(struct chunk_list_reader **reader);
/* Take from a page, which begins with the name ${first}.  Pages come in their order.
 * ECORRUPT: it is not a page, does not belong there, or contradicts itself. */
enum sidestep_status chunk_list_reader_add(struct chunk_list_reader *reader, const void *page,
                                           size_t length, const char *first,
                                           struct sidestep_error *err);
/* Complete ${out}.  ECORRUPT: everything is taken, and pages are missing. */
enum sidestep_status chunk_list_reader_finish(struct chunk_list_reader *reader,
                                              struct sidestep_error *err);

#endif
