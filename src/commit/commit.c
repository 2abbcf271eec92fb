/* SPDX-License-Identifier: BSD-3-Clause */
/* commit.c -- the calls of the protocol (commit.h), which lead to the form of the save (form.h). */
#include "commit/commit.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "commit/form.h"
#include "commit/refresh_names.h"
#include "commit/storage_check.h"

void commit_set_save_id(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES])
{
    memcpy(commit->save_id_bytes, save_id, SAVE_ID_BYTES);
    hash_to_hex(save_id, SAVE_ID_BYTES, commit->save_id);
}

enum sidestep_status commit_check_name(const struct commit *commit, struct sidestep_error *err)
{
    if (file_name_parse(commit->name).kind != FILE_NAME_NONE ||
        strcmp(commit->name, FILE_NAME_SERIES_DIR) == 0)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is a name that sidestep keeps for itself",
                    commit->name);
    return SIDESTEP_OK;
}

const struct commit_form *commit_form_of(const struct commit *commit)
{
    static const struct commit_form *const forms[STORE_LAYOUTS][2] = {
        [STORE_OF_DIRECTORIES] = {&commit_form_swap, &commit_form_in_place},
        [STORE_OF_KEYS] = {&commit_form_objects, &commit_form_objects}};

    return forms[commit->store->ops->layout][commit->files.in_place];
}

enum sidestep_status commit_open(struct commit *commit, const char *path,
                                 struct sidestep_error *err)
{
    assert(commit->store != NULL && commit->parent == NULL && commit->dir == NULL);
    return commit_form_of(commit)->open(commit, path, err);
}

enum sidestep_status commit_begin(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES],
                                  struct sidestep_error *err)
{
    assert(commit_is_coordinator(commit) && commit->parent != NULL);
    commit_set_save_id(commit, save_id);
    commit->began_at = (int64_t)time(NULL);
    TRY(commit_form_of(commit)->look(commit, err));
    TRY(storage_check_commit(commit, err));
    return commit_form_of(commit)->begin(commit, err);
}

enum sidestep_status commit_begin_export(struct commit *commit,
                                         const uint8_t save_id[SAVE_ID_BYTES],
                                         struct sidestep_error *err)
{
    commit->files.is_export = true;
    return commit_begin(commit, save_id, err);
}

enum sidestep_status commit_join(struct commit *commit, struct sidestep_error *err)
{
    uint64_t start = clock_now(commit->clock);
    struct backoff backoff = {.max_ms = COMMIT_POLL_MAX_MS};

    assert(commit->parent != NULL && commit->save_id[0] != '\0');
    if (commit->dir != NULL)
        return SIDESTEP_OK; /* rank 0 made it; another rank may have seen it already */
    for (;;) {
        enum sidestep_status status = commit_form_of(commit)->try_join(commit, err);
        if (status == SIDESTEP_OK)
            return store_dir_stat(commit->dir, &commit->dir_identity, err);
        enum sidestep_status aborted = commit_check_aborted(commit, err); /* made, then removed */
        store_dir_close(TAKE(commit->dir));
        if (aborted != SIDESTEP_OK)
            return aborted;
        if (status != SIDESTEP_ENOTFOUND && commit->files.spare == NULL)
            return status;
        if (status != SIDESTEP_ENOTFOUND) { /* this rank needs ${dir} to report a failure */
            store_dir_close(TAKE(commit->files.spare));
            continue;
        }
        if (clock_now(commit->clock) - start > commit->request.timeout_ns)
            return FAIL(err, SIDESTEP_ETIMEDOUT,
                        "rank %u does not see the directory that rank 0 made for '%s': is its "
                        "parent directory shared between the hosts?",
                        commit->rank, commit->path);
        backoff_sleep(&backoff, commit->clock);
    }
}

enum sidestep_status commit_check_visible(struct commit *commit, uint64_t limit_ns, bool *visible,
                                          struct sidestep_error *err)
{
    struct refresh_wait wait = {
        .clock = commit->clock, .limit_ns = limit_ns, .backoff = {.max_ms = COMMIT_POLL_MAX_MS}};
    struct sidestep_error why = {.rank = -1};

