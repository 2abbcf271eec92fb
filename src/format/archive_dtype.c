/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_dtype.c -- see archive_dtype.h, and archive_tensor_resolve(). */
#include "format/archive_dtype.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "format/archive.h"

#define NEVER ARCHIVE_NEGATE_NEVER
#define SIGN ARCHIVE_NEGATE_SIGN
#define INTEGER ARCHIVE_NEGATE_INTEGER

static const struct archive_dtype dtypes[SIDESTEP_DTYPE_END] = {
    [SIDESTEP_FLOAT64] = {"torch DoubleStorage", 8, false, SIGN},
    [SIDESTEP_FLOAT32] = {"torch FloatStorage", 4, false, SIGN},
    [SIDESTEP_FLOAT16] = {"torch HalfStorage", 2, false, SIGN},
    [SIDESTEP_BFLOAT16] = {"torch BFloat16Storage", 2, false, SIGN},
    [SIDESTEP_COMPLEX64] = {"torch ComplexFloatStorage", 4, true, SIGN},
    [SIDESTEP_COMPLEX128] = {"torch ComplexDoubleStorage", 8, true, SIGN},
    [SIDESTEP_INT8] = {"torch CharStorage", 1, false, INTEGER},
    [SIDESTEP_INT16] = {"torch ShortStorage", 2, false, INTEGER},
    [SIDESTEP_INT32] = {"torch IntStorage", 4, false, INTEGER},
    [SIDESTEP_INT64] = {"torch LongStorage", 8, false, INTEGER},
    [SIDESTEP_UINT8] = {"torch ByteStorage", 1, false, INTEGER},
    [SIDESTEP_BOOL] = {"torch BoolStorage", 1, false, NEVER},
    [SIDESTEP_UINT16] = {NULL, 2, false, INTEGER},
    [SIDESTEP_UINT32] = {NULL, 4, false, INTEGER},
    [SIDESTEP_UINT64] = {NULL, 8, false, INTEGER},
    [SIDESTEP_COMPLEX32] = {NULL, 2, true, SIGN},
    [SIDESTEP_FLOAT8_E4M3FN] = {NULL, 1, false, SIGN},
    [SIDESTEP_FLOAT8_E5M2] = {NULL, 1, false, SIGN},
    /* In the "fnuz" types, +0 with the sign bit flipped is NaN. */
    [SIDESTEP_FLOAT8_E4M3FNUZ] = {NULL, 1, false, NEVER},
    [SIDESTEP_FLOAT8_E5M2FNUZ] = {NULL, 1, false, NEVER},
    [SIDESTEP_FLOAT8_E8M0FNU] = {NULL, 1, false, NEVER},
    [SIDESTEP_FLOAT4_E2M1FN_X2] = {NULL, 1, false, NEVER},
    [SIDESTEP_BITS8] = {NULL, 1, false, NEVER},
    [SIDESTEP_BITS1X8] = {NULL, 1, false, NEVER},
    [SIDESTEP_BITS2X4] = {NULL, 1, false, NEVER},
    [SIDESTEP_BITS4X2] = {NULL, 1, false, NEVER},
    [SIDESTEP_BITS16] = {NULL, 2, false, NEVER},
    [SIDESTEP_BCOMPLEX32] = {NULL, 2, true, SIGN},
};

const struct archive_dtype *archive_dtype_of(enum sidestep_dtype dtype)
{
    assert(dtype > SIDESTEP_DTYPE_NONE && dtype < SIDESTEP_DTYPE_END);
    assert(dtypes[dtype].component_bytes != 0);
    return &dtypes[dtype];
}

enum sidestep_dtype archive_dtype_from_storage(const char *storage)
{
    for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++)
        if (dtypes[i].storage != NULL && strcmp(dtypes[i].storage, storage) == 0)
            return (enum sidestep_dtype)i;
    return SIDESTEP_DTYPE_NONE;
}

/* How to change the components of elements. */
struct change {
    bool swap;
    bool negate_integer;
    uint64_t flip[2]; /* bits to flip in the real or only component, and in the imaginary one */
};

static inline uint64_t swap_bytes(uint64_t value, unsigned width)
{
    return __builtin_bswap64(value) >> (64 - 8 * width);
}

/* Inlined for each width, so that loads and stores are single instructions. */
static inline __attribute__((always_inline)) void
change_components(unsigned char *at, uint64_t count, unsigned width, const struct change *change)
{
    for (uint64_t i = 0; i < count; i++, at += width) {
        uint64_t value = 0;

        memcpy(&value, at, width);
        if (change->swap)
            value = swap_bytes(value, width);
        if (change->negate_integer)
            value = 0 - value;
        value ^= change->flip[i & 1];
        memcpy(at, &value, width);
    }
}

void archive_tensor_resolve(const struct archive_tensor *tensor, void *data, uint64_t elements)
{
    const struct archive_dtype *dtype = archive_dtype_of(tensor->dtype);
    unsigned width = dtype->component_bytes;
    uint64_t sign = (uint64_t)1 << (8 * width - 1);
    struct change change = {.swap = tensor->swapped && width > 1};

    if (tensor->negative && dtype->negation == ARCHIVE_NEGATE_SIGN)
        change.flip[0] = change.flip[1] = sign;
    if (tensor->negative && dtype->negation == ARCHIVE_NEGATE_INTEGER)
        change.negate_integer = true;
    if (tensor->conjugate && dtype->is_complex)
        change.flip[1] ^= sign;
    if (!change.swap && !change.negate_integer && (change.flip[0] | change.flip[1]) == 0)
        return;

    uint64_t count = dtype->is_complex ? elements * 2 : elements;
    if (width == 1)
        change_components(data, count, 1, &change);
    else if (width == 2)
        change_components(data, count, 2, &change);
    else if (width == 4)
        change_components(data, count, 4, &change);
    else
        change_components(data, count, 8, &change);
}
