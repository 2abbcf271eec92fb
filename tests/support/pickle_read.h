/* SPDX-License-Identifier: BSD-3-Clause */
/* pickle_read.h -- parses a pickle, for tests. */
#ifndef SUPPORT_PICKLE_READ_H
#define SUPPORT_PICKLE_READ_H

#include "base/owned.h"
#include "format/pickle.h"
#include "support/guard.h"

#define OWNED_VALUE OWNED_BY(sidestep_value_free) struct sidestep_value *

static inline enum sidestep_status read_value(const void *bytes, size_t length,
                                              struct sidestep_value **value,
                                              struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct pickle_node *root;

    TRY(pickle_parse(&arena, bytes, length, NULL, &root, err));
    return pickle_to_value(root, value, err);
}

/* Parse a copy that ends at an inaccessible page. */
static inline enum sidestep_status read_guarded(const void *bytes, size_t length,
                                                struct sidestep_value **value,
                                                struct sidestep_error *err)
{
    void *copy = guard_copy(bytes, length);
    enum sidestep_status status = read_value(copy, length, value, err);

    guard_free(copy);
    return status;
}

#endif
