/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype_numbers.h -- reads elements of any dtype as doubles, to compare tensors. */
#ifndef MODEL_DTYPE_NUMBERS_H
#define MODEL_DTYPE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* Are its elements numbers?  Bits and packed pairs are not. */
bool dtype_is_numeric(enum sidestep_dtype dtype);
bool dtype_is_complex(enum sidestep_dtype dtype);

/*
 * Read ${count} little-endian elements at ${from} (any alignment) as doubles.  ${imaginary} is set
 * for complex dtypes only, and may be NULL for others.  Exact, except for integers above 2^53.
 */
void dtype_read_numbers(enum sidestep_dtype dtype, const void *from, size_t count, double *real,
                        double *imaginary);

#endif
