/* SPDX-License-Identifier: BSD-3-Clause */
/* scale.c -- measures what a thousand ranks cost. */
#include "bench.h"

/* What the plan and the commit cost rank 0. There is no goal for 4,096 ranks, only for the slope.
 */
static const struct bench_plan_size plans[] = {
    {.ranks = 1024, .goal_same = 1.0, .goal_new = 1.5, .goal_memory = 256 << 20},
    {.ranks = 4096},
};

void bench_scale(const struct bench *bench)
{
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        bench_plan_ranks(bench, &plans[i]);
}
