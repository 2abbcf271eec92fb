/* SPDX-License-Identifier: BSD-3-Clause */
/* object_form.c -- the protocol on object stores, step by step; see object_form.h. */
#include "commit/object_form.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "commit/referenced_files.h"

void object_key(const struct commit *commit, const char *name, char key[OBJECT_KEY_BYTES])
{
    snprintf(key, OBJECT_KEY_BYTES, "%s%s/%s", object_store_prefix(commit->parent), commit->name,
             name);
}

void object_save_key(const struct commit *commit, const char *name, char key[OBJECT_KEY_BYTES])
{
    snprintf(key, OBJECT_KEY_BYTES, "%s%s/" OBJECT_SAVES_DIR "%s/%s",
             object_store_prefix(commit->parent), commit->name, commit->save_id, name);
}

void object_rank_key(const struct commit *commit, const char *kind, uint32_t rank,
                     char key[OBJECT_KEY_BYTES])
{
    char name[32];

    snprintf(name, sizeof(name), "%s.%u", kind, rank);
    object_save_key(commit, name, key);
}

/* ---- open */

/* The longest key of a save is that of a shard, a manifest or a vote. */
#define LONGEST_NAME 128u

enum sidestep_status commit_open_objects(struct commit *commit, const char *url,
                                         struct sidestep_error *err)
{
    struct object_url parsed;
    char parent[sizeof(OBJECT_SCHEME) + OBJECT_BUCKET_BYTES + OBJECT_KEY_BYTES];

    commit->form = &commit_form_objects;
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
    return commit->objects != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*commit->objects));
}

/* ---- 1 begin, join */

static void describe_marker(const struct commit *commit, char *text, size_t bytes)
{
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    snprintf(text, bytes, "target %s\nowner %ld\nhost %s\nrun %s\nstep %lld\n", commit->name,
             (long)getpid(), host, commit->run_id, (long long)commit->step);
}

/* The probe: a store that ignores the condition that the commit will have puts the same text
 * again. */
static bool keeps_conditions(const struct commit *commit, const char *key, const char *text)
{
    struct object_client *client = object_commit_client(commit);
    const struct object_condition absent = {.if_absent = true};
    const struct object_condition other = {.if_tag = "\"a tag that no object has\""};
    bool replaces = commit->objects->tag[0] != '\0' &&
                    !fault_hit("object.probe"); /* wrong on purpose: tests must notice it */

    enum sidestep_status status =
        client->ops->put(client, key, text, strlen(text), replaces ? &other : &absent, NULL, NULL);
    return status != SIDESTEP_OK && status != SIDESTEP_EUNSUPPORTED;
}

/* Put the marker. Where a repeated request is refused, an earlier one put it. */
static enum sidestep_status put_marker(struct commit *commit, const char *text,
                                       struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    const struct object_condition absent = {.if_absent = true};
    struct sidestep_error why = {.rank = -1};
    char key[OBJECT_KEY_BYTES];

    object_save_key(commit, "pending", key);
    enum sidestep_status status =
        client->ops->put(client, key, text, strlen(text), &absent, NULL, &why);
    commit->objects->is_conditional = status != SIDESTEP_EUNSUPPORTED;
    if (status == SIDESTEP_EUNSUPPORTED)
        return client->ops->put(client, key, text, strlen(text), NULL, NULL, err);
    if (status == SIDESTEP_EEXISTS)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK) {
        error_copy(err, &why);
        return status;
    }
    commit->objects->is_conditional = keeps_conditions(commit, key, text);
    return SIDESTEP_OK;
}

static enum sidestep_status check_conditions(const struct commit *commit,
                                             struct sidestep_error *err)
{
    /* A series keeps others away by its lease. */
    if (commit->objects->is_conditional || !commit->no_replace || commit->guard != NULL)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "'%s' must not be replaced, but this store has no conditional requests, so nobody "
                "can promise that: allow the save to replace, or use another store",
                commit->path);
}

