/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h -- a small language model over bytes, so that the example trains something real. It
 * predicts the next byte from the eight bytes before it. Each suffix of those eight bytes (the
 * last one, the last two, ...) is hashed to a row of an embedding table. The eight rows pass
 * through one hidden layer and a softmax.
 *
 * The order of every sum depends on sizes alone, so a micro-batch has the same gradient, bit for
 * bit, in every process.
 */
#ifndef EXAMPLE_MODEL_H
#define EXAMPLE_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum {
    MODEL_ORDERS = 8,  /* bytes of context, and lookups per prediction */
    MODEL_BYTES = 256, /* values of a byte */
    MODEL_LANES = 4,   /* positions in the text that a micro-batch reads at once */
    MODEL_LENGTH = 64, /* predictions per position */
    MODEL_BATCH = MODEL_LANES * MODEL_LENGTH,
};

enum model_tensor_id {
    MODEL_NGRAM_WEIGHT,
    MODEL_HIDDEN_WEIGHT,
    MODEL_HIDDEN_BIAS,
    MODEL_HEAD_WEIGHT,
    MODEL_HEAD_BIAS,
    MODEL_TENSORS,
};

/* One parameter: rows x columns floats (a bias has one column), row-major. */
struct model_tensor {
    const char *name;
    size_t rows, columns;
    size_t offset; /* in model.parameters and model.gradient */
};

struct model {
    size_t table_rows; /* per order; a power of two */
    size_t width;      /* of one embedding */
    size_t hidden;     /* all three are multiples of 16 */
    struct model_tensor tensors[MODEL_TENSORS];
    size_t count; /* floats in ${parameters}, and in ${gradient} */
    float *parameters;
    float *gradient;
    struct model_scratch *scratch;
};

/* SplitMix64: the next number of a random sequence whose whole state is ${*state}. */
uint64_t random_next(uint64_t *state);

/* Set sizes, allocate, and choose the same random parameters on every rank. 0, or -1: out of
 * memory. */
int model_init(struct model *model, size_t table_rows, size_t width, size_t hidden);
void model_release(struct model *model);

/*
 * Set model->gradient to the gradient of the mean loss over one micro-batch, and return that loss
 * in nats. Lane i predicts MODEL_LENGTH bytes from lanes[i] on, and reads the MODEL_ORDERS bytes
 * before it. ${seed} chooses the lookups that are dropped.
 */
double model_backward(struct model *model, const unsigned char *const lanes[MODEL_LANES],
                      uint64_t seed);

#endif
