/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h -- copies an options struct of a program that was built with any version. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <string.h>

#include "base/error.h"

/* Fields that an older program does not know become zero.  Fields that this library does not know
 * must be zero.  ${theirs} may be NULL: all defaults.  Every options struct begins with its
 * struct_size. */
static inline enum sidestep_status options_copy(void *ours, size_t our_size, const void *theirs,
                                                const char *what, struct sidestep_error *err)
{
    size_t their_size;

    memset(ours, 0, our_size);
    memcpy(ours, &our_size, sizeof(our_size));
    if (theirs == NULL)
        return SIDESTEP_OK;
    memcpy(&their_size, theirs, sizeof(their_size));
    if (their_size < sizeof(their_size) || their_size > 1u << 16)
        return FAIL(err, SIDESTEP_EINVAL, "%s.struct_size is %zu; start from ..._INIT", what,
                    their_size);
    for (size_t i = our_size; i < their_size; i++)
        if (((const unsigned char *)theirs)[i] != 0)
            return FAIL(err, SIDESTEP_EUNSUPPORTED,
                        "%s: the field at byte %zu is newer than this library", what, i);
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    memcpy(ours, &our_size, sizeof(our_size));
    return SIDESTEP_OK;
}

#endif
