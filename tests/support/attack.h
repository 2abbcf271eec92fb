/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * attack.h -- changes memory while a save has it write-protected.
 *
 * A save of one tensor pauses when all of it is protected and nothing is copied. Then the attack
 * changes the memory, the program writes the next epoch to it, and the save continues.
 *
 * Each attack that the library must detect has a negative control: the same attack with the checks
 * switched off (fault points "trust."). It must produce a checkpoint with wrong bytes.
 */
#ifndef SUPPORT_ATTACK_H
#define SUPPORT_ATTACK_H

#include <time.h>

#include "support/held.h"

#define ATTACK_BYTES (8 * MIB) /* four granules, two windows */

static unsigned char *attacked; /* the tensor */

/* Like fill(). Not a race for ThreadSanitizer, because the kernel delays such a write. */
__attribute__((no_sanitize("thread"))) static inline void attack_write(unsigned char *to, int value,
                                                                       size_t bytes)
{
    for (size_t at = 0; at < bytes; at++)
        ((volatile unsigned char *)to)[at] = (unsigned char)value;
}

/* Make a tensor at ${attacked}, with epoch 1. */
static inline void attack_begin(uint32_t flags)
{
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    held_io = SIDESTEP_IO_BUFFERED;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(attacked, ATTACK_BYTES, 1, flags);
    fill(1);
}

/* Start a save that writes nothing before attack_finish(). */
static inline void attack_start(void)
{
    sidestep_engine_pause(job.engine);
    expect_ok(start());
}

static inline enum sidestep_status attack_finish(void)
{
    sidestep_engine_resume(job.engine);
    return finish();
}

static inline void attack_end(void)
{
    end();
    held_ahead = SIDESTEP_COPY_AHEAD_AUTO;
    held_io = SIDESTEP_IO_AUTO;
}

/* Does the checkpoint differ from epoch 1, or fail to load? */
static inline bool attack_has_won(void)
{
    uint64_t *loaded = malloc(ATTACK_BYTES);
    struct sidestep_state_dict *target = new_state(&loaded);
    bool wrong = sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err) != SIDESTEP_OK;

    for (size_t n = 0; n < WORDS(ATTACK_BYTES) && !wrong; n++)
        wrong = loaded[n] != (n << 24 ^ 1);
    sidestep_state_dict_free(&target);
    free(loaded);
    return wrong;
}

/* Wait for an asynchronous event, at most a minute. */
static inline bool attack_await(bool (*happened)(void))
{
    for (unsigned i = 0; i < 60000; i++) {
        if (happened())
            return true;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

#endif
