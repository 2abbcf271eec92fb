/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_world.h -- states of several ranks in one process, and their plans. */
#ifndef SUPPORT_PLAN_WORLD_H
#define SUPPORT_PLAN_WORLD_H

#include "base/owned.h"
#include "plan/save_plan.h"
#include "support/unit.h"

#define PLAN_WORLD_MAX 6u
#define DIMS(...) ((int64_t[]){__VA_ARGS__})

struct plan_world {
    uint32_t size;
    const uint32_t *hosts; /* of the ranks; NULL: all are on one host */
    struct sidestep_state_dict *states[PLAN_WORLD_MAX];
    struct buffer tables[PLAN_WORLD_MAX];
    struct buffer out;
    size_t sizes[PLAN_WORLD_MAX];
    struct save_plan plans[PLAN_WORLD_MAX];
};

static inline void plan_world_open(struct plan_world *w, uint32_t size)
{
    *w = (struct plan_world){.size = size};
    for (uint32_t r = 0; r < size; r++)
        assert_int_equal(sidestep_state_dict_new(&w->states[r], NULL), SIDESTEP_OK);
}

static inline void plan_world_clear_plans(struct plan_world *w)
{
    for (uint32_t r = 0; r < w->size; r++) {
        save_plan_release(&w->plans[r]);
        buffer_release(&w->tables[r]);
    }
    buffer_release(&w->out);
}

static inline void plan_world_close(struct plan_world *w)
{
    plan_world_clear_plans(w);
    for (uint32_t r = 0; r < w->size; r++)
        sidestep_state_dict_free(&w->states[r]);
}

static inline void plan_world_add(struct plan_world *w, uint32_t rank, const char *name,
                                  enum sidestep_dtype dtype, const struct box *box,
                                  const int64_t *shape, uint32_t flags)
{
    const struct sidestep_tensor tensor = {
        .struct_size = sizeof(tensor),
        .name = name,
        .dtype = dtype,
        .ndim = box->ndim,
        .shape = shape,
        .offsets = box->offsets,
        .lengths = box->lengths,
        .data = (void *)0x10000, /* plans do not read the data */
        .flags = flags,
    };

    assert_int_equal(sidestep_state_dict_add_tensor(w->states[rank], &tensor, NULL), SIDESTEP_OK);
}

/* Add rows [begin, end) of a tensor of ${rows} rows and ${columns} columns of float32. */
static inline void plan_world_add_rows(struct plan_world *w, uint32_t rank, const char *name,
                                       int64_t begin, int64_t end, int64_t rows, int64_t columns,
                                       uint32_t flags)
{
    plan_world_add(w, rank, name, SIDESTEP_FLOAT32,
                   &(struct box){2, DIMS(begin, 0), DIMS(end - begin, columns)},
                   DIMS(rows, columns), flags);
}

static inline void plan_world_add_object(struct plan_world *w, uint32_t rank, const char *name)
{
    assert_int_equal(sidestep_state_dict_add_bytes(w->states[rank], name, NULL, 0, "x", 1, NULL),
                     SIDESTEP_OK);
}

/* Encode, build and decode plans, as the ranks do. */
static inline enum sidestep_status plan_world_plan(struct plan_world *w, struct sidestep_error *err)
{
    const void *tables[PLAN_WORLD_MAX];
    size_t table_bytes[PLAN_WORLD_MAX], at = 0;

    plan_world_clear_plans(w);
    for (uint32_t r = 0; r < w->size; r++) {
        TRY(save_plan_table_encode(w->states[r], NULL, &w->tables[r], err));
        tables[r] = w->tables[r].bytes;
        table_bytes[r] = w->tables[r].length;
    }
    TRY(save_plan_build(tables, table_bytes, w->size, w->hosts, &w->out, w->sizes, err));
    for (uint32_t r = 0; r < w->size; at += w->sizes[r++])
        TRY(save_plan_decode(w->out.bytes + at, w->sizes[r], w->states[r], &w->plans[r], err));
    assert_int_equal(at, w->out.length);
    return SIDESTEP_OK;
}

static inline const struct save_plan_item *plan_world_find(const struct plan_world *w,
                                                           uint32_t rank, const char *name)
{
    for (size_t i = 0; i < w->plans[rank].count; i++)
        if (strcmp(w->states[rank]->entries[w->plans[rank].items[i].entry].name, name) == 0)
            return &w->plans[rank].items[i];
    return NULL;
}

/* Add a sharded tensor, a replicated tensor and an object, on two ranks. */
static inline void plan_world_sample(struct plan_world *w)
{
    plan_world_open(w, 2);
    for (uint32_t r = 0; r < 2; r++) {
        plan_world_add_rows(w, r, "w", r * 2, r * 2 + 2, 4, 4, 0);
        plan_world_add_rows(w, r, "big", 0, 10, 10, 1 << 18, SIDESTEP_TENSOR_REPLICATED);
        plan_world_add_object(w, r, "step");
    }
    assert_int_equal(plan_world_plan(w, NULL), SIDESTEP_OK);
}

#endif
