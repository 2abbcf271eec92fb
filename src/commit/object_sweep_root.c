/* SPDX-License-Identifier: BSD-3-Clause */
/* object_sweep_root.c -- sweeps all prefixes of a root on an object store that may need it; see
 * object_delete.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/name_list.h"
#include "commit/object_delete.h"
#include "commit/object_form.h"

#define MAX_KEYS                                                                                   \
    100000u /* of a root that are listed; a save sweeps its own prefix when it begins */

/* The names of a root, and which of them need a sweep. */
struct scan {
    size_t prefix_length;
    size_t keys;
    struct name_list doubtful;
    /* Of the current name: */
    char name[FILE_NAME_BYTES];
    bool has_metadata;
    bool has_saves;            /* objects below OBJECT_SAVES_DIR */
    char save_id[SAVE_ID_HEX]; /* of a shard or a manifest; "": none so far */
    bool has_several;          /* there are files of more than one save */
    enum sidestep_status status;
};

static void scan_release(struct scan *scan)
{
    name_list_release(&scan->doubtful);
}

static bool add_name(struct scan *scan, const char *name)
{
    for (size_t i = 0; i < scan->doubtful.count; i++)
        if (strcmp(scan->doubtful.names[i], name) == 0)
            return true;
    scan->status = name_list_add(&scan->doubtful, name, NULL);
    return scan->status == SIDESTEP_OK;
}

/* End the current name: it may need a sweep, unless all of it belongs to a whole checkpoint. */
static bool end_name(struct scan *scan)
{
    bool is_doubtful =
        scan->has_saves || scan->has_several || (scan->save_id[0] != '\0' && !scan->has_metadata);

    return scan->name[0] == '\0' || !is_doubtful || add_name(scan, scan->name);
}

/* The first component of a key. False: there is none, it is too long, or it is no checkpoint. */
static bool first_component(const char *key, char name[FILE_NAME_BYTES])
{
    size_t length = strcspn(key, "/");

    if (length == 0 || key[length] == '\0' || length >= FILE_NAME_BYTES)
        return false;
    memcpy(name, key, length);
    name[length] = '\0';
    return strcmp(name, FILE_NAME_SERIES_DIR) != 0 && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static void scan_name(struct scan *scan, const char *rest)
{
    struct file_name parsed = file_name_parse(rest);

    scan->has_metadata |= strcmp(rest, FILE_NAME_METADATA) == 0;
    scan->has_saves |= strncmp(rest, OBJECT_SAVES_DIR, strlen(OBJECT_SAVES_DIR)) == 0;
    if (parsed.kind == FILE_NAME_NONE || parsed.save_id[0] == '\0')
        return;
    scan->has_several |= scan->save_id[0] != '\0' && strcmp(scan->save_id, parsed.save_id) != 0;
    memcpy(scan->save_id, parsed.save_id, SAVE_ID_HEX);
}

static bool scan_key(void *context, const struct object_info *info)
{
    struct scan *scan = context;
    const char *key = info->key + scan->prefix_length;
    char name[FILE_NAME_BYTES];

    if (++scan->keys > MAX_KEYS)
        return false;
    if (!first_component(key, name))
        return true;
    if (strcmp(name, scan->name) != 0) {
        if (!end_name(scan))
            return false;
        memcpy(scan->name, name, sizeof(name));
        scan->has_metadata = scan->has_saves = scan->has_several = false;
        scan->save_id[0] = '\0';
    }
    scan_name(scan, key + strlen(name) + 1);
    return true;
}

static bool scan_upload(void *context, const struct object_info *info, const char *id UNUSED)
{
    struct scan *scan = context;
    char name[FILE_NAME_BYTES];

    return !first_component(info->key + scan->prefix_length, name) || add_name(scan, name);
}

static enum sidestep_status find_doubtful(struct store_dir *root, struct scan *scan,
                                          struct sidestep_error *err)
{
    struct object_client *client = object_store_client(root->store);
    const char *prefix = object_store_prefix(root);

    scan->prefix_length = strlen(prefix);
    TRY(client->ops->list(client, prefix, 0, NULL, 0, scan_key, scan, err));
    if (scan->status == SIDESTEP_OK)
        (void)end_name(scan);
    if (scan->status == SIDESTEP_OK) /* not all stores list uploads */
        (void)client->ops->upload_list(client, prefix, scan_upload, scan, NULL);
    return scan->status == SIDESTEP_OK ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(scan->name));
}

/* One name of a root, while it is swept. */
struct swept_name {
    struct sweep *sweep;
    const char *name;
};

static void report_removed(void *context, const char *key, uint64_t bytes)
{
    const struct swept_name *s = context;
    char path[FILE_NAME_BYTES + OBJECT_KEY_BYTES];

    if (s->sweep->removed == NULL)
        return;
    snprintf(path, sizeof(path), "%s/%s", s->name, key);
    s->sweep->removed(s->sweep->context, path, bytes);
}

static enum sidestep_status sweep_name(struct sweep *sweep, const char *name,
                                       struct sidestep_error *err)
{
    struct swept_name swept_name = {sweep, name};
    struct object_swept swept = {
        .dry_run = sweep->dry_run, .removed = report_removed, .context = &swept_name};
    OWNED_DIR *dir = NULL;

    assert(name[0] != '\0');
    TRY(store_dir_open(sweep->store, sweep->parent, name, &dir, err));
    object_sweep_dead_reported(dir, &swept);
    if (swept.is_young && sweep->kept != NULL)
        sweep->kept(sweep->context, name,
                    "a save to it is under way, or ended less than an hour ago");
    return SIDESTEP_OK;
}

enum sidestep_status object_sweep_root(struct sweep *sweep, struct sidestep_error *err)
{
    OWNED_BY(scan_release) struct scan scan = {0};

    TRY(find_doubtful(sweep->parent, &scan, err));
    for (size_t i = 0; i < scan.doubtful.count; i++)
        TRY(sweep_name(sweep, scan.doubtful.names[i], err));
    return SIDESTEP_OK;
}
