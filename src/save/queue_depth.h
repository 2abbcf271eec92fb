/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue_depth.h -- finds out how many write requests in flight serve a disk best.
 *
 * The first large saves of an engine measure it.  Nothing is written for measuring alone, and
 * opening an engine takes no extra time.  Two saves use each candidate depth.  The faster one
 * counts, because a disturbance only makes a save slower.  From then on, saves use the smallest
 * depth that is about as fast as the fastest, because other programs use the disk too.  A depth
 * that the user sets is used unchanged.
 */
#ifndef SAVE_QUEUE_DEPTH_H
#define SAVE_QUEUE_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define QUEUE_DEPTH_CHOICES 3u

struct queue_depth {
    unsigned fixed;                    /* the depth; 0: not known yet */
    unsigned saves;                    /* saves measured so far */
    double rates[QUEUE_DEPTH_CHOICES]; /* of each candidate: bytes per ns of its faster save */
};

/* The depth for the next save. */
unsigned queue_depth_choose(const struct queue_depth *depth) ON_THREAD(RUNNER);
/* A save with queue_depth_choose() wrote ${bytes} in ${ns}.  Small saves are ignored. */
void queue_depth_record_save(struct queue_depth *depth, uint64_t bytes, uint64_t ns)
    ON_THREAD(RUNNER);

#endif
