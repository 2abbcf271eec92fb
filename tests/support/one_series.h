/* SPDX-License-Identifier: BSD-3-Clause */
/* one_series.h -- for tests of resumes: one_rank.h, and resumes of the series in its directory that
 * check the loaded state. */
#ifndef SUPPORT_ONE_SERIES_H
#define SUPPORT_ONE_SERIES_H

#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

static inline enum sidestep_status resume(struct sidestep_series *series, uint64_t *step,
                                          char rejected[2048])
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status =
        sidestep_series_load(series, loaded.state, NULL, step, NULL, rejected, &err);
    if (status == SIDESTEP_OK)
        assert_int_equal(world_check(&loaded, *step), 0);
    world_free(&loaded);
    return status;
}

/* Check the newest checkpoint, as `sidestep latest` finds it. */
static inline void expect_latest(uint64_t want)
{
    char *latest = NULL, path[256];

    ASSERT_OK(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err));
    snprintf(path, sizeof(path), "%s/step-%llu", scratch.path, (unsigned long long)want);
    assert_string_equal(latest, path);
    free(latest);
}

/* Resume, and check that a resume and `sidestep latest` choose step ${want}. */
static inline void expect_resume(struct sidestep_series *series, uint64_t want)
{
    uint64_t step = 0;
    char rejected[2048];

    ASSERT_OK(resume(series, &step, rejected));
    if (step != want)
        fail_msg("resumed %llu, not %llu: %s", (unsigned long long)step, (unsigned long long)want,
                 rejected);
    expect_latest(want);
}

static inline void go_back(struct sidestep_series *series, uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, step, loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, step), 0);
    world_free(&loaded);
    expect_latest(step);
}

static inline void close_series(struct sidestep_series **series)
{
    ASSERT_OK(sidestep_series_close(series, &err));
}

#endif
