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

static bool parse_rank(const char *digits, uint32_t *rank)
{
    int64_t number = file_name_parse_number(digits, strchr(digits, '\0'));

    if (number < 0 || number > UINT32_MAX || (digits[0] == '0' && digits[1] != '\0'))
        return false;
    *rank = (uint32_t)number;
    return true;
}

enum object_record object_record_parse(const char *name, uint32_t *rank)
{
    static const struct {
        const char *name;
        enum object_record record;
    } records[] = {
        {"pending", OBJECT_RECORD_MARKER},  {OBJECT_EXPORT_MARKER, OBJECT_RECORD_EXPORT},
        {"outcome", OBJECT_RECORD_OUTCOME}, {"yes.", OBJECT_RECORD_VOTE},
        {"failed.", OBJECT_RECORD_FAILURE}, {"alive.", OBJECT_RECORD_ALIVE},
    };

    *rank = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(records); i++) {
        size_t length = strlen(records[i].name);
        bool has_rank = records[i].name[length - 1] == '.';
        if (strncmp(name, records[i].name, length) == 0 &&
            (has_rank ? parse_rank(name + length, rank) : name[length] == '\0'))
            return records[i].record;
    }
    return OBJECT_RECORD_NONE;
}

enum object_record object_record_find(const char *name, char save_id[SAVE_ID_HEX])
{
    const char *id = name + strlen(OBJECT_SAVES_DIR);
    uint32_t rank;

    if (strncmp(name, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) != 0 ||
        strspn(id, "0123456789abcdef") != SAVE_ID_HEX - 1 || id[SAVE_ID_HEX - 1] != '/')
        return OBJECT_RECORD_NONE;
    enum object_record record = object_record_parse(id + SAVE_ID_HEX, &rank);
    if (record != OBJECT_RECORD_NONE)
        snprintf(save_id, SAVE_ID_HEX, "%.*s", (int)SAVE_ID_HEX - 1, id);
    return record;
}

struct object_client *object_commit_client(const struct commit *commit)
{
    assert(commit->store != NULL);
    return object_store_client(commit->store);
}

bool object_is_there(const struct commit *commit, const char *key)
{
    struct object_client *client = object_commit_client(commit);
    struct object_info info;

    return client->ops->head(client, key, &info, NULL) != SIDESTEP_ENOTFOUND;
}

bool object_has_marker(const struct commit *commit)
{
    char key[OBJECT_KEY_BYTES];

    object_save_key(commit, "pending", key);
    return object_is_there(commit, key);
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
