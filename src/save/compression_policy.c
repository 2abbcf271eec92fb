/* SPDX-License-Identifier: BSD-3-Clause */
/* compression_policy.c -- decides whether compression saves time; see compression_policy.h. */
#include "save/compression_policy.h"

/* Saves with fewer bytes measure the latency of the storage, not its speed. */
#define MIN_MEASURED_BYTES ((uint64_t)16 << 20)
/* A compressed save below this share of the speed without compression is slower.  The rest is
 * noise. */
#define MIN_SPEED_RATIO 0.9
#define UNCOMPRESSED_SAVES 8u
/* No codec is faster than this on a CPU, so compression is not tried below it. */
#define MIN_NS_PER_BYTE 0.25

bool compression_policy_should_compress(struct compression_policy *policy, unsigned threads,
                                        double *ns_per_byte)
{
    if (policy->bytes_per_second <= 0)
        return false;
    if (policy->uncompressed_saves_left != 0) {
        policy->uncompressed_saves_left--;
        return false;
    }
    *ns_per_byte = (double)threads * 1e9 / policy->bytes_per_second;
    return *ns_per_byte >= MIN_NS_PER_BYTE;
}

void compression_policy_record_save(struct compression_policy *policy, uint64_t raw_bytes,
                                    uint64_t ns, bool encoded, uint64_t limit)
{
    double reached = (double)raw_bytes * 1e9 / (double)(ns != 0 ? ns : 1);

    if (raw_bytes < MIN_MEASURED_BYTES)
        return;
    if (limit != 0 && reached > (double)limit)
        reached = (double)limit;
    if (!encoded)
        policy->bytes_per_second = reached;
    else if (reached < MIN_SPEED_RATIO * policy->bytes_per_second)
        policy->uncompressed_saves_left = UNCOMPRESSED_SAVES;
}
