/* SPDX-License-Identifier: BSD-3-Clause */
/* scale.c -- measures how the cost of a save grows up to 4,096 ranks: the plan and the commit of
 * rank 0, and the time and the calls of a commit on a slow file system. */
#include "bench.h"

#include <stdio.h>
#include <sys/resource.h>

#include "support/far_ranks.h"
#include "support/store_far.h"

/* Cases of bench_plan_ranks(). 4,096 ranks have no goal of their own. */
static const struct bench_plan_size plans[] = {
    {.ranks = 1024, .goal_same = 1.0, .goal_new = 1.5, .goal_memory = 256 << 20},
    {.ranks = 4096},
};

/* Saves of a few bytes per rank to a store in which each call for a name takes 1 ms. */
static const struct distance {
    uint32_t ranks;
    unsigned slow_of; /* one of this many calls takes 20 ms; 0: none */
    const char *label;
} distances[] = {
    {16, 0, "16 ranks, 1 ms a call"},      {64, 0, "64 ranks, 1 ms a call"},
    {256, 0, "256 ranks, 1 ms a call"},    {1024, 0, "1,024 ranks, 1 ms a call"},
    {4096, 0, "4,096 ranks, 1 ms a call"}, {4096, 100, "4,096 ranks, and 1 of 100 calls 20 ms"},
};

static void measure_distance(const struct bench *bench, const struct distance *distance)
{
    char what[3][96], path[4096];
    struct bench_row rows[3] = {{.what = what[0], .kind = BENCH_DURATION},
                                {.what = what[1], .kind = BENCH_DURATION},
                                {.what = what[2], .kind = BENCH_COUNT}};

    snprintf(path, sizeof(path), "%s/far", bench->dir);
    snprintf(what[0], sizeof(what[0]), "last vote to commit, %s", distance->label);
    snprintf(what[1], sizeof(what[1]), "until the last rank knows, %s", distance->label);
    snprintf(what[2], sizeof(what[2]), "calls of that save, %s", distance->label);
    for (unsigned i = 0; i < bench->runs; i++) {
        struct store_far far = {.call_us = 1000, .slow_us = 20000, .slow_of = distance->slow_of};
        struct far_ranks ranks = {.path = path,
                                  .size = distance->ranks,
                                  .timeout_ms = 120000,
                                  .late = -1,
                                  .save_id = {(uint8_t)(i + 1)}};
        store_far_init(&far);
        ranks.store = &far.store;
        if (!far_ranks_save(&ranks) || ranks.committed != ranks.size)
            bench_die("%s: %u ranks committed: %s", distance->label, ranks.committed,
                      ranks.why.message);
        bench_add(&rows[0].ours, ranks.commit_s);
        bench_add(&rows[1].ours, ranks.learn_s);
        bench_add(&rows[2].ours, (double)atomic_load(&far.calls));
        bench_remove(path);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bench_report(&rows[i]);
}

void bench_scale(const struct bench *bench)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) { /* each rank has several files open */
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (size_t i = 0; i < sizeof(distances) / sizeof(distances[0]); i++)
        measure_distance(bench, &distances[i]);
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        bench_plan_ranks(bench, &plans[i]);
}
