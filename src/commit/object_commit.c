/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_commit.c -- steps 5 and 6 on object stores: puts the records, commits, and finds out the
 * outcome.
 *
 * The last put has a condition: .metadata is what it was when the save began. So a checkpoint that
 * came meanwhile is not replaced (I9). If the answer is lost, .metadata is read back. If it has the
 * save id of this save, the save is committed. Otherwise the request may still arrive until its
 * signature expires, so the outcome is UNKNOWN.
 *
 * Some stores have no conditions, or ignore them. With them a weaker form is used: the save
 * compares .metadata right before the put and reads it back after it. Two saves of the same name in
 * the same moment can then both take place, and the later one stays. Their shards have different
 * keys, so neither is torn. A save that must not replace anything is refused there (object_form.c).
 */
#include "commit/object_form.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"

enum sidestep_status object_put_record(struct commit *commit, enum file_name_kind kind,
                                       const struct buffer *bytes, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    char name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];

    if (bytes->length == 0)
        return SIDESTEP_OK;
    file_name_format(kind, commit->save_id, 0, 0, name);
    object_key(commit, name, key);
    return client->ops->put(client, key, bytes->bytes, bytes->length, NULL, NULL, err);
}

/* Copy the save id and the names of files from ${metadata}, which may be large, to ${named}. */
static enum sidestep_status keep_names(const struct metadata *metadata,
                                       struct referenced_files *named, struct sidestep_error *err)
{
    return named == NULL || referenced_files_take(metadata, named) == SIDESTEP_OK
               ? SIDESTEP_OK
               : FAIL_NOMEM(err, metadata->count * sizeof(char *));
}

enum sidestep_status object_identify(const struct buffer *bytes, uint64_t *identity,
                                     struct referenced_files *named, struct sidestep_error *err)
{
    OWNED_METADATA metadata = {0};
    enum sidestep_status status = dcp_metadata_read(bytes->bytes, bytes->length, &metadata, NULL);

    if (status == SIDESTEP_ENOMEM) /* with more memory the result would differ */
        return FAIL_NOMEM(err, bytes->length);
    *identity = status == SIDESTEP_OK && metadata.save_id != NULL
                    ? commit_identity(metadata.save_id)
                    : XXH3_64bits(bytes->bytes, bytes->length) | 1;
    return status == SIDESTEP_OK ? keep_names(&metadata, named, err) : SIDESTEP_OK;
}

enum sidestep_status object_read_identity(const struct commit *commit, uint64_t *identity,
                                          char tag[OBJECT_TAG_BYTES],
                                          struct referenced_files *named,
                                          struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    struct sidestep_error why = {.rank = -1};
    struct object_info info = {0};
    OWNED_BUFFER bytes = {0};
    char key[OBJECT_KEY_BYTES];

    *identity = 0;
    tag[0] = '\0';
    object_key(commit, FILE_NAME_METADATA, key);
    enum sidestep_status status =
        client->ops->get_all(client, key, DCP_METADATA_MAX_BYTES, &bytes, &info, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    memcpy(tag, info.tag, OBJECT_TAG_BYTES);
    return object_identify(&bytes, identity, named, err);
}

static enum sidestep_status refuse(const struct commit *commit, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EEXISTS,
                "'%s' holds another checkpoint than when save %s began: it stays, and this one is "
                "not committed; save again if it is to be replaced",
                commit->path, commit->save_id);
}

static enum sidestep_status refuse_deleted(const struct commit *commit, struct sidestep_error *err)
{
    return FAIL(
        err, SIDESTEP_EEXISTS,
        "the checkpoint that '%s' held when save %s began was deleted meanwhile: nothing was "
        "committed; save again",
        commit->path, commit->save_id);
}

/* What does NAME hold? COMMITTED: this save. ABORTED: what it held when the save began.
 * UNDECIDED: something else. UNKNOWN: storage does not answer. */
static enum commit_outcome read_back(const struct commit *commit)
{
    char tag[OBJECT_TAG_BYTES];
    uint64_t identity;

    assert(commit->objects->identity != 0); /* 0: no checkpoint at all */
    if (object_read_identity(commit, &identity, tag, NULL, NULL) != SIDESTEP_OK)
        return COMMIT_UNKNOWN;
    if (identity == commit->objects->identity)
        return COMMIT_COMMITTED;
    return strcmp(tag, commit->objects->tag) == 0 ? COMMIT_ABORTED : COMMIT_UNDECIDED;
}

/* A 412, and all attempts were answered: another process has put .metadata, or a proxy has sent the
 * request of this save twice. */
