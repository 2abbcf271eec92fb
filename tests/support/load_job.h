/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load_job.h -- for tests that count storage calls of loads: saves and loads by ranks as threads.
 * The fault points of store_fault.h count the calls of all ranks.
 */
#ifndef SUPPORT_LOAD_JOB_H
#define SUPPORT_LOAD_JOB_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "engine/engine.h"
#include "support/comm_threads.h"
#include "support/one_scratch.h"
#include "support/store_fault.h"

#define COUNT_ONLY (~0ul) /* number of a hit that is never reached */
#define ROWS 2
#define COLUMNS 8
#define TENSORS 3
/* Files that a load opens for all ranks. Ours: .metadata twice, for its lock and its hash; the
 * manifest; and the owner's record. Torch's: .metadata five times. */
#define RECORD_OPENS 4u
#define STOCK_OPENS 5u

enum part {
    OWN_PART,  /* each rank loads the rows that the same rank saved */
    SAME_PART, /* all ranks load the rows of rank 0 */
};

struct job {
    struct store *store;
    char path[160];
    char other_path[160]; /* not empty: rank 1 loads from there */
    int savers;
    enum part part;
    bool is_load;
    enum sidestep_status expected;
    _Atomic unsigned wrong; /* number of wrong elements */
    char said[704];
};

static inline float element(int tensor, int64_t row, int64_t column)
{
    return (float)(tensor * 1000003 + row * COLUMNS + column);
}

static inline int64_t first_row(const struct job *job, int rank)
{
    return job->is_load && job->part == SAME_PART ? 0 : (int64_t)rank * ROWS;
}

static inline void fill_state(const struct job *job, struct sidestep_state_dict *state, int rank,
                              float data[TENSORS][ROWS][COLUMNS])
{
    int64_t first = first_row(job, rank);
    struct sidestep_error err;

    for (int t = 0; t < TENSORS; t++) {
        char name[32];
        const struct sidestep_tensor tensor = {
            .struct_size = sizeof(tensor),
            .name = name,
            .dtype = SIDESTEP_FLOAT32,
            .ndim = 2,
            .shape = (int64_t[]){(int64_t)job->savers * ROWS, COLUMNS},
            .offsets = (int64_t[]){first, 0},
            .lengths = (int64_t[]){ROWS, COLUMNS},
            .data = data[t]};
        snprintf(name, sizeof(name), "layer.%d.weight", t);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < COLUMNS; c++)
                data[t][r][c] = job->is_load ? -1 : element(t, first + r, c);
        assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, &err), SIDESTEP_OK);
    }
}

#define MANY_SAVERS 33 /* from here on a checkpoint has an index of chunks */
#define OWN_NAME_BYTES 2100

/* The name of the tensor that only this rank saves. It is long, so that the index of chunks is
 * stored where MANY_SAVERS save. */
static inline const char *own_name(int rank)
{
    static _Thread_local char name[OWN_NAME_BYTES + 1];

    memset(name, 'x', OWN_NAME_BYTES);
    name[snprintf(name, sizeof(name), "own.%d", rank)] = '.';
    return name;
}

/* Add a tensor that only this rank saves. */
static inline void add_own(struct sidestep_state_dict *state, int rank, float data[ROWS])
{
    const struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                           .name = own_name(rank),
                                           .dtype = SIDESTEP_FLOAT32,
                                           .ndim = 1,
                                           .shape = (int64_t[]){ROWS},
                                           .data = data};

    for (int i = 0; i < ROWS; i++)
        data[i] = element(TENSORS, rank, i);
    assert_int_equal(sidestep_state_dict_add_tensor(state, &tensor, NULL), SIDESTEP_OK);
}

static inline void count_wrong(struct job *job, int rank, float data[TENSORS][ROWS][COLUMNS])
{
    int64_t first = first_row(job, rank);

    for (int t = 0; t < TENSORS; t++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < COLUMNS; c++)
                if (data[t][r][c] != element(t, first + r, c))
                    job->wrong++;
}

static inline int run_rank(struct sidestep_comm *comm, void *context)
{
    struct job *job = context;
    struct sidestep_engine *engine = NULL;
    struct sidestep_state_dict *state = NULL;
    struct sidestep_error err = {0};
    float data[TENSORS][ROWS][COLUMNS], own[ROWS];
    int rank = comm->rank;

    assert_int_equal(comm_threads_open(comm, &engine, &err), SIDESTEP_OK);
    engine->store = job->store;
    assert_int_equal(sidestep_state_dict_new(&state, &err), SIDESTEP_OK);
    fill_state(job, state, rank, data);
    if (!job->is_load)
        add_own(state, rank, own);
    const char *path = rank == 1 && job->other_path[0] != '\0' ? job->other_path : job->path;
    enum sidestep_status status = job->is_load
                                      ? sidestep_load(engine, path, state, NULL, NULL, &err)
                                      : sidestep_save(engine, path, state, NULL, NULL, &err);
    if (status != job->expected)
        print_message("# rank %d: %d, '%s'\n", rank, (int)status, err.message);
    if (rank == 0)
        snprintf(job->said, sizeof(job->said), "%s", err.message);
    if (job->is_load && status == SIDESTEP_OK)
        count_wrong(job, rank, data);
    sidestep_state_dict_free(&state);
    (void)sidestep_engine_close(&engine, NULL);
    return status == job->expected ? 0 : 1;
}

static inline void save(struct job *job, int savers)
{
    *job = (struct job){.store = store_fault_new(store_posix()), .savers = savers};
    snprintf(job->path, sizeof(job->path), "%s/of-%d", scratch.path, savers);
    assert_non_null(job->store);
    assert_int_equal(comm_threads_run(savers, run_rank, job), 0);
    job->is_load = true;
}

/* The number of calls of ${point} ("store.file_open") by all ranks of a load. */
static inline unsigned long count_calls(struct job *job, int loaders, enum part part,
                                        const char *point)
{
    job->part = part;
    job->wrong = 0;
    fault_arm(point, COUNT_ONLY, false, 0);
    assert_int_equal(comm_threads_run(loaders, run_rank, job), 0);
    assert_int_equal(job->wrong, 0);
    unsigned long hits = fault_hits();
    fault_arm("", 0, false, 0);
    return hits;
}

static inline void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+");

    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

#endif
