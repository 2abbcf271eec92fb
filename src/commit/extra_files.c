/* SPDX-License-Identifier: BSD-3-Clause */
/* extra_files.c -- writes, collects and publishes extra files; see extra_files.h. */
#include "commit/extra_files.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/extra_paths.h"
#include "commit/small_file.h"

static void written_name(const char *save_id, const struct extra_file *file,
                         char name[FILE_NAME_BYTES])
{
    file_name_format(FILE_NAME_EXTRA, save_id, file->rank, file->number, name);
}

void commit_extra_name(struct commit *commit, uint32_t number, char name[FILE_NAME_BYTES])
{
    assert(commit->dir != NULL);
    if (commit->extras <= number)
        commit->extras = number + 1;
    file_name_format(FILE_NAME_EXTRA, commit->save_id, commit->rank, number, name);
}

enum sidestep_status commit_extra_write(struct commit *commit, uint32_t number, const void *bytes,
                                        size_t length, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    commit_extra_name(commit, number, name);
    return small_file_write(commit->dir, name, bytes, length, err);
}

/* ---- collect */

void extra_merge_release(struct extra_merge *merge)
{
    hash_table_release(&merge->exact);
    extra_file_names_release(&merge->names);
}

static bool is_equal(const struct extra_file *a, const struct extra_file *b)
{
    return a->is_alias == b->is_alias && a->bytes == b->bytes &&
           memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0;
}

static enum sidestep_status add_row(struct extra_merge *merge, struct commit_contents *contents,
                                    const struct extra_file *file, struct sidestep_error *err)
{
    struct manifest *manifest = &contents->manifest;
    size_t existing;

    if (manifest->extra_count == EXTRA_FILE_MAX_COUNT)
        return FAIL(err, SIDESTEP_EINVAL, "the ranks have more than %zu files",
                    EXTRA_FILE_MAX_COUNT);
    TRY(extra_file_names_add(&merge->names, file, SIDESTEP_EINVAL, err));
    TRY_RESERVE(&contents->arena, manifest->extras, merge->capacity, manifest->extra_count + 1,
                err);
    struct extra_file *row = &manifest->extras[manifest->extra_count];
    *row = *file;
    TRY(arena_copy_text(&contents->arena, file->name, &row->name, err));
    return hash_table_insert(&merge->exact, row->name, manifest->extra_count++, &existing, err);
}

static enum sidestep_status add_file(struct extra_merge *merge, struct commit_contents *contents,
                                     const struct extra_file *file, struct sidestep_error *err)
{
    size_t at = hash_table_find(&merge->exact, file->name);

    if (at == SIZE_MAX)
        return add_row(merge, contents, file, err);
    const struct extra_file *row = &contents->manifest.extras[at];
    if (!is_equal(row, file) && !(row->first_rank && file->first_rank))
        return FAIL(err, SIDESTEP_EDISAGREE,
                    "ranks %u and %u have different files of the name '%s': give them names of "
                    "their own, or save one of them",
                    row->rank, file->rank, file->name);
    TRY_RESERVE(&contents->arena, contents->dropped, contents->dropped_capacity,
                contents->dropped_count + 1, err);
    contents->dropped[contents->dropped_count++] = *file;
    return SIDESTEP_OK;
}

enum sidestep_status extra_merge_add(struct extra_merge *merge, struct commit_contents *contents,
                                     const struct footer *footer, struct sidestep_error *err)
{
    for (size_t i = 0; i < footer->extra_count; i++)
        TRY(add_file(merge, contents, &footer->extras[i], err));
    return SIDESTEP_OK;
}

enum sidestep_status extra_files_check(struct commit *commit, const struct extra_file *files,
                                       size_t count, struct sidestep_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct extra_file *file = &files[i];
        char name[FILE_NAME_BYTES];
        struct store_stat stat;
        if (file->is_alias)
            continue;
        written_name(commit->save_id, file, name);
        TRY(WRAP(store_stat(commit->dir, name, &stat, err), err, "file '%s'", file->name));
        if (stat.kind != STORE_FILE || stat.size != file->bytes)
            return FAIL(err, SIDESTEP_ECORRUPT, "file '%s': '%s' has %llu bytes instead of %llu",
                        file->name, name, (unsigned long long)stat.size,
                        (unsigned long long)file->bytes);
    }
    return SIDESTEP_OK;
}

