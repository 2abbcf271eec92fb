/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_difference.h -- how far the elements of two tensors of one dtype are apart. */
#ifndef MODEL_TENSOR_DIFFERENCE_H
#define MODEL_TENSOR_DIFFERENCE_H

#include <stdint.h>

#include "base/base.h"

struct tensor_difference {
    uint64_t count; /* elements whose bits differ */
    uint64_t first; /* the number of the first of them; if there is none: UINT64_MAX */
    /*
     * The largest |a - b|, and the largest |a - b| / max(|a|, |b|); infinite where one of the two
     * is NaN and the other is not, or both are infinite and differ.  NaN for dtypes that are no
     * numbers, and where nothing differs 0.
     */
    double max_abs;
    double max_rel;
};
#define TENSOR_DIFFERENCE_INIT                                                                     \
    {                                                                                              \
        .first = UINT64_MAX                                                                        \
    }

/* Compare elements [begin, end) of ${a} and ${b}, and add what is found. */
void tensor_difference_add(struct tensor_difference *sum, enum sidestep_dtype dtype, const void *a,
                           const void *b, uint64_t begin, uint64_t end);

#endif
