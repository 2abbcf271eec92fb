/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_dtype.h -- tells which storage class torch.save() writes for a dtype, and which parts its
 * elements have. */
#ifndef FORMAT_ARCHIVE_DTYPE_H
#define FORMAT_ARCHIVE_DTYPE_H

#include "base/base.h"

enum archive_negation {
    ARCHIVE_NEGATE_NEVER,   /* the type cannot be negated */
    ARCHIVE_NEGATE_SIGN,    /* flip the top bit of each component */
    ARCHIVE_NEGATE_INTEGER, /* two's complement */
};

struct archive_dtype {
    const char *storage;     /* class of the typed storage, "torch FloatStorage"; NULL: the type is
                                newer than these classes, and uses an untyped storage */
    uint8_t component_bytes; /* of an element, or of one part of a complex element */
    bool is_complex;
    enum archive_negation negation;
};

#define ARCHIVE_UNTYPED_STORAGE "torch.storage UntypedStorage"

/* ${dtype} must not be NONE. */
const struct archive_dtype *archive_dtype_of(enum sidestep_dtype dtype);
/* The dtype of the storage class with this pickled name, or SIDESTEP_DTYPE_NONE. */
enum sidestep_dtype archive_dtype_from_storage(const char *storage);

#endif
