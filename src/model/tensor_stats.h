/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_stats.h -- a few numbers that say what the elements of a tensor are like. */
#ifndef MODEL_TENSOR_STATS_H
#define MODEL_TENSOR_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

struct tensor_stats {
    uint64_t count; /* elements with a value that is a number: neither NaN nor infinite */
    uint64_t nans;  /* elements; a complex one if either part is */
    uint64_t infs;
    double min; /* of those that are no NaN, complex ones left out; of none: +infinity ... */
    double max; /* ... and -infinity */
    double sum; /* of ${count} */
};

#define TENSOR_STATS_INIT                                                                          \
    {                                                                                              \
        .min = __builtin_inf(), .max = -__builtin_inf()                                            \
    }

/* Are its elements numbers that have an order? */
_Bool tensor_stats_is_ordered(enum sidestep_dtype dtype);
/* Add ${count} elements; of dtypes that are bits and no numbers nothing. */
void tensor_stats_add(struct tensor_stats *summary, enum sidestep_dtype dtype, const void *bytes,
                      size_t count);
void tensor_stats_merge(struct tensor_stats *into, const struct tensor_stats *other);

#endif
