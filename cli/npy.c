/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * npy.c -- writes the header of NumPy's .npy files, version 1.0 (numpy.lib.format):
 * "\x93NUMPY", 1, 0, u16le length, a Python dict, spaces, "\n"; together a multiple of 64 bytes.
 * Version 2.0 is for dicts of more than 65,535 bytes, which 64 dimensions cannot reach.
 */
#include "npy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX 10 /* magic, version, length */

_Static_assert(SIDESTEP_MAX_NDIM * 21 + 128 < CLI_NPY_MAX_BYTES, "any shape fits");

static const char *const descrs[SIDESTEP_DTYPE_END] = {
    [SIDESTEP_BOOL] = "|b1",      [SIDESTEP_INT8] = "|i1",        [SIDESTEP_UINT8] = "|u1",
    [SIDESTEP_INT16] = "<i2",     [SIDESTEP_UINT16] = "<u2",      [SIDESTEP_INT32] = "<i4",
    [SIDESTEP_UINT32] = "<u4",    [SIDESTEP_INT64] = "<i8",       [SIDESTEP_UINT64] = "<u8",
    [SIDESTEP_FLOAT16] = "<f2",   [SIDESTEP_FLOAT32] = "<f4",     [SIDESTEP_FLOAT64] = "<f8",
    [SIDESTEP_COMPLEX64] = "<c8", [SIDESTEP_COMPLEX128] = "<c16",
};

const char *cli_npy_descr(enum sidestep_dtype dtype)
{
    return (unsigned)dtype < SIDESTEP_DTYPE_END ? descrs[dtype] : NULL;
}

size_t cli_npy_header(char header[CLI_NPY_MAX_BYTES], const struct sidestep_entry *entry)
{
    char *dict = header + PREFIX;
    size_t room = CLI_NPY_MAX_BYTES - PREFIX, used, total;

    assert(cli_npy_descr(entry->dtype) != NULL && entry->ndim <= SIDESTEP_MAX_NDIM);
    used = (size_t)snprintf(dict, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                            cli_npy_descr(entry->dtype));
    for (uint32_t d = 0; d < entry->ndim; d++)
        used += (size_t)snprintf(dict + used, room - used, "%s%" PRId64, d > 0 ? ", " : "",
                                 entry->shape[d]);
    used += (size_t)snprintf(dict + used, room - used, "%s), }", entry->ndim == 1 ? "," : "");
    total = (PREFIX + used + 1 + 63) / 64 * 64;
    memset(dict + used, ' ', total - PREFIX - used - 1);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\1\0", 8);
    header[8] = (char)((total - PREFIX) & 0xff);
    header[9] = (char)((total - PREFIX) >> 8);
    return total;
}
