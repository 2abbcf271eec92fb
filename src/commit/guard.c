/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c -- checks whether a save may go on: the program can cancel it, and its series can end. */
#include "commit/commit.h"

enum sidestep_status commit_check_cancelled(const struct commit *commit, struct sidestep_error *err)
{
    if (commit->cancelled == NULL || !atomic_load(commit->cancelled))
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED, "the program gave it up");
}

enum sidestep_status commit_check_guard(struct commit *commit, struct sidestep_error *err)
{
    const struct commit_guard *guard = commit->guard;

    TRY(commit_check_cancelled(commit, err));
    return guard != NULL ? guard->check(guard->context, commit, err) : SIDESTEP_OK;
}
