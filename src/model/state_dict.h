/* SPDX-License-Identifier: BSD-3-Clause */
/* state_dict.h -- defines struct sidestep_state_dict: what a rank saves or loads. */
#ifndef MODEL_STATE_DICT_H
#define MODEL_STATE_DICT_H

#include <stdatomic.h>

#include "base/base.h"
#include "model/box.h"

/* The flags that make up the layout. */
#define STATE_LAYOUT_FLAGS (~SIDESTEP_TENSOR_FENCED)
#define STATE_MAX_ENTRIES ((size_t)1 << 24)

/* Reads a tensor that is not in memory.  Any thread of a save calls read() for the bytes
 * [begin, begin + bytes) of ${box}, which is a part of the entry's box, in row-major order. */
struct state_source {
    enum sidestep_status (*read)(void *context, size_t tensor, const struct box *box,
                                 uint64_t begin, uint64_t bytes, uint8_t *to,
                                 struct sidestep_error *err);
    void *context;
};

struct state_entry {
    const char *name;
    bool is_object;
    size_t next_same_name;  /* index of the next shard with this name; SIZE_MAX: none */
    size_t first_same_name; /* index of the first shard with this name, maybe this one */
    size_t last_same_name;  /* index of the last one; valid in the first shard only */
    /* Tensors.  All arrays are set, even if the caller gave NULL. */
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    struct box box;
    const int64_t *strides;
    void *data;
    const struct state_source *reader; /* instead of ${data}, in saves only */
    size_t reader_tensor;              /* the number for reader->read() */
    uint32_t flags;
    uint32_t turn;      /* of SIDESTEP_TENSOR_FENCED */
    uint32_t on_device; /* 1 + the device with the data, set by loads; 0: host memory */
    bool shares_memory; /* with another tensor, or with itself; set by loads */
    /* Objects: ${value} or ${bytes}.  Neither: a load will set it.  Both: a load has set it. */
    struct sidestep_value *value; /* owned */
    void *bytes;                  /* owned */
    size_t length;
    uint32_t path_length; /* never 0 */
    const struct sidestep_path_item *path;
};

/* The contents of a file, shared by state dicts and saves, or its path. Never changed. */
struct state_blob {
    _Atomic size_t users;
    bool is_path; /* ${bytes} are an absolute path, which a zero ends */
    size_t length;
    uint8_t bytes[];
};
struct state_blob *state_blob_retain(struct state_blob *blob);
/* Accepts NULL. */
void state_blob_release(struct state_blob *blob);

struct state_file {
    char *name;              /* owned */
    struct state_blob *blob; /* NULL: an alias */
    uint32_t flags;          /* enum sidestep_file_flag */
};

struct sidestep_state_dict {
    struct arena arena; /* names, shapes, paths */
    struct state_entry *entries;
    size_t count;
    size_t capacity;
    struct hash_table names; /* to the first entry with each name */
    size_t *box_slots;       /* hash table of shards by name and box: index + 1; 0: free */
    size_t box_capacity;
    size_t box_count; /* tensor shards */
    struct state_file *files;
    size_t file_count, file_capacity;
};

/* Add a tensor.  ${reader} NULL: it is in memory.  Otherwise it is whole, and ${reader} reads it as
 * its tensor ${number}; tensor->data is ignored.  Only for blocking saves with pool_bytes. */
enum sidestep_status state_dict_add_tensor(struct sidestep_state_dict *state,
                                           const struct sidestep_tensor *tensor,
                                           const struct state_source *reader, size_t number,
                                           struct sidestep_error *err);
/* The first entry with this name, or NULL. */
struct state_entry *state_dict_find(const struct sidestep_state_dict *state, const char *name);
/* Replace the object of an entry.  The entry owns ${value} and ${bytes} then, which may be NULL. */
void state_entry_set_object(struct state_entry *entry, struct sidestep_value *value, void *bytes,
                            size_t length);
/* Check that the shard, with its first element at ${data}, lies inside the address space.  EINVAL:
 * it does not. */
enum sidestep_status state_entry_check_memory(const struct state_entry *entry, const void *data,
                                              struct sidestep_error *err);
/* Set ${begin} to the address of the shard's first byte in memory, and ${bytes} to the number of
 * bytes from there to the end of its last.  The shard must have elements. */
void state_entry_extent(const struct state_entry *entry, uint64_t *begin, uint64_t *bytes);
/* The shard's box in memory. */
struct box_memory state_entry_memory(const struct state_entry *entry);

#endif
