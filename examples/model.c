/* SPDX-License-Identifier: BSD-3-Clause */
/* model.c -- the example's language model: layout, forward pass, and backward pass. */
#include "model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Four floats in one register of any CPU. Each lane sums like a scalar (-ffp-contract=off: no fused
 * multiply-add), so the width of the vector does not affect the result. */
typedef float vector __attribute__((vector_size(16), aligned(4), may_alias));
enum { VECTOR = 4, TILE_ROWS = 4, TILE_COLUMNS = 2 * VECTOR };

#define DROPPED UINT32_MAX /* instead of the row of a lookup */

struct model_scratch {
    uint32_t (*rows)[MODEL_ORDERS]; /* rows of the lookups, per prediction */
    unsigned char *targets;
    float *input; /* MODEL_BATCH x inputs */
    float *input_gradient;
    float *hidden; /* MODEL_BATCH x hidden */
    float *hidden_gradient;
    float *logits;     /* MODEL_BATCH x MODEL_BYTES; then their gradient */
    float *transposed; /* of the larger weight */
};

/* A matrix with any strides. */
struct operand {
    const float *data;
    size_t row_stride, column_stride;
};

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t inputs_of(const struct model *model)
{
    return MODEL_ORDERS * model->width;
}

static float *parameter(const struct model *model, enum model_tensor_id id)
{
    return model->parameters + model->tensors[id].offset;
}

static float *gradient(const struct model *model, enum model_tensor_id id)
{
    return model->gradient + model->tensors[id].offset;
}

/* One tile of multiply_add(): its sums stay in registers. */
static void multiply_add_tile(float *sum, struct operand a, const float *b, size_t inner,
                              size_t columns)
{
    vector left[TILE_ROWS], right[TILE_ROWS];

#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_ROWS; r++) {
        left[r] = *(const vector *)&sum[r * columns];
        right[r] = *(const vector *)&sum[r * columns + VECTOR];
    }
    for (size_t k = 0; k < inner; k++) {
        const float *factor = a.data + k * a.column_stride;
        vector b_left = *(const vector *)&b[k * columns];
        vector b_right = *(const vector *)&b[k * columns + VECTOR];

#pragma GCC unroll 4
        for (size_t r = 0; r < TILE_ROWS; r++) {
            left[r] += factor[r * a.row_stride] * b_left;
            right[r] += factor[r * a.row_stride] * b_right;
        }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < TILE_ROWS; r++) {
        *(vector *)&sum[r * columns] = left[r];
        *(vector *)&sum[r * columns + VECTOR] = right[r];
    }
}

/* sum += a b; ${a} is rows x inner, ${b} inner x columns; ${sum} and ${b} are row-major. */
static void multiply_add(float *sum, struct operand a, const float *b, size_t rows, size_t inner,
                         size_t columns)
{
    assert(rows % TILE_ROWS == 0 && columns % TILE_COLUMNS == 0);
    for (size_t j = 0; j < columns; j += TILE_COLUMNS) {
        for (size_t i = 0; i < rows; i += TILE_ROWS) {
            struct operand strip = a;

            strip.data += i * a.row_stride;
            multiply_add_tile(sum + i * columns + j, strip, b + j, inner, columns);
        }
    }
}

static void transpose(float *out, const float *in, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[j * rows + i] = in[i * columns + j];
}

static void lay_out(struct model *model)
{
    struct model_tensor *t = model->tensors;

    t[MODEL_NGRAM_WEIGHT] =
        (struct model_tensor){"ngram.weight", MODEL_ORDERS * model->table_rows, model->width, 0};
    t[MODEL_HIDDEN_WEIGHT] =
        (struct model_tensor){"hidden.weight", inputs_of(model), model->hidden, 0};
    t[MODEL_HIDDEN_BIAS] = (struct model_tensor){"hidden.bias", model->hidden, 1, 0};
    t[MODEL_HEAD_WEIGHT] = (struct model_tensor){"head.weight", model->hidden, MODEL_BYTES, 0};
    t[MODEL_HEAD_BIAS] = (struct model_tensor){"head.bias", MODEL_BYTES, 1, 0};

    model->count = 0;
    for (int id = 0; id < MODEL_TENSORS; id++) {
        t[id].offset = model->count;
        model->count += t[id].rows * t[id].columns;
    }
}

