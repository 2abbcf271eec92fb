/* SPDX-License-Identifier: BSD-3-Clause */
/* object_learn.c -- step 7 on object stores: the other ranks read the outcome of a save; see
 * object_form.h. */
#include "commit/object_form.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"

enum sidestep_status object_check_aborted(struct commit *commit, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char key[OBJECT_KEY_BYTES];

    if (commit->world_size <= 1) /* rank 0 puts an outcome only for other ranks */
        return SIDESTEP_OK;
    assert(commit->save_id[0] != '\0');
    object_save_key(commit, "outcome", key);
    if (object_read_reason(commit, key, &why) != SIDESTEP_OK)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED, "%s",
                why.message[0] != '\0' ? why.message : "rank 0 gave the save up");
}

/* The outcome by .metadata. UNDECIDED: it has not changed, or storage does not answer. */
static enum commit_outcome read_metadata_outcome(struct commit *commit)
{
    struct object_client *client = object_commit_client(commit);
    struct object_info info = {0};
    char key[OBJECT_KEY_BYTES], tag[OBJECT_TAG_BYTES];
    uint64_t identity = 0;

    object_key(commit, FILE_NAME_METADATA, key);
    enum sidestep_status status = client->ops->head(client, key, &info, NULL);
    if (status != SIDESTEP_OK || strcmp(info.tag, commit->objects->tag) == 0 ||
        object_read_identity(commit, &identity, tag, NULL, NULL) != SIDESTEP_OK)
        return COMMIT_UNDECIDED;
    if (identity == commit_identity(commit->save_id))
        return COMMIT_COMMITTED;
    return identity == 0 || identity == commit->previous ? COMMIT_UNDECIDED : COMMIT_UNKNOWN;
}

/* When the marker is gone, the save has ended: read from .metadata how. */
static enum commit_outcome read_final_outcome(struct commit *commit, struct sidestep_error *err)
{
    uint64_t identity = 0;
    char tag[OBJECT_TAG_BYTES];

    if (object_read_identity(commit, &identity, tag, NULL, NULL) != SIDESTEP_OK)
        return COMMIT_UNDECIDED;
    return commit_explain(commit, commit_judge_identity(commit, identity, err), err);
}

enum commit_outcome object_poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->rank != 0);
    if (read_metadata_outcome(commit) == COMMIT_COMMITTED)
        return COMMIT_COMMITTED;
    if (object_check_aborted(commit, err) != SIDESTEP_OK)
        return COMMIT_ABORTED;
    return object_has_marker(commit) ? COMMIT_UNDECIDED : read_final_outcome(commit, err);
}

void object_remove_outcome(struct commit *commit)
{
    struct object_client *client = object_commit_client(commit);
    char key[OBJECT_KEY_BYTES];
    const char *const keys[] = {key};

    if (commit->world_size <= 1 || commit->parent == NULL || commit->save_id[0] == '\0')
        return;
    object_save_key(commit, "outcome", key);
    (void)client->ops->delete_keys(client, keys, 1, NULL);
}
