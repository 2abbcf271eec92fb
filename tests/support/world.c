/* SPDX-License-Identifier: BSD-3-Clause */
/* world.c -- makes, fills and checks a training state for tests. */
#include "world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    int64_t shape[4];
    bool scaled;     /* the test's scale multiplies dimension 0 */
    bool replicated; /* on all ranks, with SIDESTEP_TENSOR_REPLICATED */
    bool strided;    /* every second element of each row, and gaps between rows */
} blueprint[] = {
    {"model.embed.weight", SIDESTEP_FLOAT32, 2, {257, 96}, true, false, false},
    {"model.layers.0.weight", SIDESTEP_BFLOAT16, 2, {64, 33}, false, false, true},
    {"model.layers.0.bias", SIDESTEP_FLOAT16, 1, {7}, false, false, false},
    {"model.layers.1.weight", SIDESTEP_FLOAT8_E4M3FN, 3, {5, 9, 11}, false, false, false},
    {"model.head.weight", SIDESTEP_FLOAT32, 2, {300, 64}, true, true, false},
    {"optim.step", SIDESTEP_INT64, 0, {0}, false, true, false},
    {"optim.exp_avg", SIDESTEP_FLOAT64, 4, {6, 5, 3, 2}, false, false, false},
    {"optim.complex", SIDESTEP_COMPLEX128, 2, {4, 3}, false, false, false},
    {"mask", SIDESTEP_BOOL, 2, {90, 70}, false, false, true}, /* its compressed size is smaller,
                                                                 that of the others is not */
    {"empty", SIDESTEP_UINT16, 2, {0, 4}, false, false, false},
    {"two_rows", SIDESTEP_UINT32, 2, {2, 5}, false, false, false},
    {"packed", SIDESTEP_FLOAT4_E2M1FN_X2, 1, {40}, false, false, false},
};

static void shard(struct world_tensor *t, int rank, int size, uint32_t dim)
{
    int64_t block = (t->shape[dim] + size - 1) / size;
    int64_t begin = rank * block < t->shape[dim] ? rank * block : t->shape[dim];
    int64_t end = begin + block < t->shape[dim] ? begin + block : t->shape[dim];

    t->offsets[dim] = begin;
    t->lengths[dim] = end - begin;
}

static void allocate(struct world_tensor *t, int place, bool strided)
{
    size_t item = sidestep_dtype_size(t->dtype);
    int64_t step = strided ? 2 : 1;

    for (uint32_t d = t->ndim; d-- > 0;) {
        t->strides[d] = step;
        step *= t->lengths[d] > 0 ? t->lengths[d] : 1;
        if (strided && d == t->ndim - 1)
            step += 3;
    }
    t->block_bytes = (size_t)(step + 1) * item;
    t->memory = tensor_memory_new(t->block_bytes, place);
    t->data = t->block = tensor_memory_view(t->memory);
}

void world_make(struct world *world, int rank, int size, enum world_layout layout, int64_t scale,
                bool for_load)
{
    struct sidestep_error err = {0};

    *world = (struct world){.rank = rank, .size = size, .for_load = for_load};
    enum sidestep_status status = sidestep_state_dict_new(&world->state, &err);
    assert(status == SIDESTEP_OK);
    for (size_t i = 0; i < sizeof(blueprint) / sizeof(blueprint[0]); i++) {
        struct world_tensor *t = &world->tensors[world->count++];
        snprintf(t->name, sizeof(t->name), "%s", blueprint[i].name);
        t->dtype = blueprint[i].dtype;
        t->ndim = blueprint[i].ndim;
        memcpy(t->shape, blueprint[i].shape, sizeof(t->shape));
        if (blueprint[i].scaled)
            t->shape[0] *= scale;
        memcpy(t->lengths, t->shape, sizeof(t->lengths));
        if (blueprint[i].replicated)
            t->flags = SIDESTEP_TENSOR_REPLICATED;
        else if (t->ndim > 0)
            shard(t, rank, size, layout == WORLD_BY_COLUMNS && t->ndim > 1 ? 1 : 0);
        allocate(t, rank * WORLD_MAX_TENSORS + (int)i, blueprint[i].strided);
        const char *tail = strncmp(t->name, "model.", 6) == 0 ? t->name + 6 : NULL;
        const struct sidestep_path_item path[] = {{.key = "model"}, {.key = tail}};
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = t->name,
                                         .dtype = t->dtype,
                                         .ndim = t->ndim,
                                         .shape = t->shape,
                                         .offsets = t->offsets,
                                         .lengths = t->lengths,
                                         .strides = t->strides,
                                         .data = tensor_memory_address(t->memory),
                                         .flags = t->flags,
                                         .path_length = tail != NULL ? 2 : 0,
                                         .path = path};
        status = sidestep_state_dict_add_tensor(world->state, &tensor, &err);
        if (status != SIDESTEP_OK)
            fprintf(stderr, "%s\n", err.message);
        assert(status == SIDESTEP_OK);
    }
    if (for_load) {
        status = sidestep_state_dict_add_value(world->state, "config", NULL, 0, NULL, &err);
        assert(status == SIDESTEP_OK);
    }
}

