/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_dtype.h -- how torch.save() spells each element type, and what its elements are made of.
 */
#ifndef FORMAT_ARCHIVE_DTYPE_H
#define FORMAT_ARCHIVE_DTYPE_H

#include "base/base.h"

enum archive_negation {
    ARCHIVE_NEGATE_NEVER,   /* no such thing, or not for this type */
    ARCHIVE_NEGATE_SIGN,    /* flip the top bit of each component */
    ARCHIVE_NEGATE_INTEGER, /* two's complement */
};

struct archive_dtype {
    const char *storage;     /* class of the typed storage, "torch FloatStorage"; NULL: the type is
                                newer     than these classes, and is rebuilt from an untyped storage */
    uint8_t component_bytes; /* what has a byte order: the element, or half of a complex one */
    bool is_complex;
    enum archive_negation negation;
};

#define ARCHIVE_UNTYPED_STORAGE "torch.storage UntypedStorage"

/* ${dtype} must be a real one. */
const struct archive_dtype *archive_dtype_of(enum sidestep_dtype dtype);
/* By the pickled name of a storage class; SIDESTEP_DTYPE_NONE if there is none. */
enum sidestep_dtype archive_dtype_from_storage(const char *storage);

#endif
