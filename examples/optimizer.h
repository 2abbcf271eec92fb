/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * optimizer.h -- data-parallel Adam with ZeRO stage 1: every rank has all parameters, and for each
 * the moments of a slice of its rows. Gradients are summed in the order of micro-batches, so 1, 2
 * and 4 ranks train the same model, bit for bit.
 *
 * An MPI call that fails ends the program: that is MPI's default error handler.
 */
#ifndef EXAMPLE_OPTIMIZER_H
#define EXAMPLE_OPTIMIZER_H

#include <mpi.h>

#include "model.h"

/* The rows of one parameter whose moments a rank has. With more ranks than rows it may be empty. */
struct slice {
    size_t first_row;
    size_t rows;
    size_t offset; /* of its first float in the moments */
    size_t count;  /* floats */
};

struct optimizer {
    MPI_Comm comm;
    int rank, size;
    struct model *model; /* owned by the caller */
    struct slice slices[MODEL_TENSORS];
    size_t count; /* floats in each of the next three */
    float *first_moment, *second_moment, *sum;
    float *received;                                      /* one parameter's slice from each rank */
    int *counts, *offsets, *other_counts, *other_offsets; /* per rank, for MPI */
};

/* 0, or -1: out of memory. */
int optimizer_init(struct optimizer *optimizer, struct model *model, MPI_Comm comm);
void optimizer_release(struct optimizer *optimizer);

/* Add the gradients of ranks 0 .. ${ranks}-1, in that order. Collective. */
void optimizer_add_gradients(struct optimizer *optimizer, int ranks);

/* Do step number ${step} (the first is 1) with the mean of ${micro_batches} gradients. Then zero
 * the sum, and make the parameters the same everywhere. Collective. */
void optimizer_step(struct optimizer *optimizer, uint64_t step, double rate, int micro_batches);

#endif
