/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compression_policy.h -- does compression pay?  What earlier saves of an engine wrote at says how
 * fast its disk is; an item is encoded if all threads together do that faster than the disk would
 * write it.
 *
 * The first save is written as it is, and measured.  A save that took longer with compression than
 * the disk alone would have taken is followed by some without, which measure anew.
 */
#ifndef SAVE_COMPRESSION_POLICY_H
#define SAVE_COMPRESSION_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct compression_policy {
    double bytes_per_second; /* of the disk; 0: not known yet */
    unsigned plain;          /* so many saves are to be written as they are */
};

/* May the next save compress?  ${*ns_per_byte}: what one of ${threads} threads may take. */
bool compression_policy_should_compress(struct compression_policy *pace, unsigned threads,
                                        double *ns_per_byte);
/* A save of ${raw_bytes} took ${ns} to become durable; ${encoded}: with compression.  ${limit}:
 * bytes per second that it was held to, or 0. */
void compression_policy_record_save(struct compression_policy *pace, uint64_t raw_bytes,
                                    uint64_t ns, bool encoded, uint64_t limit);

#endif
