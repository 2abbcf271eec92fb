/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.c -- runs the measurements that docs/internals/PERFORMANCE-METHOD.md has goals for: each
 * prints one line of JSON on stdout. bench/run calls it, and makes a table.
 *
 *      sidestep-bench --cli=build/sidestep --dir=DIR [--runs=5] [--mib=1024] PART...
 *
 * Parts: save, hold, busy, forks, filling, load, growth, reshard, small, compress, codec, plan,
 * scale, objects (with --object-server=build/bench/object-server).
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool take_option(const char *argument, const char *name, const char **value)
{
    size_t length = strlen(name);

    if (strncmp(argument, name, length) != 0)
        return false;
    *value = argument + length;
    return true;
}

static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end != '\0' || value == 0 || value > most)
        bench_die("'%s' is not a number from 1 to %u", text, most);
    return (unsigned)value;
}

static void run_part(const struct bench *bench, const char *part, uint64_t bytes)
{
    if (strcmp(part, "save") == 0)
        bench_save(bench, bytes);
    else if (strcmp(part, "hold") == 0)
        bench_hold(bench, bytes);
    else if (strcmp(part, "busy") == 0)
        bench_busy(bench, bytes);
    else if (strcmp(part, "forks") == 0)
        bench_forks(bench, bytes);
    else if (strcmp(part, "filling") == 0)
        bench_filling(bench);
    else if (strcmp(part, "load") == 0)
        bench_load(bench, bytes);
    else if (strcmp(part, "growth") == 0)
        bench_growth(bench, bytes);
    else if (strcmp(part, "reshard") == 0)
        bench_reshard(bench, bytes);
    else if (strcmp(part, "small") == 0)
        bench_small(bench);
    else if (strcmp(part, "compress") == 0)
        bench_compress(bench, bytes);
    else if (strcmp(part, "codec") == 0)
        bench_codec(bench);
    else if (strcmp(part, "plan") == 0)
        bench_plan(bench);
    else if (strcmp(part, "scale") == 0)
        bench_scale(bench);
    else if (strcmp(part, "scale-load") == 0)
        bench_scale_load(bench);
#ifdef BENCH_WITH_OBJECTS
    else if (strcmp(part, "objects") == 0)
        bench_objects(bench, bytes);
#endif
    else
        bench_die("there is no part '%s'", part);
}

int main(int argc, char **argv)
{
    struct bench bench = {.runs = 5, .cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    const char *runs = "5", *mib = "1024";

    for (int i = 1; i < argc; i++) {
        if (take_option(argv[i], "--cli=", &bench.cli) ||
            take_option(argv[i], "--dir=", &bench.dir) || take_option(argv[i], "--runs=", &runs) ||
            take_option(argv[i], "--mib=", &mib) ||
            take_option(argv[i], "--tensors=", &bench.tensors) ||
            take_option(argv[i], "--object-server=", &bench.object_server))
            continue;
        if (bench.dir == NULL || bench.cli == NULL)
            bench_die("--dir=DIR and --cli=PROGRAM come first");
        bench.runs = number(runs, BENCH_MAX_RUNS);
        run_part(&bench, argv[i], (uint64_t)number(mib, 1u << 20) << 20);
    }
    return 0;
}
