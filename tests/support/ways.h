/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ways.h -- lets the environment choose how the engines of a test program take snapshots and move
 * bytes. Where their options do not, SIDESTEP_TEST_SNAPSHOT=copy|cow and
 * SIDESTEP_TEST_IO=uring|threads|buffered decide, so that every test can run with every combination
 * ("make combinations"). For this, test programs are linked with --wrap=sidestep_engine_open.
 */
#ifndef SUPPORT_WAYS_H
#define SUPPORT_WAYS_H

#include <stdbool.h>

#include "support/unit.h"

/* Does the environment decide? Then the library makes no choice that a test could check. */
bool ways_are_set(void);

/* For tests of the library's choice. */
#define SKIP_IF_WAYS_ARE_SET()                                                                     \
    do {                                                                                           \
        if (ways_are_set()) {                                                                      \
            print_message("the environment decides it\n");                                         \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
