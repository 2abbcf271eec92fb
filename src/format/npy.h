/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * npy.h -- writes the header of NumPy's .npy files, version 1.0 (numpy.lib.format):
 * "\x93NUMPY", 1, 0, u16le length, a Python dict, spaces, "\n"; together a multiple of 64 bytes.
 * Version 2.0 is for dicts of more than 65,535 bytes, but 64 dimensions need less.
 *
 * An .npz is a zip of such files. The command line includes this file, too.
 */
#ifndef FORMAT_NPY_H
#define FORMAT_NPY_H

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sidestep/sidestep.h>

#define NPY_PREFIX 10u     /* magic, version, length */
#define NPY_MAX_BYTES 2048 /* enough for any header: SIDESTEP_MAX_NDIM lengths, and the rest */
_Static_assert(SIDESTEP_MAX_NDIM * 21 + 128 < NPY_MAX_BYTES, "any shape fits");

/* NumPy's name of a dtype, "<f4".  NULL: NumPy does not have it. */
static inline const char *npy_descr(enum sidestep_dtype dtype)
{
    static const char *const descrs[SIDESTEP_DTYPE_END] = {
        [SIDESTEP_BOOL] = "|b1",      [SIDESTEP_INT8] = "|i1",        [SIDESTEP_UINT8] = "|u1",
        [SIDESTEP_INT16] = "<i2",     [SIDESTEP_UINT16] = "<u2",      [SIDESTEP_INT32] = "<i4",
        [SIDESTEP_UINT32] = "<u4",    [SIDESTEP_INT64] = "<i8",       [SIDESTEP_UINT64] = "<u8",
        [SIDESTEP_FLOAT16] = "<f2",   [SIDESTEP_FLOAT32] = "<f4",     [SIDESTEP_FLOAT64] = "<f8",
        [SIDESTEP_COMPLEX64] = "<c8", [SIDESTEP_COMPLEX128] = "<c16",
    };

    return (unsigned)dtype < SIDESTEP_DTYPE_END ? descrs[dtype] : NULL;
}

/* Write the header of a row-major array, whose dtype NumPy has. Returns its length. */
static inline size_t npy_header(char header[NPY_MAX_BYTES], enum sidestep_dtype dtype,
                                uint32_t ndim, const int64_t *shape)
{
    size_t used = NPY_PREFIX;

    assert(npy_descr(dtype) != NULL && ndim <= SIDESTEP_MAX_NDIM);
    used +=
        (size_t)snprintf(header + used, NPY_MAX_BYTES - used,
                         "{'descr': '%s', 'fortran_order': False, 'shape': (", npy_descr(dtype));
    for (uint32_t d = 0; d < ndim; d++)
        used += (size_t)snprintf(header + used, NPY_MAX_BYTES - used, "%s%" PRId64,
                                 d > 0 ? ", " : "", shape[d]);
    used += (size_t)snprintf(header + used, NPY_MAX_BYTES - used, "%s), }", ndim == 1 ? "," : "");
    size_t total = (used + 1 + 63) / 64 * 64, length = total - NPY_PREFIX;
    memset(header + used, ' ', total - used - 1);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\1\0", 8);
    header[8] = (char)(length & 0xff);
    header[9] = (char)(length >> 8);
    return total;
}

#endif
