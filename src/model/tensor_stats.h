/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_stats.h -- computes statistics of the elements of a tensor. */
#ifndef MODEL_TENSOR_STATS_H
#define MODEL_TENSOR_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

struct tensor_stats {
    uint64_t count; /* finite elements */
    uint64_t nans;  /* a complex element counts if either part is NaN */
    uint64_t infs;
    double min; /* of all elements but NaNs and complex ones; +infinity if there are none */
    double max; /* likewise; -infinity if there are none */
    double sum; /* of the finite elements that are not complex */
};

#define TENSOR_STATS_INIT                                                                          \
    {                                                                                              \
        .min = __builtin_inf(), .max = -__builtin_inf()                                            \
    }

/* Are its elements real numbers, which have an order? */
_Bool tensor_stats_is_ordered(enum sidestep_dtype dtype);
/* Add ${count} elements.  Does nothing if the dtype is not numeric. */
void tensor_stats_add(struct tensor_stats *stats, enum sidestep_dtype dtype, const void *bytes,
                      size_t count);
void tensor_stats_merge(struct tensor_stats *into, const struct tensor_stats *other);

#endif
