/* SPDX-License-Identifier: BSD-3-Clause */
/* queue_depth.c -- measures which queue depth writes fastest; see queue_depth.h. */
#include "save/queue_depth.h"

#include "base/base.h"

#define ROUNDS 2u
#define MIN_BYTES ((uint64_t)256 << 20)
/* Smaller differences are noise. */
#define MIN_SPEED_RATIO 0.95

/* Candidates by size, and the order in which they are tried: the most probable first. */
static const unsigned choices[QUEUE_DEPTH_CHOICES] = {4, 8, 16};
static const unsigned order[QUEUE_DEPTH_CHOICES] = {1, 2, 0};

unsigned queue_depth_choose(const struct queue_depth *depth)
{
    return depth->fixed != 0 ? depth->fixed : choices[order[depth->saves % QUEUE_DEPTH_CHOICES]];
}

static unsigned smallest_fast_depth(const struct queue_depth *depth)
{
    double fastest = 0;
    unsigned i = 0;

    for (unsigned k = 0; k < QUEUE_DEPTH_CHOICES; k++)
        fastest = depth->rates[k] > fastest ? depth->rates[k] : fastest;
    while (depth->rates[i] < MIN_SPEED_RATIO * fastest)
        i++;
    return choices[i];
}

void queue_depth_record_save(struct queue_depth *depth, uint64_t bytes, uint64_t ns)
{
    if (depth->fixed != 0 || bytes < MIN_BYTES)
        return;
    unsigned i = order[depth->saves++ % QUEUE_DEPTH_CHOICES];
    double rate = (double)bytes / (double)max_u64(ns, 1);
    depth->rates[i] = rate > depth->rates[i] ? rate : depth->rates[i];
    if (depth->saves == ROUNDS * QUEUE_DEPTH_CHOICES)
        depth->fixed = smallest_fast_depth(depth);
}
