/* SPDX-License-Identifier: BSD-3-Clause */
/* series_state.c -- the state of a series: whether it is open, how its saves ended, and how much
 * space the newest checkpoint uses. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "series/series.h"

enum sidestep_status series_check(const struct sidestep_series *series, struct sidestep_error *err)
{
    if (series == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "series is NULL");
    TRY(engine_check(series->engine, err));
    if (series->is_shut)
        return FAIL(err, SIDESTEP_EINVAL, "the engine of series '%s' was closed", series->root);
    return SIDESTEP_OK;
}

void series_format_path(const struct sidestep_series *series, uint64_t step,
                        char path[COMMIT_PATH_BYTES])
{
    char name[FILE_NAME_BYTES];

    name_template_format_name(&series->naming, step, name);
    snprintf(path, COMMIT_PATH_BYTES, "%s/%s", series->root, name);
}

bool series_has_parts(const struct sidestep_series *series)
{
    return series->groups.mine.count != 0;
}

uint32_t series_directories(const struct sidestep_series *series)
{
    return series_has_parts(series) ? series->groups.mine.groups : 1;
}

bool series_leads(const struct sidestep_series *series)
{
    uint32_t rank = (uint32_t)series->engine->comm.rank;

    return rank == (series_has_parts(series) ? series->groups.mine.ranks[0] : 0);
}

struct sidestep_save *series_find_in_flight(const struct sidestep_series *series, const char *name)
{
    for (unsigned i = 0; i < series->save_count; i++) {
        struct sidestep_save *save = series->saves[i];
        if (!save_state_is_final(save_get_state(save)) &&
            (name == NULL || strcmp(save->commit.name, name) == 0))
            return save;
    }
    return NULL;
}

void series_record_outcome_locked(struct sidestep_series *series, struct sidestep_save *save)
{
    enum sidestep_save_state state = save_get_state(save);

    series->shared.has_committed |= state == SIDESTEP_SAVE_COMMITTED;
    series->shared.has_unknown |= state == SIDESTEP_SAVE_UNKNOWN;
    for (size_t i = 0; i < ARRAY_LENGTH(series->shared.saving); i++)
        if (series->shared.saving[i].save == save)
            series->shared.saving[i].is_settled =
                save_state_is_final(state) && state != SIDESTEP_SAVE_UNKNOWN;
}

void series_record_outcome(struct sidestep_series *series, struct sidestep_save *save)
{
    lock_acquire(&series->shared.lock);
    series_record_outcome_locked(series, save);
    lock_release(&series->shared.lock);
}

void series_record_outcomes(struct sidestep_series *series)
{
    struct sweep sweep = {.store = series->store, .parent = series->lease.root};

    lock_acquire(&series->shared.lock);
    for (unsigned i = 0; i < series->save_count; i++)
        series_record_outcome_locked(series, series->saves[i]);
    bool settles = series->shared.has_committed && !series->shared.has_settled;
    series->shared.has_settled |= settles;
    lock_release(&series->shared.lock);
    if (settles && sweep.parent != NULL)
        (void)root_sweep_below(&sweep, NULL);
}

bool series_should_check_space(const struct sidestep_series *series)
{
    return (series->flags & (SIDESTEP_SERIES_CHECK_SPACE | SIDESTEP_SERIES_MAKE_ROOM)) != 0;
}

void series_record_bytes(struct sidestep_series *series, uint64_t bytes)
{
    lock_acquire(&series->shared.lock);
    series->shared.newest_bytes = bytes;
    lock_release(&series->shared.lock);
}
