/* SPDX-License-Identifier: BSD-3-Clause */
/* npy.h -- the header of NumPy's .npy files, of which .npz are zips. */
#ifndef FORMAT_NPY_H
#define FORMAT_NPY_H

#include "base/base.h"

/* "<f4"; NULL if NumPy has no such dtype. */
const char *npy_descr(enum sidestep_dtype dtype);
/* Append the header, of version 1.0, of a row-major array of a dtype that NumPy has: a multiple of
 * 64 bytes. */
void npy_write_header(enum sidestep_dtype dtype, uint32_t ndim, const int64_t *shape,
                      struct buffer *out);

#endif
