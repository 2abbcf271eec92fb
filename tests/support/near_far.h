/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * near_far.h -- for tests of a series with a mirror: one rank, two directories, and where a run
 * goes on. Its variables belong to the program that includes it.
 */
#ifndef SUPPORT_NEAR_FAR_H
#define SUPPORT_NEAR_FAR_H

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "support/one_rank.h"

static char near[128], far[128];
static struct sidestep_series *series;
static struct sidestep_series_options options;
static struct sidestep_mirror_options to_mirror;
static struct sidestep_retention near_keep, far_keep;

static inline int set_up(void **test UNUSED)
{
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(near, sizeof(near), "%s", scratch_path(&scratch, "near"));
    snprintf(far, sizeof(far), "%s", scratch_path(&scratch, "far"));
    near_keep = far_keep = (struct sidestep_retention)SIDESTEP_RETENTION_INIT;
    to_mirror = (struct sidestep_mirror_options)SIDESTEP_MIRROR_OPTIONS_INIT;
    options = (struct sidestep_series_options)SIDESTEP_SERIES_OPTIONS_INIT;
    options.mirror = far;
    options.mirror_options = &to_mirror;
    return 0;
}

static inline int tear_down(void **test UNUSED)
{
    (void)sidestep_series_close(&series, NULL);
    return one_rank_end();
}

static inline enum sidestep_status try_open(const char *root)
{
    return sidestep_series_open(engine, root, &options, &series, &err);
}

static inline void reopen(const char *root)
{
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(try_open(root));
}

static inline const char *path_of(const char *root, uint64_t step, const char *file)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/step-%llu%s", root, (unsigned long long)step, file);
    return path;
}

static inline bool is_at(const char *root, uint64_t step)
{
    return access(path_of(root, step, "/.metadata"), F_OK) == 0;
}

static inline void await(const char *root, uint64_t step)
{
    for (int i = 0; i < 6000 && !is_at(root, step); i++)
        usleep(10000);
    if (!is_at(root, step))
        fail_msg("%s does not get step %llu", root, (unsigned long long)step);
}

static inline void run(const char *format, const char *a, const char *b)
{
    char command[640];

    snprintf(command, sizeof(command), format, a, b);
    assert_int_equal(system(command), 0);
}

static inline enum sidestep_status resume(uint64_t *step)
{
    struct world loaded;
    char rejected[2048];

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status =
        sidestep_series_load(series, loaded.state, NULL, step, NULL, rejected, &err);
    if (status == SIDESTEP_OK)
        assert_int_equal(world_check(&loaded, *step), 0);
    world_free(&loaded);
    return status;
}

static inline void expect_resume(uint64_t want)
{
    uint64_t step = 0;

    ASSERT_OK(resume(&step));
    assert_int_equal(step, want);
}

static inline void expect_latest(const char *root, uint64_t step)
{
    char *latest = NULL;

    ASSERT_OK(find_newest(root, SIDESTEP_VERIFY_BEFORE, &latest, &err));
    assert_string_equal(latest, path_of(root, step, ""));
    free(latest);
}

static inline void take_away(void)
{
    run("mv '%s' '%s.away'", far, far);
    FILE *f = fopen(far, "w"); /* a file instead, so that it is not made anew */
    assert_non_null(f);
    fclose(f);
}

static inline void bring_back(void)
{
    assert_int_equal(unlink(far), 0);
    run("mv '%s.away' '%s'", far, far);
}

EACH_TEST(set_up, tear_down);

#endif
