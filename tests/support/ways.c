/* SPDX-License-Identifier: BSD-3-Clause */
/* ways.c -- sets the snapshot mode and the I/O of engines from the environment. */
#include "support/ways.h"

#include <sidestep/sidestep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const snapshots[] = {"auto", "copy", "cow"};
static const char *const ios[] = {"auto", "uring", "threads", "buffered"};

/* The number of the word in the variable ${variable}; 0: it is not set. */
static unsigned find_word(const char *variable, const char *const *words, unsigned count)
{
    const char *word = getenv(variable);

    if (word == NULL || word[0] == '\0')
        return 0;
    for (unsigned i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    fprintf(stderr, "# %s=%s is not a valid value\n", variable, word);
    abort();
}

static unsigned requested_snapshot(void)
{
    return find_word("SIDESTEP_TEST_SNAPSHOT", snapshots, sizeof(snapshots) / sizeof(snapshots[0]));
}

static unsigned requested_io(void)
{
    return find_word("SIDESTEP_TEST_IO", ios, sizeof(ios) / sizeof(ios[0]));
}

bool ways_are_set(void)
{
    return requested_snapshot() != 0 || requested_io() != 0;
}

/* The linker replaces the library's function with this one (--wrap). */
enum sidestep_status __real_sidestep_engine_open(struct sidestep_engine **engine,
                                                 const struct sidestep_engine_options *options,
                                                 struct sidestep_error *err);
enum sidestep_status __wrap_sidestep_engine_open(struct sidestep_engine **engine,
                                                 const struct sidestep_engine_options *options,
                                                 struct sidestep_error *err);

enum sidestep_status __wrap_sidestep_engine_open(struct sidestep_engine **engine,
                                                 const struct sidestep_engine_options *options,
                                                 struct sidestep_error *err)
{
    struct sidestep_engine_options theirs = SIDESTEP_ENGINE_OPTIONS_INIT;

    if (!ways_are_set() || (options != NULL && options->struct_size != sizeof(theirs)))
        return __real_sidestep_engine_open(engine, options, err);
    if (options != NULL)
        theirs = *options;
    if (theirs.snapshot == SIDESTEP_SNAPSHOT_AUTO)
        theirs.snapshot = requested_snapshot();
    if (theirs.io == SIDESTEP_IO_AUTO)
        theirs.io = requested_io();
    return __real_sidestep_engine_open(engine, &theirs, err);
}
