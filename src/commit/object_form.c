/* SPDX-License-Identifier: BSD-3-Clause */
/* object_form.c -- the form of the protocol on object stores, step by step; see object_form.h. */
#include "commit/object_form.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "commit/extra_files.h"
#include "commit/referenced_files.h"

/* ---- open */

/* No key of a save (a shard, a manifest, a vote) has more bytes below NAME. */
#define LONGEST_NAME 128u

static enum sidestep_status open_target(struct commit *commit, const char *url,
                                        struct sidestep_error *err)
{
    struct object_url parsed;
    char parent[sizeof(OBJECT_SCHEME) + OBJECT_BUCKET_BYTES + OBJECT_KEY_BYTES];

    assert(commit->objects == NULL);
    TRY(object_url_parse(url, &parsed, err));
    const char *slash = strrchr(parsed.key, '/');
    const char *name = slash != NULL ? slash + 1 : parsed.key;
    if (name[0] == '\0')
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is a bucket, and cannot be a checkpoint", url);
    if (strlen(name) >= sizeof(commit->name) ||
        strlen(parsed.key) + LONGEST_NAME > OBJECT_KEY_BYTES)
        return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "'%s'", url);
    snprintf(commit->name, sizeof(commit->name), "%s", name);
    snprintf(commit->path, sizeof(commit->path), OBJECT_SCHEME "%s/%s", parsed.bucket, parsed.key);
    snprintf(parent, sizeof(parent), OBJECT_SCHEME "%s/%.*s", parsed.bucket,
             (int)(slash != NULL ? slash - parsed.key : 0), parsed.key);
    TRY(store_dir_open(commit->store, NULL, parent, &commit->parent, err));
    commit->objects = memory_new(1, sizeof(*commit->objects));
    return commit->objects != NULL ? commit_check_name(commit, err)
                                   : FAIL_NOMEM(err, sizeof(*commit->objects));
}

/* ---- 1 begin, join */

void object_describe_marker(const struct commit *commit, char *text, size_t bytes)
{
    char host[64] = "?";

    assert(commit->name[0] != '\0');
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(text, bytes, "target %s\nowner %ld\nhost %s\nrun %s\nstep %lld\n", commit->name,
             (long)getpid(), host, commit->request.run_id, (long long)commit->request.step);
}

/* Probe with a condition that is false: a store that ignores it puts the same text again. */
bool object_keeps_conditions(const struct commit *commit, const char *key, const char *text)
{
    struct object_client *client = object_commit_client(commit);
    const struct object_condition absent = {.if_absent = true};
    const struct object_condition other = {.if_tag = "\"a tag that no object has\""};
    bool replaces = commit->objects->tag[0] != '\0' &&
                    !fault_hit("object.probe"); /* a negative control: tests must notice it */

    enum sidestep_status status =
        client->ops->put(client, key, text, strlen(text), replaces ? &other : &absent, NULL, NULL);
    return status != SIDESTEP_OK && status != SIDESTEP_EUNSUPPORTED;
}

/* Put the marker. If a repeated request is refused, an earlier one may have put it: nobody else
 * puts an object with this save id. */
static enum sidestep_status put_marker(struct commit *commit, const char *text,
                                       struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    const struct object_condition absent = {.if_absent = true};
    struct sidestep_error why = {.rank = -1};
    char key[OBJECT_KEY_BYTES];

    assert(commit->rank == 0);
    object_save_key(commit, "pending", key);
    enum sidestep_status status =
        client->ops->put(client, key, text, strlen(text), &absent, NULL, &why);
    commit->objects->is_conditional = status != SIDESTEP_EUNSUPPORTED;
    if (status == SIDESTEP_EUNSUPPORTED)
        return client->ops->put(client, key, text, strlen(text), NULL, NULL, err);
    if (status == SIDESTEP_EEXISTS && commit->request.resumes) { /* its time is that of who died */
        TRY(client->ops->put(client, key, text, strlen(text), NULL, NULL, err));
        status = SIDESTEP_OK;
    }
    if (status == SIDESTEP_EEXISTS || (status == SIDESTEP_EIO && object_has_marker(commit)))
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    commit->objects->is_conditional = object_keeps_conditions(commit, key, text);
    return SIDESTEP_OK;
}

