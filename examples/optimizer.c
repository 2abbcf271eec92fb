/* SPDX-License-Identifier: BSD-3-Clause */
/* optimizer.c -- Adam for the example, with its moments sharded over the ranks. */
#include "optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DECAY_FIRST 0.9f
#define DECAY_SECOND 0.99f

static struct slice slice_of(const struct model_tensor *tensor, int rank, int size)
{
    size_t first = tensor->rows * (size_t)rank / (size_t)size;
    size_t end = tensor->rows * ((size_t)rank + 1) / (size_t)size;

    return (struct slice){
        .first_row = first, .rows = end - first, .count = (end - first) * tensor->columns};
}

int optimizer_init(struct optimizer *optimizer, struct model *model, MPI_Comm comm)
{
    struct optimizer *o = optimizer;
    size_t largest = 0, ranks;

    *o = (struct optimizer){.comm = comm, .model = model};
    MPI_Comm_rank(comm, &o->rank);
    MPI_Comm_size(comm, &o->size);
    ranks = (size_t)o->size;
    for (int id = 0; id < MODEL_TENSORS; id++) {
        o->slices[id] = slice_of(&model->tensors[id], o->rank, o->size);
        o->slices[id].offset = o->count;
        o->count += o->slices[id].count;
        largest = o->slices[id].count > largest ? o->slices[id].count : largest;
    }
    /* One float more: a rank may have no slice, and NULL must mean out of memory. */
    o->first_moment = calloc(o->count + 1, sizeof(float));
    o->second_moment = calloc(o->count + 1, sizeof(float));
    o->sum = calloc(o->count + 1, sizeof(float));
    o->received = calloc(largest * ranks + 1, sizeof(float));
    o->counts = calloc(4 * ranks, sizeof(int));
    if (!o->first_moment || !o->second_moment || !o->sum || !o->received || !o->counts) {
        optimizer_release(o);
        return -1;
    }
    o->offsets = o->counts + ranks;
    o->other_counts = o->offsets + ranks;
    o->other_offsets = o->other_counts + ranks;
    return 0;
}

void optimizer_release(struct optimizer *optimizer)
{
    free(optimizer->first_moment);
    free(optimizer->second_moment);
    free(optimizer->sum);
    free(optimizer->received);
    free(optimizer->counts);
    *optimizer = (struct optimizer){0};
}

/* Find each rank's slice of a parameter. */
static void find_slices(struct optimizer *o, enum model_tensor_id id)
{
    const struct model_tensor *tensor = &o->model->tensors[id];

    for (int rank = 0; rank < o->size; rank++) {
        struct slice slice = slice_of(tensor, rank, o->size);

        o->counts[rank] = (int)slice.count;
        o->offsets[rank] = (int)(slice.first_row * tensor->columns);
    }
}

void optimizer_add_gradients(struct optimizer *optimizer, int ranks)
{
    struct optimizer *o = optimizer;

    for (int id = 0; id < MODEL_TENSORS; id++) {
        size_t count = o->slices[id].count;
        float *sum = o->sum + o->slices[id].offset;

        find_slices(o, (enum model_tensor_id)id);
        for (int rank = 0; rank < o->size; rank++) {
            if (o->rank >= ranks)
                o->counts[rank] = 0;
            o->other_counts[rank] = rank < ranks ? (int)count : 0;
            o->other_offsets[rank] = rank * (int)count;
        }
        MPI_Alltoallv(o->model->gradient + o->model->tensors[id].offset, o->counts, o->offsets,
                      MPI_FLOAT, o->received, o->other_counts, o->other_offsets, MPI_FLOAT,
                      o->comm);
        for (int rank = 0; rank < ranks; rank++)
            for (size_t i = 0; i < count; i++)
                sum[i] += o->received[(size_t)rank * count + i];
    }
}

void optimizer_step(struct optimizer *optimizer, uint64_t step, double rate, int micro_batches)
{
    struct optimizer *o = optimizer;
    float first_scale = (float)(rate / (1 - pow(DECAY_FIRST, (double)step)));
    float second_scale = (float)(1 / (1 - pow(DECAY_SECOND, (double)step)));

    for (int id = 0; id < MODEL_TENSORS; id++) {
        const struct model_tensor *tensor = &o->model->tensors[id];
        const struct slice *slice = &o->slices[id];
        float *parameters = o->model->parameters + tensor->offset;
        float *mine = parameters + slice->first_row * tensor->columns;
        float *first = o->first_moment + slice->offset, *second = o->second_moment + slice->offset;
        const float *sum = o->sum + slice->offset;

        for (size_t i = 0; i < slice->count; i++) {
            float gradient = sum[i] / (float)micro_batches;

            first[i] = DECAY_FIRST * first[i] + (1 - DECAY_FIRST) * gradient;
            second[i] = DECAY_SECOND * second[i] + (1 - DECAY_SECOND) * gradient * gradient;
            mine[i] -= first_scale * first[i] / (sqrtf(second_scale * second[i]) + 1e-8f);
        }
        find_slices(o, (enum model_tensor_id)id);
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, parameters, o->counts, o->offsets, MPI_FLOAT,
                       o->comm);
    }
    memset(o->sum, 0, o->count * sizeof *o->sum);
}
