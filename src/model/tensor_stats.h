/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_stats.h -- a few numbers that say what the elements of a tensor are like. */
#ifndef MODEL_TENSOR_STATS_H
#define MODEL_TENSOR_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

struct summary {
    uint64_t count; /* elements with a value that is a number: neither NaN nor infinite */
    uint64_t nans;  /* elements; a complex one if either part is */
    uint64_t infs;
    double min; /* of those that are no NaN, complex ones left out; of none: +infinity ... */
    double max; /* ... and -infinity */
    double sum; /* of ${count} */
};

#define SUMMARY_INIT                                                                               \
    {                                                                                              \
        .min = __builtin_inf(), .max = -__builtin_inf()                                            \
    }

/* Are its elements numbers that have an order? */
_Bool summary_has_order(enum sidestep_dtype dtype);
/* Add ${count} elements; of dtypes that are bits and no numbers nothing. */
void summary_add(struct summary *summary, enum sidestep_dtype dtype, const void *bytes,
                 size_t count);
void summary_merge(struct summary *into, const struct summary *other);

#endif