static enum sidestep_status check_conditions(const struct commit *commit,
                                             struct sidestep_error *err)
{
    /* A series keeps others away by its lease. */
    if (commit->objects->is_conditional || !commit->request.no_replace ||
        commit->request.guard != NULL)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "'%s' must not be replaced, but this store has no conditional requests, so nobody "
                "can promise that: allow the save to replace, or use another store",
                commit->path);
}

static enum sidestep_status look(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->dir == NULL);
    TRY(store_dir_open(commit->store, commit->parent, commit->name, &commit->dir, err));
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    TRY(object_read_identity(commit, &commit->previous, commit->objects->tag, &commit->objects->old,
                             err));
    if (commit->previous != 0 && commit->request.no_replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' holds a checkpoint already", commit->path);
    return SIDESTEP_OK;
}

static enum sidestep_status begin(struct commit *commit, struct sidestep_error *err)
{
    char text[512], key[OBJECT_KEY_BYTES];

    assert(commit->rank == 0 && commit->dir != NULL);
    commit->objects->identity = commit_identity(commit->save_id);
    if (!commit->request.resumes) /* it would take what is gone on with for dead */
        TRY(object_sweep_before(commit->dir, commit->objects->old.save_id, err));
    object_describe_marker(commit, text, sizeof(text));
    enum sidestep_status status = put_marker(commit, text, err);
    object_save_key(commit, "pending", key);
    if (status == SIDESTEP_OK)
        status = check_conditions(commit, err);
    if (status == SIDESTEP_OK)
        status = object_keeper_start(object_commit_client(commit), key, text, commit->clock,
                                     &commit->objects->keeper, err);
    /* A store that did not answer would not answer now. A later sweep deletes what there may be. */
    if (status != SIDESTEP_OK && status != SIDESTEP_ETIMEDOUT && !commit->request.resumes)
        object_sweep_save(commit->dir, commit->save_id);
    return status;
}

/* Other ranks record the tag of .metadata, to notice later that it changed. */
static enum sidestep_status try_join(struct commit *commit, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    struct object_info info;
    char key[OBJECT_KEY_BYTES];

    assert(commit->rank != 0 && commit->dir == NULL);
    TRY(store_dir_open(commit->store, commit->parent, commit->name, &commit->dir, err));
    object_save_key(commit, "pending", key);
    TRY(client->ops->head(client, key, &info, err));
    object_key(commit, FILE_NAME_METADATA, key);
    enum sidestep_status status = client->ops->head(client, key, &info, err);
    if (status == SIDESTEP_OK)
        memcpy(commit->objects->tag, info.tag, sizeof(info.tag));
    else if (status != SIDESTEP_ENOTFOUND)
        return status;
    object_rank_key(commit, "alive", commit->rank, key);
    return object_keeper_start(client, key, "alive\n", commit->clock, &commit->objects->keeper,
                               err);
}

/* ---- 2 shards, 3 seal; the votes are in object_votes.c */

static void shard_names(const struct commit *commit, uint32_t rank, uint32_t shard,
                        char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    file_name_format(FILE_NAME_SHARD, commit->save_id, rank, shard, final);
    memcpy(written, final, FILE_NAME_BYTES);
}

/* file_sync() completes the object, and checks its size. */
static enum sidestep_status seal(struct commit *commit UNUSED, const char *written UNUSED,
                                 const char *final UNUSED, struct store_file *file,
                                 struct sidestep_error *err)
{
    OWNED_FILE *owned = file;

    TRY(store_file_sync(owned, err));
    return store_file_close(TAKE(owned), err);
}

/* ---- 5 publish, 6 commit */

enum sidestep_status object_check_lease(struct commit *commit, struct sidestep_error *err)
{
    assert(commit->objects->keeper != NULL);
    uint64_t age_ns = object_keeper_age_ns(commit->objects->keeper);

    if (age_ns <= (uint64_t)OBJECT_LEASE_SECONDS * 1000000000u ||
        fault_hit("object.lease")) /* a negative control: tests must notice it */
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED,
                "the marker of this save could not be renewed for %.0f s, so another process may "
                "have taken the save for dead; nothing was committed, save again",
                (double)age_ns / 1e9);
}

static void sweep_replaced(struct commit *commit)
{
    const struct referenced_files *old = &commit->objects->old;

    object_sweep_committed(commit->dir, old, commit->save_id);
    /* The replaced .metadata was damaged, so it is unknown which objects it referenced. */
    if (commit->previous != 0 && old->save_id == NULL)
        object_sweep_dead(commit->dir, commit->save_id);
}

