/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c -- makes a training state with realistic numbers and sizes of tensors. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define LAYERS 24
#define ELEMENT_BYTES 4
#define ALIGN_BYTES ((uint64_t)64)
#define SCALARS 2 /* the last tensors */

struct state_builder {
    struct bench_state *state;
    enum bench_layout layout;
    int64_t parts, part;
    uint64_t at;
    bool is_dry_run; /* the first pass only computes the size */
};

static void add_box(struct state_builder *m, const char *name, uint32_t ndim, const int64_t *shape,
                    const int64_t *offsets, const int64_t *lengths)
{
    struct sidestep_error err = {0};
    uint64_t bytes = ELEMENT_BYTES;

    for (uint32_t d = 0; d < ndim; d++)
        bytes *= (uint64_t)lengths[d];
    struct sidestep_tensor tensor = {
        .struct_size = sizeof(tensor),
        .name = name,
        .dtype = SIDESTEP_FLOAT32,
        .ndim = ndim,
        .shape = shape,
        .offsets = offsets,
        .lengths = lengths,
        .data = m->is_dry_run ? NULL : m->state->memory + m->at,
    };
    if (!m->is_dry_run)
        bench_check(sidestep_state_dict_add_tensor(m->state->dict, &tensor, &err), &err);
    m->at += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static void add(struct state_builder *m, const char *name, uint32_t ndim, int64_t rows,
                int64_t columns)
{
    int64_t shape[2] = {rows, columns}, offsets[2] = {0, 0}, lengths[2] = {rows, columns};
    int axis = m->layout == BENCH_COLUMNS ? 1 : 0;

    if (m->layout == BENCH_WHOLE || ndim <= (uint32_t)axis) {
        add_box(m, name, ndim, shape, offsets, lengths);
        return;
    }
    for (int64_t part = 0; part < m->parts; part++) {
        if (m->layout == BENCH_ROWS && part != m->part)
            continue;
        offsets[axis] = shape[axis] * part / m->parts;
        lengths[axis] = shape[axis] * (part + 1) / m->parts - offsets[axis];
        add_box(m, name, ndim, shape, offsets, lengths);
    }
}

static void add_layer(struct state_builder *m, int layer, int64_t width, int64_t hidden)
{
    static const struct {
        const char *name;
        uint32_t ndim;
        int rows, columns; /* 0: width, 1: hidden */
    } tensors[] = {
        {"attention_norm.weight", 1, 0, 0}, {"attention.q.weight", 2, 0, 0},
        {"attention.q.bias", 1, 0, 0},      {"attention.k.weight", 2, 0, 0},
        {"attention.k.bias", 1, 0, 0},      {"attention.v.weight", 2, 0, 0},
        {"attention.v.bias", 1, 0, 0},      {"attention.out.weight", 2, 0, 0},
        {"mlp_norm.weight", 1, 0, 0},       {"mlp.gate.weight", 2, 1, 0},
        {"mlp.up.weight", 2, 1, 0},         {"mlp.down.weight", 2, 0, 1},
    };
    const int64_t sizes[] = {width, hidden};
    char name[96];

    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        snprintf(name, sizeof(name), "model.layers.%d.%s", layer, tensors[i].name);
        add(m, name, tensors[i].ndim, sizes[tensors[i].rows], sizes[tensors[i].columns]);
    }
}

static void add_all(struct state_builder *m, uint64_t bytes)
{
    const int64_t width = bytes > (uint64_t)3 << 29 ? 1280 : 896, hidden = width * 27 / 10;
    const int64_t layer = 4 * width * width + 3 * width * hidden;
    const int64_t rest = (int64_t)(bytes / ELEMENT_BYTES) - LAYERS * layer;
    const int64_t words = rest / (2 * width);

    if (rest < 2 * width)
        bench_die("the smallest state has 1 GiB");
    add(m, "model.embedding.weight", 2, words, width);
    for (int i = 0; i < LAYERS; i++)
        add_layer(m, i, width, hidden);
    add(m, "model.norm.weight", 1, width, 0);
    add(m, "model.norm.bias", 1, width, 0);
    add(m, "model.head.weight", 2, words, width);
    add(m, "model.rotary.frequencies", 1, 64, 0);
    add(m, "model.positions", 1, 2048, 0);
    add(m, "loss_scale", 0, 0, 0);
    add(m, "step", 0, 0, 0);
}

void bench_state_make(struct bench_state *state, uint64_t bytes, enum bench_layout layout,
                      int64_t parts, int64_t part)
{
    struct state_builder m = {
        .state = state, .layout = layout, .parts = parts, .part = part, .is_dry_run = true};
    struct sidestep_error err = {0};

    add_all(&m, bytes);
    *state =
        (struct bench_state){.bytes = m.at, .memory = bench_map(m.at + BENCH_SLACK_BYTES, false)};
    bench_check(sidestep_state_dict_new(&state->dict, &err), &err);
    m.at = 0;
    m.is_dry_run = false;
    add_all(&m, bytes);
}

void bench_state_fill(struct bench_state *state, uint64_t seed)
{
    uint64_t *words = (uint64_t *)(void *)state->memory;

    for (uint64_t i = 0; i < state->bytes / sizeof(*words); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        words[i] = seed;
    }
    for (uint64_t i = 1; i <= SCALARS; i++)
        memset(state->memory + state->bytes - i * ALIGN_BYTES + ELEMENT_BYTES, 0,
               ALIGN_BYTES - ELEMENT_BYTES);
}

void bench_state_free(struct bench_state *state)
{
    sidestep_state_dict_free(&state->dict);
    bench_unmap(state->memory, state->bytes + BENCH_SLACK_BYTES);
    *state = (struct bench_state){0};
}
