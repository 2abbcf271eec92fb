/* SPDX-License-Identifier: BSD-3-Clause */
/* saved.h -- makes metadata of a checkpoint without files, and a state to load from it. */
#ifndef SUPPORT_SAVED_H
#define SUPPORT_SAVED_H

#include "model/metadata.h"
#include "model/state_dict.h"
#include "support/unit.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define SAVED_ENTRIES 8u

static inline struct metadata new_metadata(void)
{
    struct metadata m = {0};

    m.entries = arena_new(&m.arena, SAVED_ENTRIES, sizeof(*m.entries));
    assert_non_null(m.entries);
    return m;
}

/* Chunks are stored one after the other in "file". */
static inline struct metadata_entry *save_tensor(struct metadata *m, const char *name,
                                                 enum sidestep_dtype dtype, uint32_t ndim,
                                                 const int64_t *shape, const struct box *boxes,
                                                 size_t count)
{
    struct metadata_entry *entry = &m->entries[m->count++];
    uint64_t offset = 0;

    *entry = (struct metadata_entry){
        .name = name,
        .dtype = dtype,
        .dtype_name = sidestep_dtype_name(dtype),
        .ndim = ndim,
        .shape = arena_copy(&m->arena, shape, ndim * sizeof(*shape)),
        .chunk_count = count,
        .chunks = arena_new(&m->arena, count, sizeof(*entry->chunks)),
    };
    assert_true(entry->shape != NULL && entry->chunks != NULL);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = box_volume(&boxes[i]) * sidestep_dtype_size(dtype);

        entry->chunks[i].box = (struct box){
            boxes[i].ndim, arena_copy(&m->arena, boxes[i].offsets, boxes[i].ndim * sizeof(*shape)),
            arena_copy(&m->arena, boxes[i].lengths, boxes[i].ndim * sizeof(*shape))};
        entry->chunks[i].storage =
            (struct metadata_storage){.file = "file", .offset = offset, .length = bytes};
        offset += bytes;
    }
    return entry;
}

static inline struct sidestep_state_dict *new_state(void)
{
    struct sidestep_state_dict *state = NULL;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    return state;
}

static inline void want(struct sidestep_state_dict *state, const char *name,
                        enum sidestep_dtype dtype, const int64_t *shape, const struct box *box,
                        const int64_t *strides, void *memory)
{
    const struct sidestep_tensor tensor = {
        .struct_size = sizeof(tensor),
        .name = name,
        .dtype = dtype,
        .ndim = box->ndim,
        .shape = shape,
        .offsets = box->offsets,
        .lengths = box->lengths,
        .strides = strides,
        .data = memory,
    };

    assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
}

#endif