/* Put the index or the manifest. */
static enum sidestep_status put_record(struct commit *commit, enum file_name_kind kind,
                                       const struct buffer *bytes, struct sidestep_error *err)
{
    enum sidestep_status put = object_put_record(commit, kind, bytes, err);

    commit->objects->has_late_record = object_is_unanswered(put);
    return put;
}

/* Put the index before the other records are made, so that they are not in memory together. */
static enum sidestep_status put_index(struct commit *commit, struct commit_contents *contents,
                                      struct sidestep_error *err)
{
    OWNED_BUFFER index = {0};

    TRY(commit_encode_index(&contents->metadata, &contents->manifest, &index, err));
    return put_record(commit, FILE_NAME_INDEX, &index, err);
}

static enum sidestep_status publish_and_commit(struct commit *commit,
                                               struct commit_contents *contents,
                                               enum commit_outcome *outcome,
                                               struct sidestep_error *err)
{
    OWNED_BUFFER metadata = {0}, manifest = {0};

    assert(commit->rank == 0 && *outcome == COMMIT_ABORTED);
    TRY(extra_files_drop(commit, contents, err));
    TRY(put_index(commit, contents, err));
    TRY(extra_files_keep_names(commit->save_id, contents, err));
    TRY(commit_encode_records(contents, &metadata, &manifest, err));
    TRY(put_record(commit, FILE_NAME_MANIFEST, &manifest, err));
    TRY(commit_check_guard(commit, err));
    TRY(object_check_lease(commit, err));
    TRY(object_commit_metadata(commit, &metadata, outcome, err));
    enum sidestep_status status = commit_check_still_held(commit, outcome, err);
    object_keeper_stop(&commit->objects->keeper);
    if (status == SIDESTEP_OK)
        sweep_replaced(commit);
    else /* another owner may read what was replaced */
        object_sweep_save(commit->dir, commit->save_id);
    return status;
}

/* May .metadata, which an earlier attempt of this save has put without an answer, still arrive? Its
 * manifest was there before. What it names stays until the save is dead. */
static bool may_be_committed_yet(const struct commit *commit)
{
    char name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];

    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, name);
    object_key(commit, name, key);
    return object_is_there(commit, key);
}

static void abort_save(struct commit *commit, const struct sidestep_error *why)
{
    struct object_client *client = object_commit_client(commit);
    enum sidestep_status answer = why->status;
    char key[OBJECT_KEY_BYTES];

    assert(commit->rank == 0); /* others vote no */
    object_keeper_stop(&commit->objects->keeper);
    object_save_key(commit, "outcome", key);
    /* Before the objects are deleted, so that a rank that misses them finds the reason. */
    if (commit->world_size > 1)
        answer =
            client->ops->put(client, key, why->message, strlen(why->message), NULL, NULL, NULL);
    if (answer == SIDESTEP_ETIMEDOUT)
        return; /* the store would not answer now: a later sweep deletes the objects */
    if (commit->request.resumes && may_be_committed_yet(commit)) {
        object_sweep_votes(commit->dir, commit->save_id);
        return;
    }
    if (commit->objects->has_late_record &&
        !fault_hit("object.late_manifest")) /* a negative control: tests must notice it */
        object_sweep_but_marker(commit->dir, commit->save_id);
    else
        object_sweep_save(commit->dir, commit->save_id);
}

static void close_objects(struct commit *commit)
{
    if (commit->objects != NULL) {
        object_keeper_stop(&commit->objects->keeper);
        referenced_files_release(&commit->objects->old);
    }
    free(TAKE(commit->objects));
}

const struct commit_form commit_form_objects = {.open = open_target,
                                                .look = look,
                                                .begin = begin,
                                                .try_join = try_join,
                                                .shard_names = shard_names,
                                                .seal = seal,
                                                .vote_yes = object_vote_yes,
                                                .vote_for = object_vote_for,
                                                .vote_no = object_vote_no,
                                                .retract = object_retract,
                                                .count_votes = object_count_votes,
                                                .read_failure = object_read_failure,
                                                .has_marker = object_has_marker,
                                                .publish = publish_and_commit,
                                                .abort = abort_save,
                                                .check_aborted = object_check_aborted,
                                                .poll_outcome = object_poll_outcome,
                                                .remove_outcome = object_remove_outcome,
                                                .close = close_objects};
