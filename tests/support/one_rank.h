/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * one_rank.h -- for tests with one rank: a directory, an engine, a small state, and the last error.
 * Its variables belong to the program that includes it.
 */
#ifndef SUPPORT_ONE_RANK_H
#define SUPPORT_ONE_RANK_H

#include "sidestep/sidestep_tools.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "support/world.h"

static struct scratch scratch;
static struct sidestep_engine *engine;
static struct world world;
static struct sidestep_error err;

#define ASSERT_OK(call)                                                                            \
    do {                                                                                           \
        if ((call) != SIDESTEP_OK) {                                                               \
            print_message("# %s\n", err.message);                                                  \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* For setup and teardown functions of cmocka: 0, or -1.  ${options} may be NULL. */
static inline int one_rank_begin(const struct sidestep_engine_options *options)
{
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    return scratch_make(&scratch, NULL) &&
                   sidestep_engine_open(&engine, options, NULL) == SIDESTEP_OK
               ? 0
               : -1;
}

static inline int one_rank_end(void)
{
    enum sidestep_status status = sidestep_engine_close(&engine, NULL);

    world_free(&world);
    scratch_remove(&scratch);
    return status == SIDESTEP_OK ? 0 : -1;
}

/* The same with default options. */
static inline int one_rank_setup(void **state)
{
    (void)state;
    return one_rank_begin(NULL);
}

static inline int one_rank_teardown(void **state)
{
    (void)state;
    return one_rank_end();
}

/* The path of the checkpoint of a step; valid until the thread's next call. */
static inline const char *step_path(uint64_t step)
{
    static _Thread_local char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu", scratch.path, (unsigned long long)step);
    return path;
}

static inline bool step_exists(uint64_t step)
{
    return access(step_path(step), F_OK) == 0;
}

/* The path of the newest checkpoint, as `sidestep latest` finds it.  Free it. */
static inline enum sidestep_status find_newest(const char *root, enum sidestep_verify_mode verify,
                                               char **path, struct sidestep_error *why)
{
    struct sidestep_latest_report report = {0};
    enum sidestep_status status = sidestep_find_latest(root, verify, NULL, &report, why);

    if (status == SIDESTEP_OK)
        *path = strdup(report.path);
    sidestep_latest_report_release(&report);
    return status;
}

/* Open a series in the directory; ${options} may be NULL. */
static inline struct sidestep_series *open_with(const struct sidestep_series_options *options)
{
    struct sidestep_series *series = NULL;

    ASSERT_OK(sidestep_series_open(engine, scratch.path, options, &series, &err));
    return series;
}

static inline enum sidestep_status try_save_step(struct sidestep_series *series, uint64_t step)
{
    world_fill(&world, step);
    return sidestep_series_save(series, step, world.state, NULL, NULL, &err);
}

static inline void save_step(struct sidestep_series *series, uint64_t step)
{
    ASSERT_OK(try_save_step(series, step));
}

#endif
