/* SPDX-License-Identifier: BSD-3-Clause */
/* series_load.c -- resumes a run from one of its checkpoints: rank 0 chooses, all ranks load, and
 * rank 0 records it. */
#include <stdio.h>
#include <string.h>

#include "selection/selection.h"
#include "load/load.h"
#include "series/series.h"
#include "verify/verify.h"

/* Rank 0's choice. */
struct choice {
    uint64_t step;
    char rejected[SERIES_REJECTED_BYTES];
};

enum sidestep_status series_read_again_all(struct sidestep_series *series, struct store *store,
                                           const char *path, uint64_t *damaged,
                                           struct sidestep_error *err)
{
    *damaged =
        path != NULL &&
        reader_status_is_damage(verify_path(store, path, SIDESTEP_VERIFY_BEFORE, STORE_DROP_CACHE,
                                            series->engine->stagers, NULL, NULL));
    return comm_reduce_max_all(&series->engine->comm, damaged, 1, err);
}

/* Does the status say what the root holds, and not that it cannot be read? */
static bool is_answer(enum sidestep_status status)
{
    return status == SIDESTEP_OK || status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT ||
           status == SIDESTEP_EMISMATCH;
}

/* Rank 0: choose among the checkpoints of the root and of the mirror. If that of the mirror is
 * newer, it is copied to the root. */
static enum sidestep_status choose(struct sidestep_series *series, enum sidestep_verify_mode mode,
                                   struct choice *choice, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char again[SERIES_REJECTED_BYTES] = "";
    int64_t fetched = -1;
    enum sidestep_status status =
        series_choose(series, mode, &choice->step, choice->rejected, &why);

    if (is_answer(status))
        TRY(series_fetch(series, status == SIDESTEP_OK ? (int64_t)choice->step : -1, INT64_MAX,
                         choice->rejected, &fetched, err));
    if (fetched >= 0)
        return series_choose(series, mode, &choice->step, again, err);
    return status == SIDESTEP_OK ? status
                                 : series_report_none(status, choice->rejected[0] != '\0',
                                                      choice->rejected, &why, err);
}

static enum sidestep_status
load_once_all(struct sidestep_series *series, struct sidestep_state_dict *state,
              const struct sidestep_load_options *options, enum sidestep_verify_mode choose_by,
              struct choice *choice, bool *again, struct sidestep_load_report *report,
              struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    struct sidestep_error why = {0};
    char path[COMMIT_PATH_BYTES];
    enum sidestep_status status = SIDESTEP_OK;
    uint64_t damaged = 0;

    *again = false;
    if (comm->rank == 0)
        status = choose(series, choose_by, choice, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, choice, sizeof(*choice), 0, err));
    choice->rejected[sizeof(choice->rejected) - 1] = '\0';
    series_format_path(series, choice->step, path);
    status = load_path_all(series->engine, path, state, options, 0, report, &why);
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    TRY(series_read_again_all(series, series->store, comm->rank == 0 ? path : NULL, &damaged, err));
    *again = damaged != 0;
    if (!*again && (status == SIDESTEP_EIO || status == SIDESTEP_EPERM))
        return choose_fail_unreadable(&why, err);
    error_copy(err, &why);
    return status;
}

/*
 * Called before the choice: wait for saves under way, which the choice must see, and keep the
 * pruner from deleting until the choice is recorded.
 */
static void begin_resume(struct sidestep_series *series) ACQUIRE(&series->prune_lock)
{
    if (series->save_count != 0)
        turn_join(series->saves[0]); /* earlier ones end before it */
    lock_acquire(&series->prune_lock);
}

static void end_resume(struct sidestep_series *series) RELEASE(&series->prune_lock)
{
    lock_release(&series->prune_lock);
}

/* All ranks have loaded ${step}: record that the run goes on from it. ${goes_back}: somebody named
 * it, so there may be newer ones at the mirror, too. */
