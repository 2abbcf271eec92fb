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

#define QUEUE_DEPTH_CHOICES 3u

struct queue_depth {
    unsigned fixed; /* 0: not known yet */
    unsigned saves; /* that were measured */
    double rates[QUEUE_DEPTH_CHOICES];
};

/* Of the next save. */
unsigned queue_depth_choose(const struct queue_depth *depth);
/* A save with queue_depth_choose() wrote ${bytes} in ${ns}.  Small ones teach nothing. */
void queue_depth_record_save(struct queue_depth *depth, uint64_t bytes, uint64_t ns);

#endif