/* Fill with uniform numbers in [-scale, scale). */
static void fill(const struct model *model, enum model_tensor_id id, double scale, uint64_t *random)
{
    size_t count = model->tensors[id].rows * model->tensors[id].columns;

    for (size_t i = 0; i < count; i++)
        parameter(model, id)[i] =
            (float)(scale * ((double)(random_next(random) >> 11) * 0x1p-52 - 1.0));
}

static int scratch_init(struct model *model)
{
    struct model_scratch *s = calloc(1, sizeof *s);
    size_t inputs = inputs_of(model), hidden = model->hidden;
    size_t larger = hidden * (inputs > MODEL_BYTES ? inputs : MODEL_BYTES);

    model->scratch = s;
    if (!s)
        return -1;
    s->rows = calloc(MODEL_BATCH, sizeof *s->rows);
    s->targets = calloc(MODEL_BATCH, 1);
    s->input = calloc(MODEL_BATCH * inputs, sizeof(float));
    s->input_gradient = calloc(MODEL_BATCH * inputs, sizeof(float));
    s->hidden = calloc(MODEL_BATCH * hidden, sizeof(float));
    s->hidden_gradient = calloc(MODEL_BATCH * hidden, sizeof(float));
    s->logits = calloc((size_t)MODEL_BATCH * MODEL_BYTES, sizeof(float));
    s->transposed = calloc(larger, sizeof(float));
    return s->rows && s->targets && s->input && s->input_gradient && s->hidden &&
                   s->hidden_gradient && s->logits && s->transposed
               ? 0
               : -1;
}

int model_init(struct model *model, size_t table_rows, size_t width, size_t hidden)
{
    uint64_t random = 1;

    *model = (struct model){.table_rows = table_rows, .width = width, .hidden = hidden};
    lay_out(model);
    model->parameters = calloc(model->count, sizeof(float));
    model->gradient = calloc(model->count, sizeof(float));
    if (!model->parameters || !model->gradient || scratch_init(model)) {
        model_release(model);
        return -1;
    }
    fill(model, MODEL_NGRAM_WEIGHT, 0.1, &random);
    fill(model, MODEL_HIDDEN_WEIGHT, sqrt(3.0 / (double)inputs_of(model)), &random);
    fill(model, MODEL_HEAD_WEIGHT, sqrt(3.0 / (double)hidden), &random);
    return 0;
}

void model_release(struct model *model)
{
    struct model_scratch *s = model->scratch;

    if (s) {
        free(s->rows);
        free(s->targets);
        free(s->input);
        free(s->input_gradient);
        free(s->hidden);
        free(s->hidden_gradient);
        free(s->logits);
        free(s->transposed);
        free(s);
    }
    free(model->parameters);
    free(model->gradient);
    *model = (struct model){0};
}

/* Look up the embeddings of the bytes before ${next}, and record their rows. Dropout: one lookup in
 * eight is dropped at random, so that the model does not rely on long contexts that it saw once. */