static enum sidestep_status look_at_target(struct commit *commit, struct sidestep_error *err)
{
    TRY(object_read_identity(commit, &commit->previous, commit->objects->tag, &commit->objects->old,
                             err));
    if (commit->previous != 0 && commit->no_replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' holds a checkpoint already", commit->path);
    return SIDESTEP_OK;
}

static enum sidestep_status objects_begin(struct commit *commit, struct sidestep_error *err)
{
    char text[512], key[OBJECT_KEY_BYTES];

    TRY(store_dir_open(commit->store, commit->parent, commit->name, &commit->dir, err));
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    TRY(look_at_target(commit, err));
    object_sweep_dead(commit->dir, commit->objects->old.save_id);
    describe_marker(commit, text, sizeof(text));
    enum sidestep_status status = put_marker(commit, text, err);
    object_save_key(commit, "pending", key);
    if (status == SIDESTEP_OK)
        status = check_conditions(commit, err);
    if (status == SIDESTEP_OK)
        status = object_keeper_start(object_commit_client(commit), key, text, commit->clock,
                                     &commit->objects->keeper, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "begin");
        object_sweep_save(commit->dir, commit->save_id);
    }
    return status;
}

/* Another rank notes what .metadata is, to see later that it changed. */
static enum sidestep_status objects_try_join(struct commit *commit, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    struct object_info info;
    char key[OBJECT_KEY_BYTES];

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

/* ---- 2 shards, 3 seal and vote */

static void objects_shard_names(const struct commit *commit, uint32_t rank, uint32_t shard,
                                char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES])
{
    file_name_format(FILE_NAME_SHARD, commit->save_id, rank, shard, final);
    memcpy(written, final, FILE_NAME_BYTES);
}

/* file_sync() makes the object appear, and looks at its size. */
static enum sidestep_status objects_seal(struct commit *commit UNUSED, uint32_t shard UNUSED,
                                         struct store_file *file, struct sidestep_error *err)
{
    OWNED_FILE *owned = file;

    TRY(store_file_sync(owned, err));
    return store_file_close(TAKE(owned), err);
}

/* Errors after which the object may be there all the same. */
static bool may_be_done(enum sidestep_status status)
{
    return status == SIDESTEP_EIO || status == SIDESTEP_ETIMEDOUT || status == SIDESTEP_ECORRUPT;
}

static enum sidestep_status objects_vote_yes(struct commit *commit, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    struct sidestep_error why = {.rank = -1};
    char key[OBJECT_KEY_BYTES], text[64];

    snprintf(text, sizeof(text), "shards %u\n", commit->shards);
    object_rank_key(commit, "yes", commit->rank, key);
    enum sidestep_status status =
        client->ops->put(client, key, text, strlen(text), NULL, NULL, &why);
    if (commit->rank != 0)
        object_keeper_stop(&commit->objects->keeper);
    /* I5: rank 0 may have counted the vote, so it cannot be taken back. If it is not there, the
     * deadline of rank 0 ends the save. */
    if (status == SIDESTEP_OK || (commit->rank != 0 && may_be_done(status)))
        return SIDESTEP_OK;
    error_copy(err, &why);
    return status;
}

static bool is_there(const struct commit *commit, const char *key)
{
    struct object_client *client = object_commit_client(commit);
    struct object_info info;

    return client->ops->head(client, key, &info, NULL) != SIDESTEP_ENOTFOUND;
}

static bool objects_has_marker(const struct commit *commit)
{
    char key[OBJECT_KEY_BYTES];

    object_save_key(commit, "pending", key);
    return is_there(commit, key);
}

static void objects_vote_no(struct commit *commit, const struct sidestep_error *why)
{
    struct object_client *client = object_commit_client(commit);
    char key[OBJECT_KEY_BYTES];

    object_keeper_stop(&commit->objects->keeper);
    if (!objects_has_marker(commit)) /* rank 0 has given up, and nobody would delete this */
        return;
    object_rank_key(commit, "failed", commit->rank, key);
    (void)client->ops->put(client, key, why->message, strlen(why->message), NULL, NULL, NULL);
}

