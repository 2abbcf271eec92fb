/* SPDX-License-Identifier: BSD-3-Clause */
/* cast.h -- converts floating-point elements to another type: rounds to nearest, ties to even. */
#ifndef MODEL_CAST_H
#define MODEL_CAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

/* Is it float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2? */
bool cast_is_supported(enum sidestep_dtype dtype);

/* Does ${to} lack values that ${from} has?  Both are supported. */
bool cast_narrows(enum sidestep_dtype from, enum sidestep_dtype to);

/* Convert ${count} elements of ${from} into ${to}.  The two do not overlap, and may have any
 * alignment.  Returns the number of finite elements that overflowed.  They become infinite, or NaN
 * if the type has no infinity (float8_e4m3fn, as in torch). */
uint64_t cast_elements(enum sidestep_dtype from_type, const void *from, enum sidestep_dtype to_type,
                       void *to, size_t count);

#endif
