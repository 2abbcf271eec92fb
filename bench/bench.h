/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.h -- what the parts of the benchmark share.  Each measurement is a pair: what sidestep
 * does, and the plainest way to move the same bytes, timed in turns in one process, because only a
 * ratio within one run says something on a machine whose disk and memory change from minute to
 * minute. A program here stops at the first failure.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "sidestep/sidestep.h"

#define BENCH_MAX_RUNS 32u
#define BENCH_REQUEST_BYTES ((size_t)8 << 20) /* of the plain reads and writes */

struct bench_samples {
    double seconds[BENCH_MAX_RUNS];
    unsigned count;
};

/* How ours and the reference's times make one number, and how that is compared with the goal. */
enum bench_kind {
    BENCH_SPEED,    /* reference / ours; the goal is a lower bound */
    BENCH_STALL,    /* ours / reference; the goal is an upper bound */
    BENCH_DURATION, /* ours, in seconds; the goal is an upper bound */
    BENCH_MEMORY,   /* ours, in bytes; the goal is an upper bound */
    BENCH_CPU,      /* ours, in processor seconds per GiB; the goal is an upper bound */
    BENCH_SHARE,    /* ours, in percent; the goal is a lower bound */
    BENCH_COUNT,    /* ours, of events; the goal is an upper bound */
};

struct bench_row {
    const char *what;
    const char *reference; /* what it is compared with; NULL: nothing */
    enum bench_kind kind;
    double goal;    /* 0: none, for information */
    uint64_t bytes; /* that ours moves; 0: no throughput */
    struct bench_samples ours;
    struct bench_samples theirs;
};

struct bench {
    const char *dir;     /* for files; on the disk to be measured */
    const char *cli;     /* the sidestep command */
    const char *tensors; /* LABEL=FILE, of codec.c; or NULL */
    unsigned runs;
    unsigned cpus;
};

/* ---- report.c ---- */

__attribute__((format(printf, 1, 2), noreturn)) void bench_die(const char *fmt, ...);
/* Die unless ${status} is OK. */
void bench_check(enum sidestep_status status, const struct sidestep_error *err);
double bench_now(void); /* seconds */
double bench_cpu(void); /* seconds of all threads of this process, the kernel's for them included */
double bench_cpu_per_gib(double before, uint64_t bytes);
void bench_add(struct bench_samples *samples, double seconds);
/* One line of JSON on stdout. */
void bench_report(const struct bench_row *row);
/* Peak of resident memory since the last reset, and what is resident now. */
void bench_peak_reset(void);
uint64_t bench_peak_bytes(void);
uint64_t bench_resident_bytes(void);

/* ---- memory.c ---- */

/* ${bytes} of zeroed, pre-faulted memory. */
void *bench_map(uint64_t bytes, bool huge);
void bench_unmap(void *memory, uint64_t bytes);
/* Read all pages, so that none of them has to come back from the host within a timed run ... */
void bench_touch(const void *memory, uint64_t bytes);
/* ... and have as many free ones warm for the page cache. */
void bench_warm_free(uint64_t bytes);
/* Copy with ${threads} threads. */
void bench_copy(void *to, const void *from, uint64_t bytes, unsigned threads);

/* ---- files.c ---- */

/* Sequential pwrite() of BENCH_REQUEST_BYTES, and fsync(), into a new file. */
double bench_write_file(const char *path, const void *memory, uint64_t bytes, bool direct);
/* Sequential read() of BENCH_REQUEST_BYTES; ${whole}: the file goes to ${memory}, else each piece;
 * ${direct}: past the page cache. */
double bench_read_file(const char *path, void *memory, bool whole, bool direct);
uint64_t bench_file_bytes(const char *path);
/* Out of the page cache, all files of a checkpoint; mincore() must agree. */
void bench_make_cold(const char *dir);
void bench_make_warm(const char *dir);
/* Delete a directory with all that is in it, and let the disk settle. */
void bench_remove(const char *path);

/* ---- state.c ---- */

enum bench_layout {
    BENCH_WHOLE,
    BENCH_ROWS,    /* one of ${parts} blocks of rows */
    BENCH_COLUMNS, /* all of ${parts} blocks of columns, each a shard of its own */
};

/* 296 tensors of a decoder of 24 layers, in float32, one behind the other in one stretch of memory
 * of 4 KiB pages, 64 bytes aligned, as an allocator of the trainer might place them.  Padding is
 * zero.  The memory behind them has room for what a shard file has beside its data. */
#define BENCH_SLACK_BYTES ((uint64_t)16 << 20)
struct bench_state {
    struct sidestep_state_dict *dict;
    unsigned char *memory;
    uint64_t bytes;
};
void bench_state_make(struct bench_state *state, uint64_t bytes, enum bench_layout layout,
                      int64_t parts, int64_t part);
/* Values that no two pages share.  Of BENCH_WHOLE states. */
void bench_state_fill(struct bench_state *state, uint64_t seed);
void bench_state_free(struct bench_state *state);

/* ---- the measurements ---- */

void bench_save(const struct bench *bench, uint64_t bytes);     /* save.c */
void bench_hold(const struct bench *bench, uint64_t bytes);     /* hold.c */
void bench_forks(const struct bench *bench, uint64_t bytes);    /* forks.c */
void bench_load(const struct bench *bench, uint64_t bytes);     /* load.c */
void bench_growth(const struct bench *bench, uint64_t bytes);   /* growth.c */
void bench_reshard(const struct bench *bench, uint64_t bytes);  /* reshard.c */
void bench_compress(const struct bench *bench, uint64_t bytes); /* compress.c */
void bench_codec(const struct bench *bench);                    /* codec.c */
void bench_small(const struct bench *bench);                    /* small.c */
void bench_filling(const struct bench *bench);                  /* filling.c */
void bench_plan(const struct bench *bench);                     /* plan.c */

#endif
