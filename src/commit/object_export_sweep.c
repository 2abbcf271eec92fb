/* SPDX-License-Identifier: BSD-3-Clause */
/* object_export_sweep.c -- recognizes and aborts exports for a sweep; see object_export.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/object_export.h"
#include "commit/small_file.h"

bool object_export_parse(const char *name, char id[SAVE_ID_HEX])
{
    const char *dot = strchr(name, '.');

    if (strncmp(name, "model-", 6) != 0 || !file_name_has_suffix(name, ".safetensors") ||
        strspn(dot + 1, "0123456789abcdef") != SAVE_ID_HEX - 1 || dot[SAVE_ID_HEX] != '.')
        return false;
    memcpy(id, dot + 1, SAVE_ID_HEX - 1);
    id[SAVE_ID_HEX - 1] = '\0';
    return true;
}

enum sidestep_status object_export_read_index(struct store_dir *dir, struct referenced_files *named)
{
    struct safetensors_index_entry *places = NULL;
    OWNED_BUFFER text = {0};
    size_t count = 0, existing;

    enum sidestep_status status =
        small_file_read(dir, SAFETENSORS_INDEX_NAME, 0, SAFETENSORS_MAX_INDEX_BYTES, &text, NULL);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    TRY(status);
    buffer_put(&text, "", 1);
    TRY(buffer_check(&text, NULL));
    TRY(safetensors_index_read((char *)text.bytes, &named->arena, &places, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        const char *name = arena_strndup(&named->arena, places[i].file, strlen(places[i].file));
        if (name == NULL)
            return SIDESTEP_ENOMEM;
        TRY(hash_table_insert(&named->files, name, i, &existing, NULL));
    }
    return SIDESTEP_OK;
}

/* A search for uploads of heads. */
struct heads {
    struct object_client *client;
    const char *prefix; /* of the directory */
    bool dry_run;
    void (*each)(void *context, const char *name);
    void *context;
};

static bool abort_head(void *context, const struct object_info *info, const char *upload_id)
{
    const struct heads *heads = context;
    size_t length = strlen(heads->prefix);
    bool is_file = strlen(info->key) == length - 1; /* the prefix without its slash */
    bool is_in_directory = strncmp(info->key, heads->prefix, length) == 0 &&
                           strcmp(info->key + length, "model.safetensors") == 0;

    if ((!is_file && !is_in_directory) || info->now == 0 ||
        info->now - info->modified <= OBJECT_DEAD_SECONDS)
        return true;
    if (heads->dry_run ||
        heads->client->ops->upload_abort(heads->client, info->key, upload_id, NULL) == SIDESTEP_OK)
        heads->each(heads->context, is_file ? "" : "model.safetensors");
    return true;
}

void object_export_abort_heads(struct store_dir *dir, bool dry_run,
                               void (*each)(void *context, const char *name), void *context)
{
    struct heads heads = {object_store_client(dir->store), object_store_prefix(dir), dry_run, each,
                          context};
    char prefix[OBJECT_KEY_BYTES];

    assert(heads.prefix[0] != '\0');
    snprintf(prefix, sizeof(prefix), "%.*s", (int)strlen(heads.prefix) - 1, heads.prefix);
    (void)heads.client->ops->upload_list(heads.client, prefix, abort_head, &heads, NULL);
}