    assert(commit->parent != NULL && commit->save_id[0] != '\0');
    *visible = commit->dir != NULL;
    while (!*visible) {
        enum sidestep_status status = commit_form_of(commit)->try_join(commit, &why);
        *visible = status == SIDESTEP_OK;
        if (*visible)
            return store_dir_stat(commit->dir, &commit->dir_identity, err);
        bool again = status == SIDESTEP_ENOTFOUND &&
                     refresh_wait_again(&wait, commit->dir != NULL ? commit->dir : commit->parent);
        store_dir_close(TAKE(commit->dir));
        if (!again)
            return status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK : error_copy(err, &why);
    }
    return SIDESTEP_OK;
}

void commit_close(struct commit *commit)
{
    if (commit->store != NULL) /* otherwise only handles are left */
        commit_form_of(commit)->close(commit);
    store_dir_close(TAKE(commit->dir));
    store_dir_close(TAKE(commit->files.spare));
    store_dir_close(TAKE(commit->parent));
}

bool commit_is_pending(const struct commit *commit)
{
    return commit_form_of(commit)->has_marker(commit);
}

enum sidestep_status commit_check_aborted(struct commit *commit, struct sidestep_error *err)
{
    return commit_form_of(commit)->check_aborted(commit, err);
}

void commit_retract(struct commit *commit)
{
    commit_form_of(commit)->retract(commit);
}

void commit_vote_no(struct commit *commit, const struct sidestep_error *why)
{
    if (commit->dir != NULL)
        commit_form_of(commit)->vote_no(commit, why);
}

enum sidestep_status commit_vote_yes(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->dir != NULL);
    return commit_form_of(commit)->vote_yes(commit, err);
}

enum sidestep_status commit_publish(struct commit *commit, struct commit_contents *contents,
                                    enum commit_outcome *outcome, struct sidestep_error *err)
{
    assert(commit_is_coordinator(commit) && commit->dir != NULL);
    *outcome = COMMIT_ABORTED;
    assert(contents->manifest.world_size == commit->world_size); /* I5: all votes are counted */
    enum sidestep_status status = commit_form_of(commit)->publish(commit, contents, outcome, err);
    assert((status == SIDESTEP_OK) == (*outcome == COMMIT_COMMITTED)); /* I4 */
    TRACE(commit, "save %s: outcome %d", commit->save_id, (int)*outcome);
    if (status != SIDESTEP_OK) {
        if (err != NULL)
            err->status = (int32_t)status;
        error_wrap(err, "commit");
    }
    return status;
}

void commit_abort(struct commit *commit, const struct sidestep_error *why)
{
    if (commit->dir != NULL)
        commit_form_of(commit)->abort(commit, why);
}

enum commit_outcome commit_poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    return commit_form_of(commit)->poll_outcome(commit, err);
}

#define POLL_PAUSE_MS 200u /* with few ranks, in the first seconds */
#define POLL_PAUSE_MAX_MS 2000u
#define FIRST_POLLS_PER_MS 64u /* of all ranks together, at most, in the first pause */
#define POLLS_PER_MS 4u        /* of all ranks together, at most, later */

uint64_t commit_poll_pause_ms(const struct commit *commit, uint64_t waited_ms)
{
    uint64_t pause = 1 + commit->world_size / FIRST_POLLS_PER_MS + waited_ms / 2;
    uint64_t most = max_u64(POLL_PAUSE_MS, commit->world_size / POLLS_PER_MS);

    most = max_u64(most, waited_ms / BACKOFF_SHARE);
    return min_u64(pause, min_u64(most, POLL_PAUSE_MAX_MS));
}

void commit_remove_outcome(struct commit *commit)
{
    if (commit->store != NULL) /* otherwise it was never opened */
        commit_form_of(commit)->remove_outcome(commit);
}
