/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compression_policy.h -- decides for each save whether compression saves time.
 *
 * The speed of earlier saves of an engine estimates the speed of its disk.  An item is encoded if
 * all threads together encode it faster than the disk would write it.
 *
 * The first save is written without compression, and measured.  If a compressed save was slower
 * than the disk alone, the next saves are written without compression, which measures the disk
 * again.
 */
#ifndef SAVE_COMPRESSION_POLICY_H
#define SAVE_COMPRESSION_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct compression_policy {
    double bytes_per_second;          /* of the disk; 0: not measured yet */
    unsigned uncompressed_saves_left; /* the next saves, which are written without compression */
};

/* May the next save compress?  If so, ${*ns_per_byte} is the time that each of ${threads} threads
 * may take. */
bool compression_policy_should_compress(struct compression_policy *policy, unsigned threads,
                                        double *ns_per_byte) ON_THREAD(CALLER);
/*
 * Record that a save of ${raw_bytes} took ${ns} to become durable.  ${encoded}: it was compressed.
 * ${limit}: its bandwidth limit in bytes per second, or 0.
 */
void compression_policy_record_save(struct compression_policy *policy, uint64_t raw_bytes,
                                    uint64_t ns, bool encoded, uint64_t limit) ON_THREAD(CALLER);

#endif