static void look_up(const struct model *model, const unsigned char *next, uint64_t chance,
                    uint32_t rows[MODEL_ORDERS], float *input)
{
    uint64_t hash = 0;

    for (size_t order = 0; order < MODEL_ORDERS; order++, input += model->width, chance >>= 8) {
        hash = (hash ^ next[-1 - (ptrdiff_t)order]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
        if ((chance & 7) == 0) {
            rows[order] = DROPPED;
            memset(input, 0, model->width * sizeof *input);
            continue;
        }
        rows[order] = (uint32_t)(order * model->table_rows + (hash & (model->table_rows - 1)));
        memcpy(input, parameter(model, MODEL_NGRAM_WEIGHT) + rows[order] * model->width,
               model->width * sizeof *input);
    }
}

/* out = in weight + bias */
static void layer_forward(const struct model *model, float *out, const float *in,
                          enum model_tensor_id weight, enum model_tensor_id bias)
{
    size_t inner = model->tensors[weight].rows, columns = model->tensors[weight].columns;

    for (size_t t = 0; t < MODEL_BATCH; t++)
        memcpy(out + t * columns, parameter(model, bias), columns * sizeof *out);
    multiply_add(out, (struct operand){in, inner, 1}, parameter(model, weight), MODEL_BATCH, inner,
                 columns);
}

/* Compute the layer's two gradients, and the gradient of its input from that of its output. */
static void layer_backward(const struct model *model, float *in_gradient, const float *in,
                           const float *out_gradient, enum model_tensor_id weight,
                           enum model_tensor_id bias)
{
    size_t inner = model->tensors[weight].rows, columns = model->tensors[weight].columns;

    for (size_t t = 0; t < MODEL_BATCH; t++)
        for (size_t j = 0; j < columns; j++)
            gradient(model, bias)[j] += out_gradient[t * columns + j];
    multiply_add(gradient(model, weight), (struct operand){in, 1, inner}, out_gradient, inner,
                 MODEL_BATCH, columns);
    transpose(model->scratch->transposed, parameter(model, weight), inner, columns);
    memset(in_gradient, 0, MODEL_BATCH * inner * sizeof *in_gradient);
    multiply_add(in_gradient, (struct operand){out_gradient, columns, 1},
                 model->scratch->transposed, MODEL_BATCH, columns, inner);
}

/* Turn logits into the gradient of the mean loss, and return that loss. */
static double cross_entropy(float *logits, const unsigned char *targets)
{
    double loss = 0;

    for (size_t t = 0; t < MODEL_BATCH; t++) {
        float *row = logits + t * MODEL_BYTES, highest = row[0], sum = 0;

        for (size_t j = 1; j < MODEL_BYTES; j++)
            highest = row[j] > highest ? row[j] : highest;
        loss += (double)highest - (double)row[targets[t]];
        for (size_t j = 0; j < MODEL_BYTES; j++)
            sum += row[j] = expf(row[j] - highest);
        loss += log((double)sum);
        for (size_t j = 0; j < MODEL_BYTES; j++)
            row[j] *= 1.0f / (sum * MODEL_BATCH);
        row[targets[t]] -= 1.0f / MODEL_BATCH;
    }
    return loss / MODEL_BATCH;
}

static void spread_to_tables(const struct model *model)
{
    const struct model_scratch *s = model->scratch;
    const float *from = s->input_gradient;

    for (size_t t = 0; t < MODEL_BATCH; t++) {
        for (size_t order = 0; order < MODEL_ORDERS; order++, from += model->width) {
            float *to;

            if (s->rows[t][order] == DROPPED)
                continue;
            to = gradient(model, MODEL_NGRAM_WEIGHT) + s->rows[t][order] * model->width;
            for (size_t i = 0; i < model->width; i++)
                to[i] += from[i];
        }
    }
}

double model_backward(struct model *model, const unsigned char *const lanes[MODEL_LANES],
                      uint64_t seed)
{
    struct model_scratch *s = model->scratch;
    size_t inputs = inputs_of(model);
    double loss;

    for (size_t t = 0; t < MODEL_BATCH; t++) {
        const unsigned char *next = lanes[t / MODEL_LENGTH] + t % MODEL_LENGTH;

        s->targets[t] = *next;
        look_up(model, next, random_next(&seed), s->rows[t], s->input + t * inputs);
    }
    layer_forward(model, s->hidden, s->input, MODEL_HIDDEN_WEIGHT, MODEL_HIDDEN_BIAS);
    for (size_t i = 0; i < MODEL_BATCH * model->hidden; i++)
        s->hidden[i] = s->hidden[i] > 0 ? s->hidden[i] : 0;
    layer_forward(model, s->logits, s->hidden, MODEL_HEAD_WEIGHT, MODEL_HEAD_BIAS);
    loss = cross_entropy(s->logits, s->targets);

    memset(model->gradient, 0, model->count * sizeof *model->gradient);
    layer_backward(model, s->hidden_gradient, s->hidden, s->logits, MODEL_HEAD_WEIGHT,
                   MODEL_HEAD_BIAS);
    for (size_t i = 0; i < MODEL_BATCH * model->hidden; i++)
        s->hidden_gradient[i] = s->hidden[i] > 0 ? s->hidden_gradient[i] : 0;
    layer_backward(model, s->input_gradient, s->input, s->hidden_gradient, MODEL_HIDDEN_WEIGHT,
                   MODEL_HIDDEN_BIAS);
    spread_to_tables(model);
    return loss;
}
