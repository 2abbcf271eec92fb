/* SPDX-License-Identifier: BSD-3-Clause */
/* files_seal.c -- steps 3 and 4 of the protocol on file systems: seals a shard, votes, and counts
 * votes; see files_steps.h. */
#include "commit/files_steps.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"

/*
 * Give the sealed shard its final name. If the answer of a server is lost, the request is repeated,
 * and then finds no such name, or that the final one exists. So if the final one leads to the file,
 * the rename took place. A rank alone uses the names of the shards that it creates. But ${others}
 * may send the same file: if the final name leads to another one, that of the other process was
 * renamed, and may not be whole.
 */
static enum sidestep_status rename_sealed(struct commit *commit, const char *part,
                                          const char *final, const struct store_stat *sealed,
                                          bool others, struct sidestep_error *err)
{
    struct store_stat named;
    enum sidestep_status status = store_rename_new(commit->dir, part, commit->dir, final, err);

    if (status == SIDESTEP_OK && !others)
        return SIDESTEP_OK;
    enum sidestep_status looked = store_stat(commit->dir, final, &named, NULL);
    bool is_ours =
        looked == SIDESTEP_OK && named.inode == sealed->inode && named.device == sealed->device;
    if (is_ours || status != SIDESTEP_OK)
        return is_ours ? SIDESTEP_OK : status;
    return looked != SIDESTEP_OK
               ? FAIL(err, looked, "look at '%s'", final)
               : FAIL(err, SIDESTEP_EABORTED, "another process writes '%s', too", part);
}

enum sidestep_status files_seal(struct commit *commit, const char *written, const char *final,
                                struct store_file *file, struct sidestep_error *err)
{
    OWNED_FILE *owned = file;
    struct store_stat sealed;

    TRY(store_file_sync(owned, err));
    TRY(store_file_stat(owned, &sealed, err));
    TRY(store_file_close(TAKE(owned), err));
    return rename_sealed(commit, written, final, &sealed, commit->shards == 0, err);
}

static bool is_made(enum sidestep_status status)
{
    return status == SIDESTEP_OK || status == SIDESTEP_EEXISTS;
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
    if (commit_is_coordinator(commit)) /* it counts the votes, and has not counted its own */
        return error_copy(err, &why);
    /* I5: whatever the error, the name may exist (I7), and rank 0 may have counted it, and even
     * removed it. So it cannot be taken back: rank 0 decides. If the vote was not created, and
     * cannot be created now, rank 0 is told so, or its deadline ends the save. */
    if (!is_made(commit_marker_link(commit, commit->dir, name)) &&
        !is_made(store_file_create(commit->dir, name, 0, &file, NULL)))
        commit_form_of(commit)->vote_no(commit, &why);
    return SIDESTEP_OK;
}

/* The vote that an earlier process left is as good: the files are the same. */
enum sidestep_status files_vote_for(struct commit *commit, uint32_t rank, uint32_t shards UNUSED,
                                    struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    char name[FILE_NAME_BYTES];
    OWNED_FILE *file = NULL;

    TRY(store_dir_sync(commit->dir, err));
    file_name_format(FILE_NAME_VOTE, commit->save_id, rank, 0, name);
    enum sidestep_status status = store_file_create(commit->dir, name, 0, &file, &why);
    return is_made(status) ? SIDESTEP_OK : error_copy(err, &why);
}

/* The .part file that gets the text first is no shard of a save, and sweeps remove it. No rank has
 * so many shards: this process may have none of the rank in whose name it writes. */
#define REASON_SHARD UINT32_MAX

enum sidestep_status files_write_reason(struct commit *commit, struct store_dir *dir,
                                        const char *name, const struct sidestep_error *why)
{
    char part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    struct store_file *file = NULL;

    commit_form_of(commit)->shard_names(commit, commit->rank, REASON_SHARD, part, final);
    enum sidestep_status status = store_file_create(commit->dir, part, 0, &file, NULL);
    if (status == SIDESTEP_OK) { /* storage may be full: a name without its text is enough */
        (void)store_file_write_at(file, why->message, strlen(why->message), 0, NULL);
        (void)store_file_close(file, NULL);
        status = store_rename(commit->dir, part, dir, name, STORE_REPLACE, NULL);
    }
    return status == SIDESTEP_OK ? status : commit_marker_link(commit, dir, name);
}

void files_vote_no(struct commit *commit, const struct sidestep_error *why)
{
    char name[FILE_NAME_BYTES], part[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    store_dir_close(TAKE(commit->files.spare));
    file_name_format(FILE_NAME_FAILED, commit->save_id, commit->rank, 0, name);
    commit_form_of(commit)->shard_names(commit, commit->rank, 0, part, final);
    if (files_write_reason(commit, commit->dir, name, why) != SIDESTEP_OK && commit->shards != 0)
        /* Storage has no links. If the rename fails, too, the deadline of rank 0 ends the save. */
        (void)store_rename(commit->dir, part, commit->dir, name, STORE_REPLACE, NULL);
}

/* ---- 4 collect */

static bool tally_name(void *context, const char *name)
{
    struct tally *tally = context;
    struct file_name parsed = file_name_parse(name);
    struct store_stat stat;

    if (strcmp(parsed.save_id, tally->commit->save_id) != 0 && parsed.save_id[0] != '\0')
        return true;
    if (file_name_has_rank(parsed.kind) && parsed.rank < tally->commit->world_size)
        tally->seen[parsed.rank] = 1;
    if (parsed.kind == FILE_NAME_VOTE && parsed.rank < tally->commit->world_size &&
        !tally->voted[parsed.rank]) {
        tally->voted[parsed.rank] = 1;
        tally->yes_count++;
        assert(tally->yes_count <= commit_voter_count(tally->commit));
    } else if (parsed.kind == FILE_NAME_FAILED &&
               (tally->failed_rank < 0 || parsed.rank < tally->failed_rank)) {
        tally->failed_rank = parsed.rank;
    } else if (parsed.kind == FILE_NAME_PART && tally->with_sizes &&
               store_stat(tally->commit->dir, name, &stat, NULL) == SIDESTEP_OK) {
        tally->sizes += stat.size + (uint64_t)stat.modified;
    }
    tally->progress += 1;
    return true;
}

enum sidestep_status files_count_votes(struct tally *tally, struct sidestep_error *err)
{
    return store_dir_list(tally->commit->dir, tally_name, tally, err);
}

void files_read_failure(struct commit *commit, uint32_t rank, struct sidestep_error *why)
{
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_FAILED, commit->save_id, rank, 0, name);
    (void)commit_read_reason(commit->dir, name, why, NULL);
}
