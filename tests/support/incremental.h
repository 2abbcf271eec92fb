/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * incremental.h -- for tests of incremental saves of one rank: a state with tensors that stay the
 * same, and checks of the files. Its variables belong to the program that includes it.
 */
#ifndef SUPPORT_INCREMENTAL_H
#define SUPPORT_INCREMENTAL_H

#include <glob.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/flip.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define KEPT "/__0_1.distcp"
#define EMBED 0 /* index of the large tensors in the world */
#define HEAD 4
#define SCALE 16
#define LARGE_SCALE 48 /* more than one window is shared */

static int64_t scale;
static char last_event[4096];

static inline void on_event(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "\"written\"") != NULL)
        snprintf(last_event, sizeof(last_event), "%s", line);
}

static inline int begin(int64_t times, uint32_t threads)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    scale = times;
    options.on_event = on_event;
    options.threads = threads;
    last_event[0] = '\0';
    world_make(&world, 0, 1, WORLD_BY_ROWS, scale, false);
    world.tensors[EMBED].frozen = world.tensors[HEAD].frozen = 1000;
    return scratch_make(&scratch, NULL) && sidestep_engine_open(&engine, &options, NULL) == 0 ? 0
                                                                                              : -1;
}

static inline int setup(void **state)
{
    (void)state;
    return begin(SCALE, 2);
}

static inline int setup_large(void **state)
{
    (void)state;
    return begin(LARGE_SCALE, 2);
}

/* One thread, so that windows are hashed in order. */
static inline int setup_alone(void **state)
{
    (void)state;
    return begin(LARGE_SCALE, 1);
}

static inline int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    return one_rank_end();
}

static inline struct sidestep_series *open_incremental(uint32_t keep_last)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.flags = SIDESTEP_SERIES_INCREMENTAL;
    if (keep_last != 0)
        options.retention = &keep;
    return open_with(&options);
}

static inline const char *path_of(uint64_t step, const char *rest)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu%s", scratch.path, (unsigned long long)step, rest);
    return path;
}

static struct sidestep_save_info info;

static inline enum sidestep_status try_save_filled(struct sidestep_series *series, uint64_t step,
                                                   const struct sidestep_save_options *options,
                                                   bool blocking)
{
    struct sidestep_save *save = NULL;

    info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    if (blocking)
        return sidestep_series_save(series, step, world.state, options, &info, &err);
    enum sidestep_status status =
        sidestep_series_save_async(series, step, world.state, options, &save, &err);
    return status == SIDESTEP_OK ? sidestep_save_finish(&save, &info, &err) : status;
}

static inline enum sidestep_status try_save(struct sidestep_series *series, uint64_t step,
                                            const struct sidestep_save_options *options,
                                            bool blocking)
{
    world_fill(&world, step);
    return try_save_filled(series, step, options, blocking);
}

static inline void save_one(struct sidestep_series *series, uint64_t step)
{
    ASSERT_OK(try_save(series, step, NULL, step % 2 == 0));
}

/* Save steps ${first} to ${last}. */
static inline void save_some(struct sidestep_series *series, uint64_t first, uint64_t last)
{
    for (uint64_t n = first; n <= last; n++)
        save_one(series, n);
}

static inline void expect(uint64_t step)
{
    struct sidestep_verify_report report = {0};
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, scale, true);
    for (size_t i = 0; i < loaded.count; i++)
        loaded.tensors[i].frozen = world.tensors[i].frozen;
    ASSERT_OK(sidestep_load(engine, path_of(step, ""), loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
    ASSERT_OK(sidestep_verify(path_of(step, ""), NULL, &report, &err));
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
}

/* Find the shared file of a step. If the save replaced another in place, its name has the save id.
 */
static inline bool find_kept(uint64_t step, struct stat *st)
{
    char pattern[300];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s", path_of(step, "/__0_1*"));
    bool there = glob(pattern, 0, NULL, &found) == 0;
    assert_true(!there || (found.gl_pathc == 1 && stat(found.gl_pathv[0], st) == 0));
    if (there)
        globfree(&found);
    return there;
}

static inline ino_t inode_of(uint64_t step)
{
    struct stat st;

    assert_true(find_kept(step, &st));
    return st.st_ino;
}

static inline bool has_kept(uint64_t step)
{
    struct stat st;

    return find_kept(step, &st);
}

static inline void remove_step(uint64_t step)
{
    char command[512];

    snprintf(command, sizeof(command), "rm -r %s", path_of(step, ""));
    assert_int_equal(system(command), 0);
}

static inline void close_series(struct sidestep_series **series)
{
    ASSERT_OK(sidestep_series_close(series, &err));
}

#endif
