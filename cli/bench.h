/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h -- the measurements of `sidestep bench`, which bench.c prints. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli.h"

#include <stdint.h>

#define CLI_BENCH_MAX_RUNS 100

enum cli_bench_metric {
    CLI_BENCH_COPY,  /* memcpy() by one thread */
    CLI_BENCH_WRITE, /* by baseline_io.h; not in a bucket */
    CLI_BENCH_READ,  /* the same */
    CLI_BENCH_STALL, /* of an asynchronous save: until the call returns */
    CLI_BENCH_SAVE,  /* from then until it is committed */
    CLI_BENCH_LOAD,  /* cold, every byte verified */
    CLI_BENCH_COUNT
};

struct cli_bench {
    const struct cli *cli;
    const char *directory; /* or URL */
    bool in_bucket;
    uint64_t bytes; /* per measurement */
    uint64_t runs;
    bool direct; /* the plain write used O_DIRECT */
    double seconds[CLI_BENCH_COUNT][CLI_BENCH_MAX_RUNS];
};

/** cli_bench_has(bench, what): was it measured? */
static inline bool cli_bench_has(const struct cli_bench *bench, enum cli_bench_metric what)
{
    return !bench->in_bucket || (what != CLI_BENCH_WRITE && what != CLI_BENCH_READ);
}

/** cli_bench_measure(bench, err): fill in ${seconds}, in a directory that is then removed. */
enum sidestep_status cli_bench_measure(struct cli_bench *bench, struct sidestep_error *err);

#endif
