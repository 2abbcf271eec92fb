/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * npy.c -- see npy.h, and numpy.lib.format: "\x93NUMPY", 1, 0, u16le length, a Python dict, spaces,
 * "\n".  Version 2.0 is for dicts of more than 65,535 bytes, but 64 dimensions need less.
 */
#include "format/npy.h"

#include <assert.h>
#include <inttypes.h>

#define ALIGN 64u

static const char *const descrs[SIDESTEP_DTYPE_END] = {
    [SIDESTEP_BOOL] = "|b1",      [SIDESTEP_INT8] = "|i1",        [SIDESTEP_UINT8] = "|u1",
    [SIDESTEP_INT16] = "<i2",     [SIDESTEP_UINT16] = "<u2",      [SIDESTEP_INT32] = "<i4",
    [SIDESTEP_UINT32] = "<u4",    [SIDESTEP_INT64] = "<i8",       [SIDESTEP_UINT64] = "<u8",
    [SIDESTEP_FLOAT16] = "<f2",   [SIDESTEP_FLOAT32] = "<f4",     [SIDESTEP_FLOAT64] = "<f8",
    [SIDESTEP_COMPLEX64] = "<c8", [SIDESTEP_COMPLEX128] = "<c16",
};

const char *npy_descr(enum sidestep_dtype dtype)
{
    return (unsigned)dtype < SIDESTEP_DTYPE_END ? descrs[dtype] : NULL;
}

void npy_write_header(enum sidestep_dtype dtype, uint32_t ndim, const int64_t *shape,
                      struct buffer *out)
{
    size_t start = out->length;

    assert(npy_descr(dtype) != NULL && ndim <= SIDESTEP_MAX_NDIM);
    buffer_put(out, "\x93NUMPY\1\0", 8);
    buffer_put_u16le(out, 0);
    buffer_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", npy_descr(dtype));
    for (uint32_t d = 0; d < ndim; d++)
        buffer_printf(out, "%s%" PRId64, d > 0 ? ", " : "", shape[d]);
    buffer_put_text(out, ndim == 1 ? ",), }" : "), }");
    while (!out->failed && (out->length - start) % ALIGN != ALIGN - 1)
        buffer_put_u8(out, ' ');
    buffer_put_u8(out, '\n');
    if (out->failed)
        return;
    size_t length = out->length - start - 10;
    out->bytes[start + 8] = (uint8_t)(length & 0xff);
    out->bytes[start + 9] = (uint8_t)(length >> 8);
}