/* ---- publish */

enum sidestep_status extra_files_keep_names(const char *save_id, struct commit_contents *contents,
                                            struct sidestep_error *err)
{
    for (size_t i = 0; i < contents->manifest.extra_count; i++) {
        struct extra_file *file = &contents->manifest.extras[i];
        char name[FILE_NAME_BYTES];
        if (file->is_alias)
            continue;
        written_name(save_id, file, name);
        TRY(arena_copy_text(&contents->arena, name, &file->stored, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status extra_files_drop(struct commit *commit, const struct commit_contents *contents,
                                      struct sidestep_error *err)
{
    for (size_t i = 0; i < contents->dropped_count; i++) {
        char name[FILE_NAME_BYTES];
        if (contents->dropped[i].is_alias)
            continue;
        written_name(commit->save_id, &contents->dropped[i], name);
        enum sidestep_status status = store_unlink(commit->dir, name, err);
        if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
            return status;
    }
    return SIDESTEP_OK;
}

/* Rename the file; if an answer was lost, it may have its name already (I7). */
static enum sidestep_status place(struct commit *commit, const struct extra_file *file,
                                  struct store_dir *into, const char *last,
                                  struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    written_name(commit->save_id, file, name);
    enum sidestep_status status = store_rename_new(commit->dir, name, into, last, err);
    if (status != SIDESTEP_OK && store_stat(into, last, &stat, NULL) == SIDESTEP_OK &&
        stat.kind == STORE_FILE && stat.size == file->bytes)
        return SIDESTEP_OK; /* nobody else makes names in the saving directory */
    return status;
}

enum sidestep_status extra_files_place(struct commit *commit, struct commit_contents *contents,
                                       struct sidestep_error *err)
{
    assert(!commit->files.in_place && commit_is_coordinator(commit));
    for (size_t i = 0; i < contents->manifest.extra_count; i++) {
        const struct extra_file *file = &contents->manifest.extras[i];
        OWNED_DIR *owned = NULL;
        struct store_dir *into;
        const char *last;
        TRY(extra_path_open(commit->dir, file->name, true, &owned, &into, &last, err));
        if (file->is_alias)
            (void)store_link_here(into, last, NULL); /* not each storage has such links */
        else
            TRY(WRAP(place(commit, file, into, last, err), err, "file '%s'", file->name));
    }
    return extra_path_sync_all(commit->dir, &contents->manifest, err);
}

enum sidestep_status extra_files_move(struct commit *commit, struct store_dir *into,
                                      struct commit_contents *contents, struct sidestep_error *err)
{
    for (size_t i = 0; i < contents->manifest.extra_count; i++) {
        const struct extra_file *file = &contents->manifest.extras[i];
        char name[FILE_NAME_BYTES];
        OWNED_DIR *owned = NULL;
        struct store_dir *from;
        const char *last;
        if (file->is_alias)
            continue;
        written_name(commit->save_id, file, name);
        TRY(extra_path_open(commit->dir, file->name, false, &owned, &from, &last, err));
        TRY(store_rename_new(from, last, into, name, err));
    }
    return SIDESTEP_OK;
}

void extra_files_link(struct store_dir *dir, const struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->extra_count; i++) {
        const struct extra_file *file = &manifest->extras[i];
        OWNED_DIR *owned = NULL;
        struct store_dir *into;
        const char *last;
        if (file->stored == NULL && !file->is_alias)
            continue;
        if (extra_path_open(dir, file->name, true, &owned, &into, &last, NULL) != SIDESTEP_OK)
            continue; /* a file of another owner has the name of its directory */
        if (file->is_alias)
            (void)store_link_here(into, last, NULL);
        else
            (void)store_link(dir, file->stored, into, last, NULL); /* fails if the name exists */
    }
}
