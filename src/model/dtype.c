/* SPDX-License-Identifier: BSD-3-Clause */
/* dtype.c -- names and sizes of element types. */
#include <string.h>

#include "sidestep/sidestep.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {[SIDESTEP_DTYPE_NONE] = {NULL, 0},
#define DTYPE_ROW(upper, torch_name, bytes) [SIDESTEP_##upper] = {torch_name, bytes},
              SIDESTEP_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *sidestep_dtype_name(enum sidestep_dtype dtype)
{
    return (unsigned)dtype < SIDESTEP_DTYPE_END ? dtypes[dtype].name : NULL;
}

size_t sidestep_dtype_size(enum sidestep_dtype dtype)
{
    return (unsigned)dtype < SIDESTEP_DTYPE_END ? dtypes[dtype].bytes : 0;
}

enum sidestep_dtype sidestep_dtype_from_name(const char *name)
{
    if (name == NULL)
        return SIDESTEP_DTYPE_NONE;
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (unsigned i = 1; i < SIDESTEP_DTYPE_END; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return (enum sidestep_dtype)i;
    return SIDESTEP_DTYPE_NONE;
}