static enum sidestep_status record_resume_all(struct sidestep_series *series, uint64_t step,
                                              bool goes_back, const char *why,
                                              struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    char path[COMMIT_PATH_BYTES];

    if (series->engine->comm.rank == 0 && goes_back)
        status = series_mirror_go_back(series, step, NULL, err);
    if (series->engine->comm.rank == 0 && status == SIDESTEP_OK)
        status = series_record_resume(series, step, err);
    TRY(comm_agree_all(&series->engine->comm, status, err));
    series->has_resumed = true;
    series_format_path(series, step, path);
    series_emit_resumed(series, path, step, why);
    return SIDESTEP_OK;
}

static enum sidestep_status
load_newest_all(struct sidestep_series *series, struct sidestep_state_dict *state,
                const struct sidestep_load_options *options, struct choice *choice,
                struct sidestep_load_report *report, struct sidestep_error *err)
{
    enum sidestep_verify_mode choose_by = options->verify == SIDESTEP_VERIFY_BEFORE
                                              ? SIDESTEP_VERIFY_BEFORE
                                              : SIDESTEP_VERIFY_STRUCTURE;
    enum sidestep_status status;
    bool again = false;

    do {
        status = load_once_all(series, state, options, choose_by, choice, &again, report, err);
        choose_by = SIDESTEP_VERIFY_BEFORE; /* it was damaged: verify all bytes first from now on */
    } while (status != SIDESTEP_OK && again);
    if (status == SIDESTEP_OK)
        return record_resume_all(series, choice->step, false,
                                 choice->rejected[0] != '\0' ? "rejected" : "newest", err);
    error_wrap(err, "resume from series '%s'", series->root);
    return status;
}

/* Each node has a directory for itself.  ${asked}: -1: the newest step that is whole. */
static enum sidestep_status
load_parts_all(struct sidestep_series *series, int64_t asked, struct sidestep_state_dict *state,
               const struct sidestep_load_options *options, struct choice *choice,
               struct sidestep_load_report *report, struct sidestep_error *err)
{
    char path[COMMIT_PATH_BYTES];
    enum sidestep_status status = series_load_parts_all(
        series, asked, true, state, options, &choice->step, choice->rejected, report, err);

    if (status != SIDESTEP_OK) {
        error_wrap(err, "resume from the parts of series '%s'", series->root);
        return status;
    }
    series->has_resumed = true;
    series_wake_mirror(series);
    series_name_loaded(series, choice->step, path);
    series_emit_resumed(series, path, choice->step,
                        asked >= 0                    ? "asked"
                        : choice->rejected[0] != '\0' ? "rejected"
                                                      : "newest");
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_load(struct sidestep_series *series,
                                          struct sidestep_state_dict *state,
                                          const struct sidestep_load_options *theirs,
                                          uint64_t *step, struct sidestep_load_report *report,
                                          char rejected[2048], struct sidestep_error *err)
{
    struct sidestep_load_options options;
    struct choice choice = {0};

    TRY(series_check(series, err));
    enum sidestep_status status = load_options_copy(&options, theirs, err);
    if (status == SIDESTEP_OK && (state == NULL || step == NULL))
        status = FAIL(err, SIDESTEP_EINVAL, "%s is NULL", state == NULL ? "state" : "step");
    TRY(comm_agree_all(&series->engine->comm, status, err));
    begin_resume(series);
    status = series_has_parts(series)
                 ? load_parts_all(series, -1, state, &options, &choice, report, err)
                 : load_newest_all(series, state, &options, &choice, report, err);
    end_resume(series);
    if (rejected != NULL)
        memcpy(rejected, choice.rejected, sizeof(choice.rejected));
    if (status == SIDESTEP_OK)
        *step = choice.step;
    return status;
}

/* Rank 0: find ${step} at the root or at the mirror, from where it is copied to the root. */
static enum sidestep_status find_step(struct sidestep_series *series, uint64_t step,
                                      struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char rejected[SERIES_REJECTED_BYTES] = "";
    int64_t fetched = -1;
    enum sidestep_status status = series_find_step(series, step, &why);

    if (status == SIDESTEP_ENOTFOUND && step <= INT64_MAX)
        TRY(series_fetch(series, (int64_t)step - 1, (int64_t)step, rejected, &fetched, err));
    if (fetched >= 0)
        status = series_find_step(series, step, &why);
    return status == SIDESTEP_OK
               ? status
               : series_report_none(status, rejected[0] != '\0', rejected, &why, err);
}

static enum sidestep_status load_step_all(struct sidestep_series *series, uint64_t step,
                                          struct sidestep_state_dict *state,
                                          const struct sidestep_load_options *options,
                                          struct sidestep_load_report *report,
                                          struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;
    char path[COMMIT_PATH_BYTES];

    if (comm->rank == 0)
        status = find_step(series, step, err);
    status = comm_agree_all(comm, status, err);
    series_format_path(series, step, path);
    if (status == SIDESTEP_OK)
        status = load_path_all(series->engine, path, state, options, 0, report, err);
    if (status == SIDESTEP_OK)
        return record_resume_all(series, step, true, "asked", err);
    error_wrap(err, "go back to step %llu of series '%s'", (unsigned long long)step, series->root);
    return status;
}

enum sidestep_status sidestep_series_load_step(struct sidestep_series *series, uint64_t step,
                                               struct sidestep_state_dict *state,
                                               const struct sidestep_load_options *theirs,
                                               struct sidestep_load_report *report,
                                               struct sidestep_error *err)
{
    struct sidestep_load_options options;
    struct choice choice = {0};

