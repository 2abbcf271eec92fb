/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.c -- steps 2 and 3 of the protocol (commit.h): creates and seals the shards of a rank, or of
 * ranks in whose place this process votes. */
#include "commit/commit.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/form.h"

static void shard_names(const struct commit *commit, uint32_t shard, char part[FILE_NAME_BYTES],
                        char final[FILE_NAME_BYTES])
{
    assert(commit->save_id[0] != '\0');
    commit_form_of(commit)->shard_names(commit, commit->rank, shard, part, final);
}

static void count_shard(struct commit *commit, uint32_t shard)
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
    count_shard(commit, shard);
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
    count_shard(commit, shard);
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
    char written[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    assert(commit->dir != NULL && file != NULL && shard < commit->shards);
    shard_names(commit, shard, written, final);
    return commit_form_of(commit)->seal(commit, written, final, file, err);
}

/* ---- a process that puts the files of other ranks */

void commit_names_for(const struct commit *commit, uint32_t rank, uint32_t shard,
                      char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    assert(commit->save_id[0] != '\0');
    commit_form_of(commit)->shard_names(commit, rank, shard, written, final);
}

/* Shards of the swap form have no save id in their names, so this one of a shard is free. */
void commit_extra_names_for(const struct commit *commit, uint32_t rank, uint32_t number,
                            char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    bool has_keys = commit->store->ops->layout == STORE_OF_KEYS;

    assert(commit->save_id[0] != '\0' && !commit->files.in_place);
    file_name_format(has_keys ? FILE_NAME_EXTRA : FILE_NAME_PART, commit->save_id, rank, number,
                     written);
    file_name_format(FILE_NAME_EXTRA, commit->save_id, rank, number, final);
}

enum sidestep_status commit_seal_for(struct commit *commit, const char *written, const char *final,
                                     struct store_file *file, struct sidestep_error *err)
{
    assert(commit->dir != NULL && file != NULL);
    return commit_form_of(commit)->seal(commit, written, final, file, err);
}

enum sidestep_status commit_vote_for(struct commit *commit, uint32_t rank, uint32_t shards,
                                     struct sidestep_error *err)
{
    assert(commit->dir != NULL && rank < commit->world_size);
    return commit_form_of(commit)->vote_for(commit, rank, shards, err);
}
