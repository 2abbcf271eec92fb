/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.c -- steps 2 and 3 of the protocol (commit.h): creates and seals the shards of a rank, and
 * votes. */
#include "commit/commit.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"
#include "commit/files_form.h"

static void shard_names(const struct commit *commit, uint32_t shard, char part[FILE_NAME_BYTES],
                        char final[FILE_NAME_BYTES])
{
    assert(commit->save_id[0] != '\0');
    commit->form->shard_names(commit, commit->rank, shard, part, final);
}

static void note_shard(struct commit *commit, uint32_t shard)
{
    if (commit->shards <= shard)
        commit->shards = shard + 1;
}

enum sidestep_status commit_shard_create(struct commit *commit, uint32_t shard, uint32_t flags,
                                         struct store_file **file, struct sidestep_error *err)
{
    char part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    assert(commit->dir != NULL);
    shard_names(commit, shard, part, final);
    note_shard(commit, shard);
    return store_file_create(commit->dir, part, flags, file, err);
}

enum sidestep_status commit_shard_link(struct commit *commit, uint32_t shard, const char *dir,
                                       const char *name, struct store_file **file,
                                       struct sidestep_error *err)
{
    char part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    OWNED_DIR *from = NULL;

    assert(commit->dir != NULL);
    shard_names(commit, shard, part, final);
    TRY(store_dir_open(commit->store, NULL, dir, &from, err));
    note_shard(commit, shard);
    TRY(store_link(from, name, commit->dir, part, err));
    return store_file_open(commit->dir, part, 0, file, err);
}

enum sidestep_status commit_shard_remove(struct commit *commit, uint32_t shard,
                                         struct sidestep_error *err)
{
    char part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    assert(commit->dir != NULL);
    shard_names(commit, shard, part, final);
    enum sidestep_status status = store_unlink(commit->dir, part, err);
    return status == SIDESTEP_ENOTFOUND ? SIDESTEP_OK : status;
}

uint64_t commit_shards_stored(const struct commit *commit)
{
    uint64_t stored = 0;

    assert(commit->shards == 0 || commit->dir != NULL);
    for (uint32_t shard = 0; shard < commit->shards; shard++) {
        char names[2][FILE_NAME_BYTES];
        shard_names(commit, shard, names[0], names[1]);
        for (int i = 0; i < 2; i++) {
            struct store_stat stat;
            if (store_stat(commit->dir, names[i], &stat, NULL) == SIDESTEP_OK)
                stored += stat.stored;
        }
    }
    return stored;
}

void commit_shard_name(const struct commit *commit, uint32_t shard, char name[FILE_NAME_BYTES])
{
    char part[FILE_NAME_BYTES];

    shard_names(commit, shard, part, name);
}

enum sidestep_status commit_shard_seal(struct commit *commit, uint32_t shard,
                                       struct store_file *file, struct sidestep_error *err)
{
    assert(commit->dir != NULL && file != NULL);
    return commit->form->seal(commit, shard, file, err);
}

enum sidestep_status files_seal(struct commit *commit, uint32_t shard, struct store_file *file,
                                struct sidestep_error *err)
{
    char part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    OWNED_FILE *owned = file;

    assert(shard < commit->shards);
    shard_names(commit, shard, part, final);
    TRY(store_file_sync(owned, err));
    TRY(store_file_close(TAKE(owned), err));
    enum sidestep_status status =
        store_rename(commit->dir, part, commit->dir, final, STORE_NOREPLACE, err);
    if (status == SIDESTEP_EUNSUPPORTED)
        status = store_rename(commit->dir, part, commit->dir, final, STORE_REPLACE, err);
    return status;
}

/* Errors after which the name may exist all the same (I7), as when the reply of a server is
 * lost. */
static bool may_be_done(enum sidestep_status status)
{
    return status == SIDESTEP_EIO || status == SIDESTEP_ENOMEM || status == SIDESTEP_EEXISTS;
}

enum sidestep_status files_vote_yes(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct sidestep_error why;
    OWNED_FILE *file = NULL;

    TRY(store_dir_sync(commit->dir, err));
    file_name_format(FILE_NAME_VOTE, commit->save_id, commit->rank, 0, name);
    enum sidestep_status status = store_file_create(commit->dir, name, 0, &file, &why);
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (commit->rank == 0 || !may_be_done(status))
        return error_copy(err, &why);
    /* I5: rank 0 may have counted the vote already, and even removed it, so it cannot be taken
     * back. If it was not created, and cannot be created now, the deadline of rank 0 ends the
     * save. */
    if (commit_marker_link(commit, commit->dir, name) != SIDESTEP_OK)
        (void)store_file_create(commit->dir, name, 0, &file, NULL);
    return SIDESTEP_OK;
}

/* In place: has rank 0 given up without our vote, and begun to sweep? It writes the outcome file
 * before it sweeps, and removes the marker after that. */
static bool has_given_up(const struct commit *commit)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    assert(commit->in_place && commit->dir != NULL);
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    return store_stat(commit->dir, name, &stat, NULL) == SIDESTEP_OK ||
           !commit_has_marker(commit, commit->dir);
}

void files_vote_no(struct commit *commit, const struct sidestep_error *why)
{
    char name[FILE_NAME_BYTES], part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    struct store_file *file = NULL;

    if (commit->in_place && has_given_up(commit))
        return;
    store_dir_close(TAKE(commit->spare));
    file_name_format(FILE_NAME_FAILED, commit->save_id, commit->rank, 0, name);
    shard_names(commit, 0, part, final);
    if (store_file_create(commit->dir, name, 0, &file, NULL) == SIDESTEP_OK) {
        (void)store_file_write_at(file, why->message, strlen(why->message), 0, NULL);
        (void)store_file_close(file, NULL);
    } else if (commit_marker_link(commit, commit->dir, name) != SIDESTEP_OK &&
               commit->shards != 0) {
        /* Storage has no links. If the rename fails, too, the deadline of rank 0 ends the save. */
        (void)store_rename(commit->dir, part, commit->dir, name, STORE_REPLACE, NULL);
    }
}

void files_retract(struct commit *commit)
{
    char name[FILE_NAME_BYTES], part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    assert(commit->rank != 0); /* rank 0 sweeps */
    if (!commit->in_place || commit->dir == NULL)
        return;
    for (uint32_t shard = 0; shard < commit->shards; shard++) {
        shard_names(commit, shard, part, final);
        (void)store_unlink(commit->dir, part, NULL);
        (void)store_unlink(commit->dir, final, NULL);
    }
    if (!has_given_up(commit)) /* rank 0 has yet to read our vote, and sweeps after that */
        return;
    file_name_format(FILE_NAME_VOTE, commit->save_id, commit->rank, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
    file_name_format(FILE_NAME_FAILED, commit->save_id, commit->rank, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
}