/* Rank 0 may have swept before this rank completed its uploads. */
static void objects_retract(struct commit *commit)
{
    struct object_client *client = object_commit_client(commit);
    char written[FILE_NAME_BYTES], name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];
    const char *const keys[] = {key};

    if (commit->dir == NULL)
        return;
    object_keeper_stop(&commit->objects->keeper);
    for (uint32_t shard = 0; shard < commit->shards; shard++) {
        objects_shard_names(commit, commit->rank, shard, written, name);
        object_key(commit, name, key);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
    }
    if (objects_has_marker(commit)) /* rank 0 has yet to read our vote, and sweeps after that */
        return;
    static const char *const kinds[] = {"yes", "failed", "alive"};
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        object_rank_key(commit, kinds[i], commit->rank, key);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
    }
}

/* ---- 4 collect */

struct count {
    struct tally *tally;
    size_t prefix_length;
};

static bool count_one(void *context, const struct object_info *info)
{
    const struct count *count = context;
    struct tally *tally = count->tally;
    const char *name = info->key + count->prefix_length;
    const char *dot = strchr(name, '.');
    int64_t rank = dot != NULL ? file_name_parse_number(dot + 1, strchr(dot, '\0')) : -1;

    /* Signs of life and completed uploads move the deadline. */
    tally->progress += 1 + (uint64_t)info->modified;
    if (rank < 0 || rank >= tally->commit->world_size)
        return true;
    if (strncmp(name, "yes.", 4) == 0 && !tally->voted[rank]) {
        tally->voted[rank] = 1;
        tally->yes_count++;
    } else if (strncmp(name, "failed.", 7) == 0 &&
               (tally->failed_rank < 0 || rank < tally->failed_rank)) {
        tally->failed_rank = rank;
    }
    return true;
}

static enum sidestep_status objects_count_votes(struct tally *tally, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(tally->commit);
    char prefix[OBJECT_KEY_BYTES];

    object_save_key(tally->commit, "", prefix);
    struct count count = {tally, strlen(prefix)};
    return client->ops->list(client, prefix, 0, NULL, 0, count_one, &count, err);
}

static enum sidestep_status read_reason(struct commit *commit, const char *key,
                                        struct sidestep_error *why)
{
    struct object_client *client = object_commit_client(commit);
    OWNED_BUFFER text = {0};

    why->message[0] = '\0';
    TRY(client->ops->get_all(client, key, sizeof(why->message) - 1, &text, NULL, NULL));
    if (text.length != 0 && memchr(text.bytes, '\0', text.length) == NULL)
        snprintf(why->message, sizeof(why->message), "%.*s", (int)text.length,
                 (const char *)text.bytes);
    return SIDESTEP_OK;
}

static void objects_read_failure(struct commit *commit, uint32_t rank, struct sidestep_error *why)
{
    char key[OBJECT_KEY_BYTES];

    object_rank_key(commit, "failed", rank, key);
    (void)read_reason(commit, key, why);
}

/* ---- 5 publish, 6 commit */

/* EABORTED: nobody may send a commit after this long without a refresh. */
static enum sidestep_status check_lease(struct commit *commit, struct sidestep_error *err)
{
    uint64_t age_ns = object_keeper_age_ns(commit->objects->keeper);

    if (age_ns <= (uint64_t)OBJECT_LEASE_SECONDS * 1000000000u ||
        fault_hit("object.lease")) /* wrong on purpose: tests must notice it */
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
    /* It was damaged, and did not say what belongs to it. Nothing names that any more. */
    if (commit->previous != 0 && old->save_id == NULL)
        object_sweep_dead(commit->dir, commit->save_id);
}

static enum sidestep_status objects_publish(struct commit *commit, struct commit_contents *contents,
                                            enum commit_outcome *outcome,
                                            struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    OWNED_BUFFER metadata = {0}, manifest = {0};
    char name[FILE_NAME_BYTES], key[OBJECT_KEY_BYTES];

    TRY(commit_encode_records(contents, &metadata, &manifest, err));
    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, name);
    object_key(commit, name, key);
    TRY(client->ops->put(client, key, manifest.bytes, manifest.length, NULL, NULL, err));
    TRY(commit_check_guard(commit, err));
    TRY(check_lease(commit, err));
    TRY(object_commit_metadata(commit, &metadata, outcome, err));
    enum sidestep_status status = commit_check_still_held(commit, outcome, err);
    object_keeper_stop(&commit->objects->keeper);
    if (status == SIDESTEP_OK)
        sweep_replaced(commit);
    else /* another owner may read what was replaced */
        object_sweep_save(commit->dir, commit->save_id);
    return status;
}

