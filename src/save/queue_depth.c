/* SPDX-License-Identifier: BSD-3-Clause */
/* queue_depth.c -- see queue_depth.h. */
#include "save/queue_depth.h"

#include "base/checked.h"

#define ROUNDS 2u
#define MIN_BYTES ((uint64_t)256 << 20)
/* Less is noise. */
#define ABOUT 0.95

/* By their size, and in which order they are tried: what is a good guess comes first. */
static const unsigned choices[DEPTH_CHOICES] = {4, 8, 16};
static const unsigned order[DEPTH_CHOICES] = {1, 2, 0};

unsigned depth_next(const struct depth *depth)
{
    return depth->fixed != 0 ? depth->fixed : choices[order[depth->saves % DEPTH_CHOICES]];
}

static unsigned best(const struct depth *depth)
{
    double most = 0;
    unsigned i = 0;

    for (unsigned k = 0; k < DEPTH_CHOICES; k++)
        most = depth->rates[k] > most ? depth->rates[k] : most;
    while (depth->rates[i] < ABOUT * most)
        i++;
    return choices[i];
}

void depth_learn(struct depth *depth, uint64_t bytes, uint64_t ns)
{
    if (depth->fixed != 0 || bytes < MIN_BYTES)
        return;
    unsigned i = order[depth->saves++ % DEPTH_CHOICES];
    double rate = (double)bytes / (double)max_u64(ns, 1);
    depth->rates[i] = rate > depth->rates[i] ? rate : depth->rates[i];
    if (depth->saves == ROUNDS * DEPTH_CHOICES)
        depth->fixed = best(depth);
}