void world_free(struct world *world)
{
    sidestep_state_dict_free(&world->state);
    for (size_t i = 0; i < world->count; i++)
        tensor_memory_free(world->tensors[i].memory);
    world->count = 0;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Set the bytes of each element, or compare them. False: one differs. */
static bool visit(const struct world_tensor *t, uint64_t seed, size_t id, bool set)
{
    size_t item = sidestep_dtype_size(t->dtype);
    int64_t at[4] = {0};
    int64_t volume = 1;

    for (uint32_t d = 0; d < t->ndim; d++)
        volume *= t->lengths[d];
    for (int64_t n = 0; n < volume; n++) {
        int64_t place = 0, global = 0;
        unsigned char bytes[16];
        for (uint32_t d = 0; d < t->ndim; d++) {
            place += at[d] * t->strides[d];
            global = global * t->shape[d] + t->offsets[d] + at[d];
        }
        for (size_t half = 0; half < 2; half++) {
            uint64_t value = mix(seed * 1000003 + id * 7919 + (uint64_t)global * 31 + half + 1);
            memcpy(bytes + 8 * half, &value, 8);
        }
        if (t->dtype == SIDESTEP_BOOL)
            bytes[0] &= 1;
        if (set)
            memcpy(t->data + (size_t)place * item, bytes, item);
        else if (memcmp(t->data + (size_t)place * item, bytes, item) != 0)
            return false;
        for (uint32_t d = t->ndim; d-- > 0;) {
            if (++at[d] < t->lengths[d])
                break;
            at[d] = 0;
        }
    }
    return true;
}

static uint64_t seed_of(const struct world_tensor *t, uint64_t seed)
{
    return t->frozen != 0 ? t->frozen : seed;
}

struct fill_task {
    const struct world_tensor *tensor;
    uint64_t seed;
    size_t id;
};

static void fill_tensor(void *context)
{
    struct fill_task *fill_task = context;

    (void)visit(fill_task->tensor, fill_task->seed, fill_task->id, true);
    free(fill_task);
}

void world_fill(struct world *world, uint64_t seed)
{
    struct sidestep_error err = {0};

    for (size_t i = 0; i < world->count; i++) {
        struct fill_task *fill_task = malloc(sizeof(*fill_task));
        assert(fill_task != NULL);
        *fill_task = (struct fill_task){&world->tensors[i], seed_of(&world->tensors[i], seed), i};
        tensor_memory_run(world->tensors[i].memory, fill_tensor, fill_task);
    }
    assert(!world->for_load);
    struct sidestep_value *config = sidestep_value_dict();
    enum sidestep_status status = sidestep_value_set(config, sidestep_value_str("step"),
                                                     sidestep_value_int((int64_t)seed), &err);
    assert(status == SIDESTEP_OK);
    status = sidestep_value_set(config, sidestep_value_str("lr"),
                                sidestep_value_float(1.0 / (double)(seed + 3)), &err);
    assert(status == SIDESTEP_OK);
    if (sidestep_state_dict_value(world->state, "config") == NULL) {
        status = sidestep_state_dict_add_value(world->state, "config", NULL, 0, config, &err);
        assert(status == SIDESTEP_OK);
    } else {
        status = sidestep_state_dict_set_value(world->state, "config", config, &err);
        assert(status == SIDESTEP_OK);
    }
}

int world_check(const struct world *world, uint64_t seed)
{
    const struct sidestep_value *config = sidestep_state_dict_value(world->state, "config");

    for (size_t i = 0; i < world->count; i++) {
        tensor_memory_settle(world->tensors[i].memory);
        if (!visit(&world->tensors[i], seed_of(&world->tensors[i], seed), i, false))
            return 1 + (int)i;
    }
    if (config == NULL || sidestep_value_count(config) != 2 ||
        sidestep_value_get_int(sidestep_value_item(config, 0)) != (int64_t)seed)
        return 1 + (int)world->count;
    return 0;
}
