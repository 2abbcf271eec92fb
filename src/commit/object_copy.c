/* SPDX-License-Identifier: BSD-3-Clause */
/* object_copy.c -- begins and publishes the copy of a checkpoint; see object_copy.h. */
#include "commit/object_copy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/name_list.h"
#include "commit/object_form.h"

/* ---- begin */

static bool has_own_key(const char *name)
{
    return file_name_parse(name).save_id[0] != '\0';
}

/* May another checkpoint have a file with the same key as one of these? */
static bool has_shared_keys(const struct object_copied *copied)
{
    for (size_t i = 0; i < copied->count; i++)
        if (!has_own_key(copied->names[i]))
            return true;
    return false;
}

static enum sidestep_status check_replaceable(const struct commit *commit,
                                              const struct object_copied *copied,
                                              enum sidestep_status was_read,
                                              struct sidestep_error *err)
{
    const struct commit_objects *objects = commit->objects;
    bool has_save_id =
        copied->manifest->length != 0; /* otherwise others may have the same .metadata */

    assert(objects->identity != 0);
    if (commit->previous == 0 || (commit->previous == objects->identity && has_save_id))
        return SIDESTEP_OK;
    if (!copied->replace)
        return FAIL(err, SIDESTEP_EEXISTS, "'%s' holds another checkpoint", commit->path);
    for (size_t i = 0; i < copied->count; i++)
        if (!has_own_key(copied->names[i]) &&
            (was_read != SIDESTEP_OK ||
             hash_table_find(&objects->old.files, copied->names[i]) != SIZE_MAX))
            return FAIL(err, SIDESTEP_EEXISTS,
                        "'%s' holds another checkpoint, whose file '%s' would be lost before this "
                        "one is whole; copy to another name, or delete that one first",
                        commit->path, copied->names[i]);
    return SIDESTEP_OK;
}

/* Is what is there the one that alone may be replaced? The put of .metadata depends on what is
 * there now. */
static enum sidestep_status check_replaced(const struct commit *commit,
                                           const struct object_copied *copied,
                                           struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    if (commit->previous == 0 || copied->replaces == NULL)
        return SIDESTEP_OK;
    file_name_format(FILE_NAME_MANIFEST, copied->replaces, 0, 0, name);
    enum sidestep_status status = store_stat(commit->dir, name, &stat, err);
    if (status != SIDESTEP_ENOTFOUND)
        return status;
    return FAIL(err, SIDESTEP_EEXISTS,
                "'%s' is not replaced: it holds another checkpoint than save %s by now",
                commit->path, copied->replaces);
}

/* Put the marker, and find out whether the store obeys conditions. Another copy of the checkpoint
 * may have put it, and still need it: that one this copy only renews. */
static enum sidestep_status put_marker(struct commit *commit, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    const struct object_condition absent = {.if_absent = true};
    char text[512], key[OBJECT_KEY_BYTES];
    size_t length;
    uint64_t number;

    assert(commit->dir != NULL && commit->save_id[0] != '\0');
    TRY(random_bytes(&number, sizeof(number), err));
    object_describe_marker(commit, text, sizeof(text));
    length = strlen(text); /* the number makes its tag one of its own */
    snprintf(text + length, sizeof(text) - length, "copy %016llx\n", (unsigned long long)number);
    object_save_key(commit, "pending", key);
    bool was_there = object_has_marker(commit);
    if (was_there || client->ops->put(client, key, text, strlen(text), &absent,
                                      commit->objects->marker_tag, NULL) != SIDESTEP_OK) {
        commit->objects->marker_tag[0] = '\0';
        TRY(client->ops->put(client, key, text, strlen(text), NULL, NULL, err));
    }
    commit->objects->is_conditional = object_keeps_conditions(commit, key, text);
    return object_keeper_start(client, key, text, commit->clock, &commit->objects->keeper, err);
}

/* Delete the marker that this copy made, unless another copy of the checkpoint has renewed it. */
static void take_marker_back(struct commit *commit)
{
    struct object_client *client = object_commit_client(commit);
    const char *tag = commit->objects->marker_tag;
    struct object_info info;
    char key[OBJECT_KEY_BYTES];

    object_keeper_stop(&commit->objects->keeper);
    object_save_key(commit, "pending", key);
    /* Some stores ignore the condition of a deletion. */
    if (tag[0] != '\0' && client->ops->head(client, key, &info, NULL) == SIDESTEP_OK &&
        strcmp(info.tag, tag) == 0)
        (void)client->ops->delete_version(client, key, tag, NULL);
}

/* A search for markers of others. */
struct others {
    size_t prefix_length;
    const char *own; /* "<save id>/pending" */
    bool found;
};

static bool look_for_other(void *context, const struct object_info *info)
{
    struct others *others = context;
    const char *name = info->key + others->prefix_length;

    if (file_name_has_suffix(name, "/pending") && strcmp(name, others->own) != 0 &&
        (info->now == 0 || info->now - info->modified <= OBJECT_DEAD_SECONDS))
        others->found = true;
    return !others->found;
}

