/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue_depth.h -- how many requests in flight serve a disk best, found out once by the first large
 * saves of an engine.
 *
 * Nothing is written for that alone, and opening an engine costs no time: saves take turns with the
 * depths that come into question, twice each, and the better of the two counts, since what disturbs
 * a save only makes it slower.  Then the smallest depth stays that is about as fast as any: others
 * use the disk, too.  What the user says is taken as it is.
 */
#ifndef SAVE_QUEUE_DEPTH_H
#define SAVE_QUEUE_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#define DEPTH_CHOICES 3u

struct depth {
    unsigned fixed; /* 0: not known yet */
    unsigned saves; /* that were measured */
    double rates[DEPTH_CHOICES];
};

/* Of the next save. */
unsigned depth_next(const struct depth *depth);
/* A save with depth_next() wrote ${bytes} in ${ns}.  Small ones teach nothing. */
void depth_learn(struct depth *depth, uint64_t bytes, uint64_t ns);

#endif
