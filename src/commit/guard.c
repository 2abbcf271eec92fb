/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c -- checks whether a save may go on: the program can cancel it, and its series can end. */
#include "commit/commit.h"

#include <assert.h>

enum sidestep_status commit_check_cancelled(const struct commit *commit, struct sidestep_error *err)
{
    if (commit->request.cancelled == NULL || !atomic_load(commit->request.cancelled))
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED, "the program gave it up");
}

enum sidestep_status commit_check_wanted(const struct commit *commit, struct sidestep_error *err)
{
    const struct commit_guard *guard = commit->request.guard;
    struct sidestep_error why = {.rank = -1};

    TRY(commit_check_cancelled(commit, err));
    if (guard == NULL || guard->holds(guard->context, commit, &why) != SIDESTEP_EABORTED)
        return SIDESTEP_OK; /* asked again later, and before the commit */
    return error_copy(err, &why);
}

enum sidestep_status commit_check_guard(struct commit *commit, struct sidestep_error *err)
{
    const struct commit_guard *guard = commit->request.guard;

    assert(commit_is_coordinator(commit));
    TRY(commit_check_cancelled(commit, err));
    return guard != NULL ? guard->check(guard->context, commit, err) : SIDESTEP_OK;
}

enum sidestep_status commit_check_still_held(struct commit *commit, enum commit_outcome *outcome,
                                             struct sidestep_error *err)
{
    const struct commit_guard *guard = commit->request.guard;

    if (guard == NULL || guard->holds(guard->context, commit, err) == SIDESTEP_OK ||
        fault_hit("object.still_held")) /* a negative control: tests must notice it */
        return SIDESTEP_OK;
    *outcome = COMMIT_UNKNOWN;
    error_wrap(
        err,
        "'%s' was committed and is whole, but another process owns its series now, or storage "
        "does not tell who owns it, so a run that resumes may have passed it over",
        commit->path);
    if (err != NULL)
        err->status = SIDESTEP_EUNKNOWN;
    return SIDESTEP_EUNKNOWN;
}
