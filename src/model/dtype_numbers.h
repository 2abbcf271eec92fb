/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype_numbers.h -- elements of every dtype as doubles, for whoever compares tensors. */
#ifndef MODEL_DTYPE_NUMBERS_H
#define MODEL_DTYPE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* false: its elements stand for no number (bits, packed pairs). */
bool dtype_is_numeric(enum sidestep_dtype dtype);
bool dtype_is_complex(enum sidestep_dtype dtype);

/*
 * ${count} little-endian elements at ${from} (any alignment), as doubles; ${imaginary} is written
 * for complex dtypes only, and may be NULL for others.  Exact, but for integers beyond 2^53.
 */
void dtype_read_numbers(enum sidestep_dtype dtype, const void *from, size_t count, double *real,
                        double *imaginary);

#endif
