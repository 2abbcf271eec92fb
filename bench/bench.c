/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.c -- the main function of sidestep-bench: runs the measurements whose goals
 * docs/internals/PERFORMANCE-METHOD.md states. Each prints one line of JSON on stdout. bench/run
 * calls this program and prints a table.
 *
 *      sidestep-bench --cli=build/sidestep --dir=DIR [--runs=5] [--mib=1024] PART...
 *
 * Parts: save, hold, busy, forks, filling, load, growth, reshard, small, compress, codec (with
 * --tensors=LABEL=FILE), plan, scale, scale-load, objects (with
 * --object-server=build/bench/object-server).
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool parse_option(const char *argument, const char *name, const char **value)
{
    size_t length = strlen(name);

    if (strncmp(argument, name, length) != 0)
        return false;
    *value = argument + length;
    return true;
}

static unsigned parse_number(const char *text, unsigned max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end != '\0' || value == 0 || value > max)
        bench_die("'%s' is not a number from 1 to %u", text, max);
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
    else if (strcmp(part, "nodes") == 0)
        bench_nodes(bench);
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
        bench_die("no part is called '%s'", part);
}

int main(int argc, char **argv)
{
    struct bench bench = {.runs = 5, .cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    const char *runs = "5", *mib = "1024";

    for (int i = 1; i < argc; i++) {
        if (parse_option(argv[i], "--cli=", &bench.cli) ||
            parse_option(argv[i], "--dir=", &bench.dir) ||
            parse_option(argv[i], "--runs=", &runs) || parse_option(argv[i], "--mib=", &mib) ||
            parse_option(argv[i], "--tensors=", &bench.tensors) ||
            parse_option(argv[i], "--object-server=", &bench.object_server))
            continue;
        if (bench.dir == NULL || bench.cli == NULL)
            bench_die("--dir=DIR and --cli=PROGRAM must precede the first part");
        bench.runs = parse_number(runs, BENCH_MAX_RUNS);
        run_part(&bench, argv[i], (uint64_t)parse_number(mib, 1u << 20) << 20);
    }
    return 0;
}