static enum sidestep_status check_alone(struct commit *commit, struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    char prefix[OBJECT_KEY_BYTES], own[SAVE_ID_HEX + sizeof("/pending")];

    assert(commit->objects->keeper != NULL); /* of two copies, each sees the marker of the other */
    object_key(commit, OBJECT_SAVES_DIR, prefix);
    snprintf(own, sizeof(own), "%s/pending", commit->save_id);
    struct others others = {.prefix_length = strlen(prefix), .own = own};
    TRY(client->ops->list(client, prefix, 0, NULL, 0, look_for_other, &others, err));
    if (!others.found)
        return SIDESTEP_OK;
    take_marker_back(commit);
    return FAIL(err, SIDESTEP_ELOCKED,
                "another process writes a checkpoint to '%s', or was killed there less than an "
                "hour ago; wait, or copy to another name",
                commit->path);
}

enum sidestep_status object_copy_begin(struct commit *commit, const char *url,
                                       const uint8_t id[SAVE_ID_BYTES],
                                       const struct object_copied *copied,
                                       struct sidestep_error *err)
{
    enum sidestep_status was_read = SIDESTEP_OK;
    struct commit_objects *objects;

    TRY(commit_open(commit, url, err));
    commit_set_save_id(commit, id);
    objects = commit->objects;
    TRY(store_dir_open(commit->store, commit->parent, commit->name, &commit->dir, err));
    TRY(store_dir_stat(commit->dir, &commit->dir_identity, err));
    TRY(object_identify(copied->metadata, &objects->identity, NULL, err));
    TRY(object_read_identity(commit, &commit->previous, objects->tag, NULL, err));
    if (commit->previous != 0)
        was_read = referenced_files_read(commit->dir, FILE_NAME_METADATA, &objects->old);
    TRY(check_replaceable(commit, copied, was_read, err));
    TRY(check_replaced(commit, copied, err));
    TRY(put_marker(commit, err));
    return has_shared_keys(copied) ? check_alone(commit, err) : SIDESTEP_OK;
}

/* ---- publish */

/* The objects that are there: which files of the copy, and what else. */
struct survey {
    const struct commit *commit;
    const struct object_copied *copied;
    struct hash_table numbers; /* of the files, by name */
    size_t prefix_length;
    size_t found;
    struct name_list outdated; /* files of the replaced checkpoint only */
    enum sidestep_status status;
};

static void release_survey(struct survey *survey)
{
    hash_table_release(&survey->numbers);
    name_list_release(&survey->outdated);
}

static bool look_at_key(void *context, const struct object_info *info)
{
    struct survey *survey = context;
    const char *name = info->key + survey->prefix_length;
    size_t i = hash_table_find(&survey->numbers, name);

    if (i != SIZE_MAX)
        survey->found += info->bytes == survey->copied->sizes[i];
    else if (hash_table_find(&survey->commit->objects->old.files, name) != SIZE_MAX)
        survey->status = name_list_add(&survey->outdated, info->key, NULL);
    return survey->status == SIDESTEP_OK;
}

static enum sidestep_status take_survey(struct commit *commit, struct survey *survey,
                                        struct sidestep_error *err)
{
    struct object_client *client = object_commit_client(commit);
    char prefix[OBJECT_KEY_BYTES];
    size_t existing;

    for (size_t i = 0; i < survey->copied->count; i++)
        TRY(hash_table_insert(&survey->numbers, survey->copied->names[i], i, &existing, err));
    object_key(commit, "", prefix);
    survey->prefix_length = strlen(prefix);
    TRY(client->ops->list(client, prefix, 0, NULL, 0, look_at_key, survey, err));
    if (survey->status != SIDESTEP_OK)
        return FAIL_NOMEM(err, sizeof(char *));
    if (survey->found == survey->copied->count)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED,
                "%zu of %zu files that were put to '%s' are gone or were replaced by another "
                "process; nothing was committed, copy again",
                survey->copied->count - survey->found, survey->copied->count, commit->path);
}

/* Delete the files that only the replaced checkpoint references. Best effort. */
static void delete_outdated(struct commit *commit, const struct survey *survey)
{
    struct object_client *client = object_commit_client(commit);
    const struct name_list *keys = &survey->outdated;

    for (size_t i = 0; i < keys->count; i += OBJECT_MAX_LISTED)
        (void)client->ops->delete_keys(client, (const char *const *)keys->names + i,
                                       min_u64(keys->count - i, OBJECT_MAX_LISTED), NULL);
    object_sweep_committed(commit->dir, &commit->objects->old, commit->save_id);
}

enum sidestep_status object_copy_publish(struct commit *commit, const struct object_copied *copied,
                                         struct sidestep_error *err)
{
    OWNED_BY(release_survey) struct survey survey = {.commit = commit, .copied = copied};
    enum commit_outcome outcome = COMMIT_ABORTED;

    assert(commit->objects->keeper != NULL);
    TRY(take_survey(commit, &survey, err));
    TRY(object_put_record(commit, FILE_NAME_INDEX, copied->index, err));
    TRY(object_put_record(commit, FILE_NAME_MANIFEST, copied->manifest, err));
    TRY(object_check_lease(commit, err));
    TRY(object_commit_metadata(commit, copied->metadata, &outcome, err));
    object_keeper_stop(&commit->objects->keeper);
    delete_outdated(commit, &survey);
    return SIDESTEP_OK;
}

void object_copy_end(struct commit *commit)
{
    commit_close(commit);
}
