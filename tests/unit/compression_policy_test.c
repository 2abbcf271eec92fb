/* SPDX-License-Identifier: BSD-3-Clause */
/* compression_policy_test.c -- what the policy learns from saves about the disk, and when it
 * compresses. */
#include "save/compression_policy.h"
#include "support/unit.h"

#define GIB ((uint64_t)1 << 30)
#define SECOND ((uint64_t)1000000000)

TEST(a_disk_is_known_after_a_plain_save)
{
    struct compression_policy pace = {0};
    double ns = 0;

    assert_false(compression_policy_should_compress(&pace, 2, &ns));
    compression_policy_record_save(&pace, 1000, SECOND, false, 0); /* too small to measure */
    assert_false(compression_policy_should_compress(&pace, 2, &ns));
    compression_policy_record_save(&pace, GIB, 2 * SECOND, false, 0);
    assert_true(compression_policy_should_compress(&pace, 2, &ns));
    assert_true(ns > 3.7 && ns < 3.8); /* two threads, half a GiB per second */
}

TEST(a_fast_disk_wants_no_compression)
{
    struct compression_policy pace = {0};
    double ns = 0;

    compression_policy_record_save(&pace, 20 * GIB, SECOND, false, 0);
    assert_false(compression_policy_should_compress(&pace, 2, &ns));
    assert_true(compression_policy_should_compress(&pace, 16, &ns));
    compression_policy_record_save(&pace, 20 * GIB, SECOND, false,
                                   GIB); /* the speed is a limit, not the disk */
    assert_true(compression_policy_should_compress(&pace, 2, &ns));
}

TEST(a_slower_compression_is_not_tried_for_a_while)
{
    struct compression_policy pace = {0};
    double ns = 0;
    unsigned plain = 0;

    compression_policy_record_save(&pace, GIB, SECOND, false, 0);
    compression_policy_record_save(&pace, GIB, SECOND / 2, true, 0); /* compression was faster */
    assert_true(compression_policy_should_compress(&pace, 2, &ns));
    compression_policy_record_save(&pace, GIB, 2 * SECOND, true, 0);
    while (!compression_policy_should_compress(&pace, 2, &ns) && plain < 100)
        plain++;
    assert_in_range(plain, 4, 16);
}
