/* SPDX-License-Identifier: BSD-3-Clause */
/* npy.h -- writes the header of NumPy's .npy files.  An .npz is a zip of such files. */
#ifndef FORMAT_NPY_H
#define FORMAT_NPY_H

#include "base/base.h"

/* NumPy's name of a dtype, "<f4".  NULL: NumPy does not have it. */
const char *npy_descr(enum sidestep_dtype dtype);
/* Append the header of version 1.0 of a row-major array.  It has a multiple of 64 bytes.  NumPy
 * must have the dtype. */
void npy_write_header(enum sidestep_dtype dtype, uint32_t ndim, const int64_t *shape,
                      struct buffer *out);

#endif
