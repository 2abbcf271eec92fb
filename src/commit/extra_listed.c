/* SPDX-License-Identifier: BSD-3-Clause */
/* extra_listed.c -- finds and removes the extra files of a checkpoint; see extra_files.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "commit/extra_files.h"
#include "commit/extra_paths.h"
#include "commit/small_file.h"

/* Does ${status} say that nothing of ours is there? After other errors nobody knows. */
static bool is_answer(enum sidestep_status status)
{
    return status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT ||
           status == SIDESTEP_EUNSAFE || status == SIDESTEP_EUNSUPPORTED;
}

/* Does ${last} in ${parent} have the bytes that ${file} had? */
static enum sidestep_status compare_bytes(const struct extra_file *file, struct store_dir *parent,
                                          const char *last, bool *is_same)
{
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t length;

    TRY(small_file_hash(parent, last, 0, file->bytes, &length, sha256, NULL, NULL));
    *is_same = length == file->bytes && memcmp(sha256, file->sha256, sizeof(sha256)) == 0;
    return SIDESTEP_OK;
}

/* Is the file ${last} in ${parent} the one that ${file} describes? A link to a stored file is told
 * by its inode. A file under its own name is told by its bytes: somebody may have replaced it. */
static enum sidestep_status compare(struct store_dir *dir, const struct extra_file *file,
                                    struct store_dir *parent, const char *last,
                                    struct store_stat *stat, bool *is_same)
{
    struct store_stat stored;

    *is_same = false;
    TRY(store_stat(parent, last, stat, NULL));
    if (file->is_alias)
        *is_same = stat->kind == STORE_HERE;
    if (file->is_alias || stat->kind != STORE_FILE || stat->size != file->bytes)
        return SIDESTEP_OK;
    if (file->stored == NULL)
        return compare_bytes(file, parent, last, is_same);
    TRY(store_stat(dir, file->stored, &stored, NULL));
    *is_same = stored.inode == stat->inode && stored.device == stat->device;
    return SIDESTEP_OK;
}

static bool is_ours(struct store_dir *dir, const struct extra_file *file, struct store_dir *parent,
                    const char *last, struct store_stat *stat)
{
    bool is_same;

    return compare(dir, file, parent, last, stat, &is_same) == SIDESTEP_OK && is_same;
}

/* Remove one file, as extra_files_unlink() does. */
static enum sidestep_status unlink_one(struct store_dir *dir, const struct extra_file *file,
                                       uint64_t *bytes, size_t *unlinked)
{
    OWNED_DIR *owned = NULL;
    struct store_dir *parent;
    struct store_stat stat;
    const char *last;
    bool is_same;

    TRY(extra_path_open(dir, file->name, false, &owned, &parent, &last, NULL));
    enum sidestep_status status = compare(dir, file, parent, last, &stat, &is_same);
    if (status == SIDESTEP_OK && is_same) {
        TRY(store_unlink(parent, last, NULL));
        *unlinked += 1;
        if (bytes != NULL && stat.kind == STORE_FILE && stat.links <= 1)
            *bytes += stat.size;
    }
    extra_path_remove_empty(dir, file->name);
    return status;
}

enum sidestep_status extra_files_unlink(struct store_dir *dir, const struct manifest *manifest,
                                        const struct hash_table *keep, uint64_t *bytes,
                                        size_t *unlinked)
{
    enum sidestep_status first = SIDESTEP_OK;

    if (manifest->extra_count == 0)
        return SIDESTEP_OK;
    for (size_t i = 0; i < manifest->extra_count; i++) {
        if (keep != NULL && hash_table_find(keep, manifest->extras[i].name) != SIZE_MAX)
            continue;
        enum sidestep_status status = unlink_one(dir, &manifest->extras[i], bytes, unlinked);
        if (first == SIDESTEP_OK && status != SIDESTEP_OK && !is_answer(status))
            first = status;
    }
    TRY(first);
    TRY(extra_path_sync_all(dir, manifest, NULL));
    return store_dir_sync(dir, NULL);
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
    hash_table_release(&listed->names);
    arena_release(&listed->arena);
}

static size_t first_row(const struct extra_listed *listed, const char *path)
{
    return hash_table_find(&listed->names, path);
}

static enum sidestep_status add_row(struct extra_listed *listed, const char *name,
                                    const struct extra_file *file)
{
    size_t at = listed->row_count, first;

    TRY_RESERVE(&listed->arena, listed->rows, listed->row_capacity, at + 1, NULL);
    TRY(hash_table_insert(&listed->names, name, at, &first, NULL));
    listed->rows[at] = (struct extra_row){file, SIZE_MAX};
    if (first != SIZE_MAX) {
        listed->rows[at].next = listed->rows[first].next;
        listed->rows[first].next = at;
    }
    listed->row_count++;
    return SIDESTEP_OK;
}

/* Add a file, and those of its directories that are not known yet. */
static enum sidestep_status add_names(struct extra_listed *listed, const struct extra_file *file)
{
    TRY(add_row(listed, file->name, file));
    for (const char *slash = strchr(file->name, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        const char *directory =
            arena_strndup(&listed->arena, file->name, (size_t)(slash - file->name));
        if (directory == NULL)
            return SIDESTEP_ENOMEM;
        bool is_known = false;
        for (size_t i = first_row(listed, directory); i != SIZE_MAX; i = listed->rows[i].next)
            is_known |= listed->rows[i].file == NULL;
        if (!is_known)
            TRY(add_row(listed, directory, NULL));
    }
    return SIDESTEP_OK;
}

enum sidestep_status extra_listed_read(struct store_dir *dir, const struct name_list *names,
                                       struct extra_listed *listed)
{
    for (size_t i = 0; i < names->count; i++) {
        OWNED_BUFFER bytes = {0};
        if (file_name_parse(names->names[i]).kind != FILE_NAME_MANIFEST)
            continue;
        enum sidestep_status status =
            small_file_read(dir, names->names[i], 0, MANIFEST_MAX_BYTES, &bytes, NULL);
        if (status != SIDESTEP_OK && !is_answer(status))
            return status;
        if (status != SIDESTEP_OK)
            continue;
        TRY_RESERVE(&listed->arena, listed->manifests, listed->capacity, listed->count + 1, NULL);
        const struct manifest *manifest = &listed->manifests[listed->count];
        if (manifest_decode(bytes.bytes, bytes.length, &listed->arena,
                            &listed->manifests[listed->count], NULL) != SIDESTEP_OK)
            continue;
        listed->count++;
        for (size_t k = 0; k < manifest->extra_count; k++)
            TRY(add_names(listed, &manifest->extras[k]));
    }
    return SIDESTEP_OK;
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
    bool is_directory = false;

    if (strlen(look->path) + strlen(name) > EXTRA_FILE_MAX_NAME_BYTES)
        return false;
    snprintf(path, sizeof(path), "%s%s", look->path, name);
    for (size_t i = first_row(look->listed, path); i != SIZE_MAX; i = look->listed->rows[i].next) {
        const struct extra_file *file = look->listed->rows[i].file;
        if (file != NULL && is_ours(look->top, file, look->dir, name, &stat))
            return true;
        is_directory |= file == NULL;
    }
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
