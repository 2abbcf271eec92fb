/* SPDX-License-Identifier: BSD-3-Clause */
/* object_keys.c -- makes the keys of a save, and reads its marker and its reasons; see
 * object_form.h. */
#include "commit/object_form.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

void object_key(const struct commit *commit, const char *name, char key[OBJECT_KEY_BYTES])
{
    int used = snprintf(key, OBJECT_KEY_BYTES, "%s%s/%s", object_store_prefix(commit->parent),
                        commit->name, name);

    assert(used > 0 && used < (int)OBJECT_KEY_BYTES); /* open_target() leaves room for it */
}

void object_save_key(const struct commit *commit, const char *name, char key[OBJECT_KEY_BYTES])
{
    int used = snprintf(key, OBJECT_KEY_BYTES, "%s%s/" OBJECT_SAVES_DIR "%s/%s",
                        object_store_prefix(commit->parent), commit->name, commit->save_id, name);

    assert(used > 0 && used < (int)OBJECT_KEY_BYTES && commit->save_id[0] != '\0');
}

void object_rank_key(const struct commit *commit, const char *kind, uint32_t rank,
                     char key[OBJECT_KEY_BYTES])
{
    char name[32];

    assert(rank < commit->world_size);
    snprintf(name, sizeof(name), "%s.%u", kind, rank);
    object_save_key(commit, name, key);
}

struct object_client *object_commit_client(const struct commit *commit)
{
    assert(commit->store != NULL);
    return object_store_client(commit->store);
}

static bool is_there(const struct commit *commit, const char *key)
{
    struct object_client *client = object_commit_client(commit);
    struct object_info info;

    return client->ops->head(client, key, &info, NULL) != SIDESTEP_ENOTFOUND;
}

bool object_has_marker(const struct commit *commit)
{
    char key[OBJECT_KEY_BYTES];

    object_save_key(commit, "pending", key);
    return is_there(commit, key);
}

enum sidestep_status object_read_reason(const struct commit *commit, const char *key,
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
