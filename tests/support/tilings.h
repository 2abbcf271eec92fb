/* SPDX-License-Identifier: BSD-3-Clause */
/* tilings.h -- random ways to cut a tensor into boxes. */
#ifndef SUPPORT_TILINGS_H
#define SUPPORT_TILINGS_H

#include "model/box.h"
#include "support/prng.h"

#define TILING_NDIM 4u
#define TILING_BOXES 24u

struct random_tiling {
    uint32_t ndim;
    int64_t shape[TILING_NDIM];
    size_t count;
    int64_t offsets[TILING_BOXES][TILING_NDIM];
    int64_t lengths[TILING_BOXES][TILING_NDIM];
};

/* Choose ndim and shape; lengths are 1 to ${most}. */
static inline void tiling_random_shape(struct prng *p, struct random_tiling *t, uint32_t ndim,
                                       int64_t most)
{
    t->ndim = ndim;
    for (uint32_t d = 0; d < TILING_NDIM; d++)
        t->shape[d] = d < ndim ? prng_between(p, 1, most) : 0;
}

/* Cut t->shape at most ${cuts} times, and shuffle. A part may have no elements. */
static inline void tiling_random_cuts(struct prng *p, struct random_tiling *t, size_t cuts)
{
    t->count = 1;
    for (uint32_t d = 0; d < t->ndim; d++) {
        t->offsets[0][d] = 0;
        t->lengths[0][d] = t->shape[d];
    }
    for (size_t i = 0; i < cuts && t->ndim != 0 && t->count < TILING_BOXES; i++) {
        size_t box = prng_below(p, t->count), other = t->count;
        uint32_t d = (uint32_t)prng_below(p, t->ndim);
        int64_t length = t->lengths[box][d];
        int64_t cut = prng_between(p, prng_below(p, 8) == 0 ? 0 : length > 1, length);

        if (cut == length && prng_below(p, 8) != 0)
            continue;
        for (uint32_t k = 0; k < t->ndim; k++) {
            t->offsets[other][k] = t->offsets[box][k];
            t->lengths[other][k] = t->lengths[box][k];
        }
        t->lengths[box][d] = cut;
        t->offsets[other][d] += cut;
        t->lengths[other][d] -= cut;
        t->count++;
    }
    for (size_t i = t->count; i-- > 1;) {
        size_t k = prng_below(p, i + 1);

        for (uint32_t d = 0; d < t->ndim; d++) {
            int64_t offset = t->offsets[i][d], length = t->lengths[i][d];

            t->offsets[i][d] = t->offsets[k][d];
            t->lengths[i][d] = t->lengths[k][d];
            t->offsets[k][d] = offset;
            t->lengths[k][d] = length;
        }
    }
}

static inline struct box tiling_box(const struct random_tiling *t, size_t i)
{
    return (struct box){t->ndim, t->offsets[i], t->lengths[i]};
}

#endif
