/* SPDX-License-Identifier: BSD-3-Clause */
/* cast.h -- elements of one floating-point type as another: rounded to nearest, ties to even. */
#ifndef MODEL_CAST_H
#define MODEL_CAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

/* float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2? */
bool cast_is_supported(enum sidestep_dtype dtype);

/* ${count} elements of ${from} to ${to}, which do not overlap; any alignment.  Returns how many
 * finite ones became infinite, or NaN where the type has no infinity (float8_e4m3fn, as in torch).
 */
uint64_t cast_elements(enum sidestep_dtype from_type, const void *from, enum sidestep_dtype to_type,
                       void *to, size_t count);

#endif