static void objects_abort(struct commit *commit, const struct sidestep_error *why)
{
    struct object_client *client = object_commit_client(commit);
    char key[OBJECT_KEY_BYTES];

    object_keeper_stop(&commit->objects->keeper);
    object_save_key(commit, "outcome", key);
    /* Before the objects are deleted, so that a rank that misses them finds the reason. */
    if (commit->world_size > 1)
        (void)client->ops->put(client, key, why->message, strlen(why->message), NULL, NULL, NULL);
    object_sweep_save(commit->dir, commit->save_id);
}

/* ---- 7 learn */

static enum sidestep_status objects_check_aborted(struct commit *commit, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char key[OBJECT_KEY_BYTES];

    if (commit->world_size <= 1) /* only rank 0 puts one, for the others */
        return SIDESTEP_OK;
    object_save_key(commit, "outcome", key);
    if (read_reason(commit, key, &why) != SIDESTEP_OK)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED, "%s",
                why.message[0] != '\0' ? why.message : "rank 0 gave the save up");
}

/* What does .metadata say? UNDECIDED: it is what it was, or storage does not answer. */
static enum commit_outcome look_at_metadata(struct commit *commit)
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

/* The marker is gone: the save has ended, and .metadata says how. */
static enum commit_outcome decide(struct commit *commit, struct sidestep_error *err)
{
    uint64_t identity = 0;
    char tag[OBJECT_TAG_BYTES];

    if (object_read_identity(commit, &identity, tag, NULL, NULL) != SIDESTEP_OK)
        return COMMIT_UNDECIDED;
    enum commit_outcome outcome = commit_judge_identity(commit, identity, err);
    if (outcome == COMMIT_ABORTED && objects_check_aborted(commit, err) == SIDESTEP_OK)
        commit_report_given_up(commit, err);
    return outcome;
}

static enum commit_outcome objects_poll_outcome(struct commit *commit, struct sidestep_error *err)
{
    if (look_at_metadata(commit) == COMMIT_COMMITTED)
        return COMMIT_COMMITTED;
    if (objects_check_aborted(commit, err) != SIDESTEP_OK)
        return COMMIT_ABORTED;
    return objects_has_marker(commit) ? COMMIT_UNDECIDED : decide(commit, err);
}

static void objects_remove_outcome(struct commit *commit)
{
    struct object_client *client = object_commit_client(commit);
    char key[OBJECT_KEY_BYTES];
    const char *const keys[] = {key};

    if (commit->world_size <= 1 || commit->parent == NULL || commit->save_id[0] == '\0')
        return;
    object_save_key(commit, "outcome", key);
    (void)client->ops->delete_keys(client, keys, 1, NULL);
}

static void objects_close(struct commit *commit)
{
    if (commit->objects != NULL) {
        object_keeper_stop(&commit->objects->keeper);
        referenced_files_release(&commit->objects->old);
    }
    free(TAKE(commit->objects));
}

const struct commit_form commit_form_objects = {.begin = objects_begin,
                                                .try_join = objects_try_join,
                                                .shard_names = objects_shard_names,
                                                .seal = objects_seal,
                                                .vote_yes = objects_vote_yes,
                                                .vote_no = objects_vote_no,
                                                .retract = objects_retract,
                                                .count_votes = objects_count_votes,
                                                .read_failure = objects_read_failure,
                                                .has_marker = objects_has_marker,
                                                .publish = objects_publish,
                                                .abort = objects_abort,
                                                .check_aborted = objects_check_aborted,
                                                .poll_outcome = objects_poll_outcome,
                                                .remove_outcome = objects_remove_outcome,
                                                .close = objects_close};