    TRY(series_check(series, err));
    enum sidestep_status status = load_options_copy(&options, theirs, err);
    if (status == SIDESTEP_OK && state == NULL)
        status = FAIL(err, SIDESTEP_EINVAL, "state is NULL");
    TRY(comm_agree_all(&series->engine->comm, status, err));
    begin_resume(series);
    status = series_has_parts(series) ? load_parts_all(series, (int64_t)min_u64(step, INT64_MAX),
                                                       state, &options, &choice, report, err)
                                      : load_step_all(series, step, state, &options, report, err);
    end_resume(series);
    return status;
}

/* ---- to look at one */

/* Put the parts together, and read no tensor. */
static enum sidestep_status find_parts_all(struct sidestep_series *series, int64_t wanted,
                                           uint64_t *step, struct sidestep_error *err)
{
    struct sidestep_load_options options = SIDESTEP_LOAD_OPTIONS_INIT;
    char rejected[SERIES_REJECTED_BYTES];
    struct sidestep_state_dict *none = NULL;
    enum sidestep_status status = sidestep_state_dict_new(&none, err);

    options.flags = SIDESTEP_LOAD_PARTIAL;
    options.verify = SIDESTEP_VERIFY_STRUCTURE;
    status = comm_agree_all(&series->engine->comm, status, err);
    if (status == SIDESTEP_OK) {
        begin_resume(series);
        status =
            series_load_parts_all(series, wanted, false, none, &options, step, rejected, NULL, err);
        end_resume(series);
    }
    sidestep_state_dict_free(&none);
    return status;
}

static enum sidestep_status find_newest(struct sidestep_series *series, uint64_t *step,
                                        struct sidestep_error *err)
{
    struct sidestep_latest_report report = {0};
    enum sidestep_status status =
        sidestep_find_latest(series->root, SIDESTEP_VERIFY_STRUCTURE, NULL, &report, err);

    if (status == SIDESTEP_OK &&
        !name_template_parse_name(&series->naming, strrchr(report.path, '/') + 1, step))
        status = FAIL(err, SIDESTEP_ENOTFOUND, "'%s' has not the name of a step", report.path);
    sidestep_latest_report_release(&report);
    return status;
}

enum sidestep_status sidestep_series_find(struct sidestep_series *series, int64_t wanted,
                                          uint64_t *step, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    TRY(series_check(series, err));
    if (step == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "step is NULL");
    if (series_has_parts(series))
        return WRAP(find_parts_all(series, wanted < 0 ? -1 : wanted, step, err), err,
                    "put together the parts of series '%s'", series->root);
    *step = wanted >= 0 ? (uint64_t)wanted : 0;
    if (series->engine->comm.rank == 0)
        status =
            wanted >= 0 ? series_find_step(series, *step, err) : find_newest(series, step, err);
    TRY(comm_agree_all(&series->engine->comm, status, err));
    return comm_broadcast_all(&series->engine->comm, step, sizeof(*step), 0, err);
}
