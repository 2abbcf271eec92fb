/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.h -- declares what the parts of the benchmark share: clocks, samples, rows of the report,
 * files, memory and states.
 *
 * Each measurement compares sidestep with the simplest way to move the same bytes. Both are timed
 * in turns in one process: the speed of disk and memory changes from minute to minute, so only a
 * ratio within one run is meaningful. The program ends at the first failure.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "sidestep/sidestep.h"

#define BENCH_MAX_RUNS 32u
#define BENCH_REQUEST_BYTES ((size_t)8 << 20) /* size of each plain read and write */

struct bench_samples {
    double seconds[BENCH_MAX_RUNS];
    unsigned count;
};

/* How a row's value is computed from the samples of sidestep ("ours") and of the reference, and
 * whether the goal is a lower or an upper bound. */
enum bench_kind {
    BENCH_SPEED,    /* reference / ours; the goal is a lower bound */
    BENCH_STALL,    /* ours / reference; the goal is an upper bound */
    BENCH_DURATION, /* ours, in seconds; the goal is an upper bound */
    BENCH_MEMORY,   /* ours, in bytes; the goal is an upper bound */
    BENCH_CPU,      /* ours, in processor seconds per GiB; the goal is an upper bound */
    BENCH_SHARE,    /* ours, in percent; the goal is a lower bound */
    BENCH_COUNT,    /* ours, a number of events; the goal is an upper bound */
};

struct bench_row {
    const char *what;
    const char *reference; /* NULL: there is no reference */
    enum bench_kind kind;
    double goal;    /* 0: none; the row is for information */
    uint64_t bytes; /* bytes that sidestep moves; 0: the report shows no throughput */
    struct bench_samples ours;
    struct bench_samples theirs;
};

struct bench {
    const char *dir;           /* scratch directory on the measured disk */
    const char *cli;           /* path of the sidestep command */
    const char *tensors;       /* LABEL=FILE for codec.c, or NULL */
    const char *object_server; /* path of the object server (object_server.h), or NULL */
    unsigned runs;
    unsigned cpus;
};

/* ---- report.c ---- */

__attribute__((format(printf, 1, 2), noreturn)) void bench_die(const char *fmt, ...);
/* Exit unless ${status} is OK. */
void bench_check(enum sidestep_status status, const struct sidestep_error *err);
double bench_now(void); /* seconds */
double bench_cpu(void); /* seconds of all threads of this process, in user and kernel mode */
double bench_cpu_per_gib(double before, uint64_t bytes);
void bench_add(struct bench_samples *samples, double seconds);
/* Print one line of JSON on stdout. */
void bench_report(const struct bench_row *row);
/* Peak resident memory since the last reset, and resident memory now. */
void bench_peak_reset(void);
uint64_t bench_peak_bytes(void);
uint64_t bench_resident_bytes(void);

/* ---- memory.c ---- */

/* Allocate ${bytes} of zeroed, pre-faulted memory. */
void *bench_map(uint64_t bytes, bool huge);
void bench_unmap(void *memory, uint64_t bytes);
/* Read every page of ${memory} before a timed run, so that the host has provided it. */
void bench_touch(const void *memory, uint64_t bytes);
/* Allocate, write and free ${bytes}, so that the page cache finds pages that the host provides. */
void bench_warm_free(uint64_t bytes);
void bench_copy(void *to, const void *from, uint64_t bytes, unsigned threads);

/* ---- files.c ---- */

/* Write a new file with sequential pwrite() of BENCH_REQUEST_BYTES, then fsync() it. ${direct}:
 * bypass the page cache. Returns seconds. */
double bench_write_file(const char *path, const void *memory, uint64_t bytes, bool direct);
/* Read a file with sequential read() of BENCH_REQUEST_BYTES. ${whole}: to consecutive addresses of
 * ${memory}; else every request reads to the start of ${memory}. Returns seconds. */
double bench_read_file(const char *path, void *memory, bool whole, bool direct);
uint64_t bench_file_bytes(const char *path);
/* Drop all files of a checkpoint from the page cache, and check that with mincore(). */
void bench_make_cold(const char *dir);
void bench_make_warm(const char *dir);
/* Delete a directory with its contents, and wait until the disk is idle. */
void bench_remove(const char *path);

/* ---- state.c ---- */

enum bench_layout {
    BENCH_WHOLE,
    BENCH_ROWS,    /* block ${part} of ${parts} blocks of rows */
    BENCH_COLUMNS, /* all ${parts} blocks of columns, each as a shard */
};

/* 296 float32 tensors of a decoder with 24 layers, in one block of memory of 4 KiB pages. Each
 * tensor is aligned to 64 bytes, as by the allocator of a trainer, and the padding is zero.
 * BENCH_SLACK_BYTES follow the tensors: a whole shard file fits into the block. */
#define BENCH_SLACK_BYTES ((uint64_t)16 << 20)
struct bench_state {
    struct sidestep_state_dict *dict;
    unsigned char *memory;
    uint64_t bytes;
};
void bench_state_make(struct bench_state *state, uint64_t bytes, enum bench_layout layout,
                      int64_t parts, int64_t part);
/* Fill a BENCH_WHOLE state with values that differ in every page. */
void bench_state_fill(struct bench_state *state, uint64_t seed);
void bench_state_free(struct bench_state *state);

/* ---- plan.c ---- */

/* The number of ranks that plan and commit together, and the goals (0: none). */
struct bench_plan_size {
    unsigned ranks;
    double goal_same, goal_new; /* seconds, with the layout of the last save and with a new one */
    double goal_memory;         /* bytes; 0: derived from the size of .metadata */
};
void bench_plan_ranks(const struct bench *bench, const struct bench_plan_size *size);
/* Save a checkpoint of ${ranks} ranks. Each rank holds one row of 8 float32 of each of ${tensors}
 * tensors, "model.layers.LAYER.mlp.weight.NUMBER", 12 per layer. */
void bench_plan_save(const char *path, unsigned ranks, unsigned tensors);

/* ---- the measurements ---- */

void bench_save(const struct bench *bench, uint64_t bytes);     /* save.c */
void bench_hold(const struct bench *bench, uint64_t bytes);     /* hold.c */
void bench_busy(const struct bench *bench, uint64_t bytes);     /* busy.c */
void bench_forks(const struct bench *bench, uint64_t bytes);    /* forks.c */
void bench_load(const struct bench *bench, uint64_t bytes);     /* load.c */
void bench_growth(const struct bench *bench, uint64_t bytes);   /* growth.c */
void bench_reshard(const struct bench *bench, uint64_t bytes);  /* reshard.c */
void bench_compress(const struct bench *bench, uint64_t bytes); /* compress.c */
void bench_codec(const struct bench *bench);                    /* codec.c */
void bench_small(const struct bench *bench);                    /* small.c */
void bench_filling(const struct bench *bench);                  /* filling.c */
void bench_nodes(const struct bench *bench);                    /* nodes.c */
void bench_plan(const struct bench *bench);                     /* plan.c */
void bench_scale(const struct bench *bench);                    /* scale.c */
void bench_scale_load(const struct bench *bench);               /* scale_load.c */
void bench_objects(const struct bench *bench, uint64_t bytes);  /* objects.c */

#endif
