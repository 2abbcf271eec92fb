/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shares.h -- divides bytes among ranks, so that hosts, and then the ranks of each host, write as
 * many bytes as others, or as few more as possible.
 *
 * The ranks of a host share one link to storage, so hosts come first.
 */
#ifndef PLAN_SHARES_H
#define PLAN_SHARES_H

#include <stddef.h>
#include <stdint.h>

/* What one rank gets. */
struct share {
    size_t index; /* the caller's; breaks ties */
    uint32_t host;
    uint64_t host_load; /* bytes that all ranks of the host write so far */
    uint64_t load;      /* of these, this rank */
    double bytes;       /* set by shares_divide() */
};

/* Set ${bytes} of each share: together ${bytes}.  Changes the order of the shares. */
void shares_divide(struct share *shares, size_t count, uint64_t bytes);
/* Put the ${wanted} largest shares first, in the order of their indices. */
void shares_choose(struct share *shares, size_t count, size_t wanted);

#endif
