/* SPDX-License-Identifier: BSD-3-Clause */
/* extra_listed.c -- finds and removes the extra files of a checkpoint; see extra_files.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/extra_files.h"
#include "commit/extra_paths.h"
#include "commit/small_file.h"

/* Does ${last} in ${parent} have the bytes that ${file} had? */
static bool has_same_bytes(const struct extra_file *file, struct store_dir *parent,
                           const char *last)
{
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t length;

    return small_file_hash(parent, last, 0, file->bytes, &length, sha256, NULL) == SIDESTEP_OK &&
           length == file->bytes && memcmp(sha256, file->sha256, sizeof(sha256)) == 0;
}

/* Is the file ${last} in ${parent} the one that ${file} describes? A link to a stored file is told
 * by its inode. A file under its own name is told by its bytes: somebody may have replaced it. */
static bool is_ours(struct store_dir *dir, const struct extra_file *file, struct store_dir *parent,
                    const char *last, struct store_stat *stat)
{
    struct store_stat stored;

    if (store_stat(parent, last, stat, NULL) != SIDESTEP_OK)
        return false;
    if (file->is_alias)
        return stat->kind == STORE_HERE;
    if (stat->kind != STORE_FILE || stat->size != file->bytes)
        return false;
    if (file->stored == NULL)
        return has_same_bytes(file, parent, last);
    return store_stat(dir, file->stored, &stored, NULL) == SIDESTEP_OK &&
           stored.inode == stat->inode && stored.device == stat->device;
}

/* Remove one file, as extra_files_unlink() does. */
static void unlink_one(struct store_dir *dir, const struct extra_file *file, uint64_t *bytes,
                       size_t *unlinked)
{
    OWNED_DIR *owned = NULL;
    struct store_dir *parent;
    struct store_stat stat;
    const char *last;

    if (extra_path_open(dir, file->name, false, &owned, &parent, &last, NULL) != SIDESTEP_OK)
        return;
    if (is_ours(dir, file, parent, last, &stat) &&
        store_unlink(parent, last, NULL) == SIDESTEP_OK) {
        *unlinked += 1;
        if (bytes != NULL && stat.kind == STORE_FILE && stat.links <= 1)
            *bytes += stat.size;
    }
    extra_path_remove_empty(dir, file->name);
}

void extra_files_unlink(struct store_dir *dir, const struct manifest *manifest,
                        const struct hash_table *keep, uint64_t *bytes, size_t *unlinked)
{
    for (size_t i = 0; i < manifest->extra_count; i++)
        if (keep == NULL || hash_table_find(keep, manifest->extras[i].name) == SIZE_MAX)
            unlink_one(dir, &manifest->extras[i], bytes, unlinked);
    (void)extra_path_sync_all(dir, manifest, NULL);
    if (manifest->extra_count != 0)
        (void)store_dir_sync(dir, NULL);
}

bool extra_files_is_linked(struct store_dir *dir, const struct extra_file *file)
{
    struct store_stat stat;

    return file->stored != NULL && is_ours(dir, file, dir, file->name, &stat);
}

uint64_t extra_files_bytes(const struct manifest *manifest)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < manifest->extra_count; i++)
        if (manifest->extras[i].stored == NULL)
            bytes += manifest->extras[i].bytes;
    return bytes;
}

/* ---- which names in a directory are extra files */

void extra_listed_release(struct extra_listed *listed)
{
    arena_release(&listed->arena);
}

enum sidestep_status extra_listed_read(struct store_dir *dir, const struct name_list *names,
                                       struct extra_listed *listed)
{
    for (size_t i = 0; i < names->count; i++) {
        OWNED_BUFFER bytes = {0};
        if (file_name_parse(names->names[i]).kind != FILE_NAME_MANIFEST ||
            small_file_read(dir, names->names[i], 0, MANIFEST_MAX_BYTES, &bytes, NULL) !=
                SIDESTEP_OK)
            continue;
        TRY_RESERVE(&listed->arena, listed->manifests, listed->capacity, listed->count + 1, NULL);
        if (manifest_decode(bytes.bytes, bytes.length, &listed->arena,
                            &listed->manifests[listed->count], NULL) == SIDESTEP_OK)
            listed->count++;
    }
    return SIDESTEP_OK;
}

/* The listed file ${path}; NULL: there is none. ${*is_directory}: ${path} is a directory of one. */
static const struct extra_file *find(const struct extra_listed *listed, const char *path,
                                     bool *is_directory)
{
    size_t length = strlen(path);

    *is_directory = false;
    for (size_t m = 0; m < listed->count; m++)
        for (size_t i = 0; i < listed->manifests[m].extra_count; i++) {
            const struct extra_file *file = &listed->manifests[m].extras[i];
            if (strcmp(file->name, path) == 0)
                return file;
            *is_directory |= strncmp(file->name, path, length) == 0 && file->name[length] == '/';
        }
    return NULL;
}

/* A directory whose names are looked at. */
struct look {
    struct store_dir *top;
    const struct extra_listed *listed;
    struct store_dir *dir;
    const char *path; /* of ${dir} below ${top}, with a slash at the end; "": ${top} itself */
    bool all_owned;
};

static bool owns(const struct look *look, const char *name);

static bool look_at(void *context, const char *name)
{
    struct look *look = context;

    look->all_owned = owns(look, name);
    return look->all_owned;
}

static bool owns(const struct look *look, const char *name)
{
    char path[EXTRA_FILE_MAX_NAME_BYTES + 2]; /* with a slash */
    OWNED_DIR *dir = NULL;
    struct store_stat stat;
    bool is_directory;

    if (strlen(look->path) + strlen(name) > EXTRA_FILE_MAX_NAME_BYTES)
        return false;
    snprintf(path, sizeof(path), "%s%s", look->path, name);
    const struct extra_file *file = find(look->listed, path, &is_directory);
    if (file != NULL)
        return is_ours(look->top, file, look->dir, name, &stat);
    if (!is_directory ||
        store_dir_open(look->dir->store, look->dir, name, &dir, NULL) != SIDESTEP_OK)
        return false;
    /* A listed name is longer, so the depth has a limit. */
    snprintf(path, sizeof(path), "%s%s/", look->path, name);
    struct look inner = {look->top, look->listed, dir, path, true};
    return store_dir_list(dir, look_at, &inner, NULL) == SIDESTEP_OK && inner.all_owned;
}

bool extra_listed_owns(struct store_dir *dir, const struct extra_listed *listed, const char *name)
{
    const struct look look = {dir, listed, dir, "", true};

    return owns(&look, name);
}