static enum sidestep_status explain_refusal(struct commit *commit, enum commit_outcome *outcome,
                                            struct sidestep_error *err)
{
    switch (fault_hit("object.read_back") ? COMMIT_UNDECIDED : read_back(commit)) {
    case COMMIT_COMMITTED:
        *outcome = COMMIT_COMMITTED;
        return SIDESTEP_OK;
    case COMMIT_UNKNOWN:
        *outcome = COMMIT_UNKNOWN;
        (void)refuse(commit, err);
        return commit_report_unsure(commit, err);
    default:
        *outcome = COMMIT_ABORTED;
        return refuse(commit, err);
    }
}

/* The store did not answer. What is not there now may still arrive (O5). */
static enum sidestep_status explain_silence(struct commit *commit, const struct sidestep_error *why,
                                            enum commit_outcome *outcome,
                                            struct sidestep_error *err)
{
    assert(why->status != SIDESTEP_OK);
    *outcome = read_back(commit) == COMMIT_COMMITTED ? COMMIT_COMMITTED : COMMIT_UNKNOWN;
    if (*outcome == COMMIT_UNKNOWN && fault_hit("object.silence")) /* a negative control */
        *outcome = COMMIT_ABORTED;
    if (*outcome == COMMIT_COMMITTED)
        return SIDESTEP_OK;
    error_copy(err, why);
    return commit_report_unsure(commit, err);
}

bool object_is_unanswered(enum sidestep_status status)
{
    return status == SIDESTEP_EIO || status == SIDESTEP_ETIMEDOUT || status == SIDESTEP_EABORTED ||
           status == SIDESTEP_ECORRUPT;
}

/* Does NAME hold what it held when the save began? */
static enum sidestep_status compare(const struct commit *commit, struct sidestep_error *err)
{
    enum commit_outcome now = read_back(commit);

    if (now == COMMIT_ABORTED)
        return SIDESTEP_OK;
    if (now != COMMIT_UNKNOWN)
        return refuse(commit, err);
    return FAIL(err, SIDESTEP_EIO,
                "the store did not tell what '%s' holds, so save %s did not replace it; save again",
                commit->path, commit->save_id);
}

/* Commit in the weaker form. */
static enum sidestep_status put_and_read_back(struct commit *commit, const char *key,
                                              const struct buffer *metadata,
                                              enum commit_outcome *outcome,
                                              struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    struct sidestep_error why = {.rank = -1};

    assert(!commit->objects->is_conditional && *outcome == COMMIT_ABORTED);
    TRY(compare(commit, err));
    enum sidestep_status status =
        client->ops->put(client, key, metadata->bytes, metadata->length, NULL, NULL, &why);
    if (status != SIDESTEP_OK && !object_is_unanswered(status))
        return error_copy(err, &why);
    if (status == SIDESTEP_OK)
        (void)FAIL(&why, SIDESTEP_EUNKNOWN, "'%s' was replaced in the same moment", commit->path);
    return explain_silence(commit, &why, outcome, err);
}

static enum sidestep_status put_on_condition(struct commit *commit, const char *key,
                                             const struct buffer *metadata,
                                             enum commit_outcome *outcome,
                                             struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    const char *tag = commit->objects->tag;
    struct object_condition condition = {.if_absent = tag[0] == '\0',
                                         .if_tag = tag[0] != '\0' ? tag : NULL};
    struct sidestep_error why = {.rank = -1};

    assert(commit->objects->is_conditional && *outcome == COMMIT_ABORTED);
    if (fault_hit("object.condition")) /* a negative control: tests must notice it */
        condition = (struct object_condition){0};
    enum sidestep_status status =
        client->ops->put(client, key, metadata->bytes, metadata->length, &condition, NULL, &why);

    if (status == SIDESTEP_OK)
        *outcome = COMMIT_COMMITTED;
    else if (status == SIDESTEP_EEXISTS)
        return explain_refusal(commit, outcome, err);
    else if (status == SIDESTEP_ENOTFOUND)
        return refuse_deleted(commit, err);
    else if (object_is_unanswered(status))
        return explain_silence(commit, &why, outcome, err);
    else
        error_copy(err, &why);
    return status;
}

enum sidestep_status object_commit_metadata(struct commit *commit, const struct buffer *metadata,
                                            enum commit_outcome *outcome,
                                            struct sidestep_error *err)
{
    char key[OBJECT_KEY_BYTES];

    assert(metadata->length != 0 && commit->save_id[0] != '\0');
    object_key(commit, FILE_NAME_METADATA, key);
    return commit->objects->is_conditional ? put_on_condition(commit, key, metadata, outcome, err)
                                           : put_and_read_back(commit, key, metadata, outcome, err);
}
