/* SPDX-License-Identifier: BSD-3-Clause */
/* compression_policy.c -- see compression_policy.h. */
#include "save/compression_policy.h"

/* Less says more of the medium's latency than of its speed. */
#define LEARN_BYTES ((uint64_t)16 << 20)
/* Of what the disk alone does: less is slower, and not only noise. */
#define SLOWER 0.9
#define PLAIN_SAVES 8u
/* What no codec reaches on a processor: not worth the trying. */
#define LEAST_NS_PER_BYTE 0.25

bool compression_policy_should_compress(struct compression_policy *pace, unsigned threads,
                                        double *ns_per_byte)
{
    if (pace->bytes_per_second <= 0)
        return false;
    if (pace->plain != 0) {
        pace->plain--;
        return false;
    }
    *ns_per_byte = (double)threads * 1e9 / pace->bytes_per_second;
    return *ns_per_byte >= LEAST_NS_PER_BYTE;
}

void compression_policy_record_save(struct compression_policy *pace, uint64_t raw_bytes,
                                    uint64_t ns, bool encoded, uint64_t limit)
{
    double reached = (double)raw_bytes * 1e9 / (double)(ns != 0 ? ns : 1);

    if (raw_bytes < LEARN_BYTES)
        return;
    if (limit != 0 && reached > (double)limit)
        reached = (double)limit;
    if (!encoded)
        pace->bytes_per_second = reached;
    else if (reached < SLOWER * pace->bytes_per_second)
        pace->plain = PLAIN_SAVES;
}
