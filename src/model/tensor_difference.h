/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_difference.h -- measures how much the elements of two tensors of one dtype differ. */
#ifndef MODEL_TENSOR_DIFFERENCE_H
#define MODEL_TENSOR_DIFFERENCE_H

#include <stdint.h>

#include "base/base.h"

struct tensor_difference {
    uint64_t count; /* elements whose bits differ */
    uint64_t first; /* the index of the first of them; UINT64_MAX: none differs */
    /*
     * The largest |a - b|, and the largest |a - b| / max(|a|, |b|).  Infinite if one of the two is
     * NaN and the other is not, or if both are infinite and differ.  NaN if the dtype is not
     * numeric.  0 if nothing differs.
     */
    double max_abs;
    double max_rel;
};
#define TENSOR_DIFFERENCE_INIT                                                                     \
    {                                                                                              \
        .first = UINT64_MAX                                                                        \
    }

/* Compare elements [begin, end) of ${a} and ${b}, and add the result to ${sum}. */
void tensor_difference_add(struct tensor_difference *sum, enum sidestep_dtype dtype, const void *a,
                           const void *b, uint64_t begin, uint64_t end);

#endif
