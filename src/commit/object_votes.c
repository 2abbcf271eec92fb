/* SPDX-License-Identifier: BSD-3-Clause */
/* object_votes.c -- steps 3 and 4 on object stores: votes, and counts them; see object_form.h. */
#include "commit/object_form.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum sidestep_status object_vote_for(struct commit *commit, uint32_t rank, uint32_t shards,
                                     struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    char key[OBJECT_KEY_BYTES], text[64];

    assert(rank < commit->world_size);
    snprintf(text, sizeof(text), "shards %u\n", shards);
    object_rank_key(commit, "yes", rank, key);
    return client->ops->put(client, key, text, strlen(text), NULL, NULL, err);
}

enum sidestep_status object_vote_yes(struct commit *commit, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = object_vote_for(commit, commit->rank, commit->shards, &why);

    if (commit->rank != 0)
        object_keeper_stop(&commit->objects->keeper);
    /* I5: rank 0 may have counted the vote, so it cannot be taken back. If it is not there, the
     * deadline of rank 0 ends the save. */
    if (status == SIDESTEP_OK || (commit->rank != 0 && object_is_unanswered(status)))
        return SIDESTEP_OK;
    return error_copy(err, &why);
}

void object_vote_no(struct commit *commit, const struct sidestep_error *why)
{
    struct object_client *client = object_commit_client(commit);
    char key[OBJECT_KEY_BYTES];

    assert(commit->rank != 0); /* rank 0 aborts */
    object_keeper_stop(&commit->objects->keeper);
    if (!object_has_marker(commit)) /* rank 0 has aborted, and nobody would delete the object */
        return;
    object_rank_key(commit, "failed", commit->rank, key);
    (void)client->ops->put(client, key, why->message, strlen(why->message), NULL, NULL, NULL);
}

/* Delete what this rank put: rank 0 may have swept before the uploads were complete. */
void object_retract(struct commit *commit)
{
    struct object_client *client = object_commit_client(commit);
    char written[FILE_NAME_BYTES], name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];
    const char *const keys[] = {key};

    if (commit->dir == NULL)
        return;
    object_keeper_stop(&commit->objects->keeper);
    for (uint32_t shard = 0; shard < commit->shards; shard++) {
        commit_form_of(commit)->shard_names(commit, commit->rank, shard, written, name);
        object_key(commit, name, key);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
    }
    for (uint32_t number = 0; number < commit->extras; number++) {
        file_name_format(FILE_NAME_EXTRA, commit->save_id, commit->rank, number, name);
        object_key(commit, name, key);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
    }
    if (object_has_marker(commit)) /* rank 0 sweeps after it has read the vote of this rank */
        return;
    static const char *const kinds[] = {"yes", "failed", "alive"};
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        object_rank_key(commit, kinds[i], commit->rank, key);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
    }
}

/* ---- 4 collect */

struct vote_count {
    struct tally *tally;
    size_t prefix_length;
};

static bool count_one(void *context, const struct object_info *info)
{
    const struct vote_count *count = context;
    struct tally *tally = count->tally;
    const char *name = info->key + count->prefix_length;
    uint32_t rank;
    enum object_record record = object_record_parse(name, &rank);

    /* Refreshed "alive" objects and completed uploads are progress. The marker is not: rank 0
     * refreshes it itself. */
    if (record == OBJECT_RECORD_MARKER)
        return true;
    tally->progress += 1 + (uint64_t)info->modified;
    if (record < OBJECT_RECORD_VOTE || rank >= tally->commit->world_size)
        return true;
    tally->seen[rank] = 1;
    if (record == OBJECT_RECORD_VOTE && !tally->voted[rank]) {
        tally->voted[rank] = 1;
        tally->yes_count++;
        assert(tally->yes_count <= tally->commit->world_size);
    } else if (record == OBJECT_RECORD_FAILURE &&
               (tally->failed_rank < 0 || rank < tally->failed_rank)) {
        tally->failed_rank = rank;
    }
    return true;
}

enum sidestep_status object_count_votes(struct tally *tally, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(tally->commit);
    char prefix[OBJECT_KEY_BYTES];

    object_save_key(tally->commit, "", prefix);
    struct vote_count count = {tally, strlen(prefix)};
    return client->ops->list(client, prefix, 0, NULL, 0, count_one, &count, err);
}

void object_read_failure(struct commit *commit, uint32_t rank, struct sidestep_error *why)
{
    char key[OBJECT_KEY_BYTES];

    assert(rank < commit->world_size);
    object_rank_key(commit, "failed", rank, key);
    (void)object_read_reason(commit, key, why);
}
