/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world.h -- a training state for tests: the same global tensors for any number of ranks. Each
 * element is a function of tensor, index and seed, so a state that some ranks saved can be checked
 * after a load on others, bit for bit.
 */
#ifndef SUPPORT_WORLD_H
#define SUPPORT_WORLD_H

#include "sidestep/sidestep.h"
#include "support/tensor_memory.h"

#define WORLD_MAX_TENSORS 64

struct world_tensor {
    char name[64];
    enum sidestep_dtype dtype;
    uint32_t ndim;
    int64_t shape[4], offsets[4], lengths[4], strides[4];
    uint32_t flags;
    unsigned char *data; /* of the first element; with strides, in a larger block */
    unsigned char *block;
    size_t block_bytes;
    struct tensor_memory *memory; /* the block, see tensor_memory.h */
    uint64_t frozen;              /* not 0: the tensor keeps the contents of this step */
};

struct world {
    int rank;
    int size;
    struct sidestep_state_dict *state;
    struct world_tensor tensors[WORLD_MAX_TENSORS];
    size_t count;
    bool for_load; /* the state receives objects, instead of having them */
};

enum world_layout {
    WORLD_BY_ROWS,    /* sharded over dimension 0 by torch.chunk's rule */
    WORLD_BY_COLUMNS, /* over dimension 1, if there is one */
};

/* Make the tensors of this rank, zeroed. ${scale} multiplies the rows of large ones. Asserts. */
void world_make(struct world *world, int rank, int size, enum world_layout layout, int64_t scale,
                bool for_load);
void world_free(struct world *world);
/* Fill all tensors and objects with the contents of step ${seed}. */
void world_fill(struct world *world, uint64_t seed);
/* 0, or 1 + the index of the first tensor or object without the contents of step ${seed}. */
int world_check(const struct world *world, uint64_t seed);

#endif
