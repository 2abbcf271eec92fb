/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ways.h -- how the engines of a test program hold a state still and move its bytes.  Where their
 * options leave it to the library, SIDESTEP_TEST_SNAPSHOT=copy|cow and
 * SIDESTEP_TEST_IO=uring|threads|buffered of the environment decide: so every test can be run in
 * every way ("make combinations").  Programs are linked with --wrap=sidestep_engine_open for it.
 */
#ifndef SUPPORT_WAYS_H
#define SUPPORT_WAYS_H

#include <stdbool.h>

/* Does the environment decide?  Then there is nothing to be seen of what the library chooses. */
bool ways_are_told(void);

/* For tests of that choice. */
#define SKIP_IF_WAYS_ARE_TOLD()                                                                    \
    do {                                                                                           \
        if (ways_are_told()) {                                                                     \
            print_message("the environment says how\n");                                           \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
