/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c -- reads clocks and memory sizes, keeps samples, and prints one line of JSON for each
 * row. */
#include "bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void bench_die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void bench_check(enum sidestep_status status, const struct sidestep_error *err)
{
    if (status != SIDESTEP_OK)
        bench_die("%s", err->message);
}

double bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

double bench_cpu(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        bench_die("cannot get the processor time");
    return seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime);
}

double bench_cpu_per_gib(double before, uint64_t bytes)
{
    return (bench_cpu() - before) / ((double)bytes / (1 << 30));
}

void bench_add(struct bench_samples *samples, double seconds)
{
    if (samples->count < BENCH_MAX_RUNS)
        samples->seconds[samples->count++] = seconds;
}

static void print_samples(const char *key, const struct bench_samples *samples)
{
    printf(",\"%s\":[", key);
    for (unsigned i = 0; i < samples->count; i++)
        printf("%s%.9g", i != 0 ? "," : "", samples->seconds[i]);
    printf("]");
}

void bench_report(const struct bench_row *row)
{
    static const char *const kinds[] = {
        [BENCH_SPEED] = "speed",   [BENCH_STALL] = "stall", [BENCH_DURATION] = "duration",
        [BENCH_MEMORY] = "memory", [BENCH_CPU] = "cpu",     [BENCH_SHARE] = "share",
        [BENCH_COUNT] = "count",
    };

    printf("{\"what\":\"%s\",\"kind\":\"%s\",\"goal\":%.9g,\"bytes\":%" PRIu64, row->what,
           kinds[row->kind], row->goal, row->bytes);
    print_samples("ours", &row->ours);
    if (row->reference != NULL) {
        printf(",\"reference\":\"%s\"", row->reference);
        print_samples("theirs", &row->theirs);
    }
    printf("}\n");
    fflush(stdout);
}

static uint64_t status_field(const char *key)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtoull(line + strlen(key), NULL, 10);
    if (file != NULL)
        (void)fclose(file);
    return kib << 10;
}

void bench_peak_reset(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "5", 1) != 1)
        bench_die("cannot reset the peak of resident memory");
    (void)close(fd);
}

uint64_t bench_peak_bytes(void)
{
    return status_field("VmHWM:");
}

uint64_t bench_resident_bytes(void)
{
    return status_field("VmRSS:");
}
