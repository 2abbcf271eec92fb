/* SPDX-License-Identifier: BSD-3-Clause */
/* one_scratch.h -- for test programs with one directory for files: its setup, and paths in it. */
#ifndef SUPPORT_ONE_SCRATCH_H
#define SUPPORT_ONE_SCRATCH_H

#include "sidestep/sidestep.h"
#include "support/scratch.h"
#include "support/unit.h"

static struct scratch scratch;

static inline int scratch_setup(void **fixture)
{
    (void)fixture;
    return scratch_make(&scratch, NULL) ? 0 : -1;
}

static inline int scratch_teardown(void **fixture)
{
    (void)fixture;
    scratch_remove(&scratch);
    return 0;
}

/* Write the path of ${name} in the directory to ${buffer}, and return it. */
static inline const char *at(char buffer[256], const char *name)
{
    snprintf(buffer, 256, "%s/%s", scratch.path, name);
    return buffer;
}

#define ASSERT_OK(call, err)                                                                       \
    do {                                                                                           \
        enum sidestep_status status_ = (call);                                                     \
        if (status_ != SIDESTEP_OK)                                                                \
            print_message("# %s\n", (err).message);                                                \
        assert_int_equal(status_, SIDESTEP_OK);                                                    \
    } while (0)

#endif
