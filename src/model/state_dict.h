/* SPDX-License-Identifier: BSD-3-Clause */
/* state_dict.h -- struct sidestep_state_dict from the inside. */
#ifndef MODEL_STATE_DICT_H
#define MODEL_STATE_DICT_H

#include "base/base.h"
#include "model/box.h"

/* The flags that make up the layout. */
#define STATE_LAYOUT_FLAGS (~SIDESTEP_TENSOR_FENCED)
#define STATE_MAX_ENTRIES ((size_t)1 << 24)

/* Where the bytes of a tensor come from that is not in memory: any thread of a save asks for a
 * stretch of the row-major bytes of ${box}, a part of the entry's. */
struct state_source {
    enum sidestep_status (*read)(void *context, size_t tensor, const struct box *box,
                                 uint64_t begin, uint64_t bytes, uint8_t *to,
                                 struct sidestep_error *err);
    void *context;
};

struct state_entry {
    const char *name;
    bool is_object;
    size_t next_same_name;  /* index of the next shard of this name; SIZE_MAX: none */
    size_t first_same_name; /* index of the first shard; an entry's own if it is the first */
    size_t last_same_name;  /* of the first shard only: index of the last one */
    /* Tensors; all arrays filled, also where the caller gave NULL. */
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    struct box box;
    const int64_t *strides;
    void *data;
    const struct state_source *reader; /* instead of ${data}; saves only */
    size_t reader_tensor;              /* for reader->read() */
    uint32_t flags;
    uint32_t turn;      /* of SIDESTEP_TENSOR_FENCED */
    uint32_t on_device; /* 1 + the device it lies on; 0: host memory.  Loads find it out */
    /* Objects: ${value} or ${bytes}; neither: wanted by a load; both: loaded. */
    struct sidestep_value *value; /* owned */
    void *bytes;                  /* owned, malloc */
    size_t length;
    uint32_t path_length; /* never 0 */
    const struct sidestep_path_item *path;
};

struct sidestep_state_dict {
    struct arena arena; /* names, shapes, paths */
    struct state_entry *entries;
    size_t count;
    size_t capacity;
    struct hash_table names; /* first entry of each name */
    size_t *box_slots;       /* hash table of the tensors by name and box: index + 1; 0: free */
    size_t box_capacity;
    size_t box_count; /* tensor shards */
};

/* Add a tensor, all of it, whose bytes ${reader} has; tensor->data is not looked at.  For saves
 * that copy: a blocking one under a pool_bytes. */
enum sidestep_status state_dict_add_from_source(struct sidestep_state_dict *state,
                                                const struct sidestep_tensor *tensor,
                                                const struct state_source *reader, size_t number,
                                                struct sidestep_error *err);
/* First entry of this name, or NULL. */
struct state_entry *state_dict_find(const struct sidestep_state_dict *state, const char *name);
/* Give a loaded object to an entry; takes both (either may be NULL), frees what was there. */
void state_entry_set_object(struct state_entry *entry, struct sidestep_value *value, void *bytes,
                            size_t length);
/* Where the shard would lie with its first element at ${data} must be sayable in signed bytes, and
 * be memory.  EINVAL names the tensor. */
enum sidestep_status state_entry_check_memory(const struct state_entry *entry, const void *data,
                                              struct sidestep_error *err);
/* From its first to its last byte in memory; it has an element. */
void state_entry_extent(const struct state_entry *entry, uint64_t *begin, uint64_t *bytes);
/* The shard in memory. */
struct box_memory state_entry_memory(const struct state_entry *entry);

#endif
