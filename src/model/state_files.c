/* SPDX-License-Identifier: BSD-3-Clause */
/* state_files.c -- the small files of a state dict, which a save writes beside the shards. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/display.h"
#include "model/state_dict.h"

#define FILE_FLAGS (SIDESTEP_FILE_FIRST_RANK | SIDESTEP_FILE_ALIAS | SIDESTEP_FILE_TAKE)

struct state_blob *state_blob_retain(struct state_blob *blob)
{
    if (blob != NULL)
        atomic_fetch_add(&blob->users, 1);
    return blob;
}

void state_blob_release(struct state_blob *blob)
{
    if (blob != NULL && atomic_fetch_sub(&blob->users, 1) == 1)
        free(blob);
}

static struct state_blob *new_blob(const void *bytes, size_t length)
{
    struct state_blob *blob = NULL;

    if (length < SIZE_MAX - sizeof(*blob))
        blob = memory_resize(NULL, sizeof(*blob) + length + 1, 1);
    if (blob == NULL)
        return NULL;
    atomic_init(&blob->users, 1);
    blob->is_path = false;
    blob->length = length;
    if (length != 0)
        memcpy(blob->bytes, bytes, length);
    blob->bytes[length] = 0;
    return blob;
}

static struct state_file *find_file(struct sidestep_state_dict *state, const char *name)
{
    for (size_t i = 0; i < state->file_count; i++)
        if (strcmp(state->files[i].name, name) == 0)
            return &state->files[i];
    return NULL;
}

static bool is_absolute_path(const char *path, size_t length)
{
    return length != 0 && path[0] == '/' && memchr(path, 0, length) == NULL;
}

static enum sidestep_status check_file(const struct sidestep_state_dict *state, const char *name,
                                       const void *bytes, size_t length, uint32_t flags,
                                       struct sidestep_error *err)
{
    if (state == NULL || name == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "the %s is NULL",
                    state == NULL ? "state dict" : "name of the file");
    if ((flags & ~FILE_FLAGS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "file '%s': unknown flags 0x%x",
                    display_name(name).text, flags & ~FILE_FLAGS);
    if (bytes == NULL && length != 0)
        return FAIL(err, SIDESTEP_EINVAL, "file '%s': %zu bytes at NULL", display_name(name).text,
                    length);
    if (length > SIDESTEP_MAX_FILE_BYTES)
        return FAIL(err, SIDESTEP_EINVAL, "file '%s': %zu bytes (at most %llu)",
                    display_name(name).text, length, (unsigned long long)SIDESTEP_MAX_FILE_BYTES);
    if ((flags & SIDESTEP_FILE_ALIAS) != 0 && length != 0)
        return FAIL(err, SIDESTEP_EINVAL, "file '%s' is an alias, and has %zu bytes",
                    display_name(name).text, length);
    if ((flags & SIDESTEP_FILE_TAKE) != 0 && !is_absolute_path(bytes, length))
        return FAIL(err, SIDESTEP_EINVAL, "file '%s' is to be taken, but not from an absolute path",
                    display_name(name).text);
    return SIDESTEP_OK;
}

/* Append a file without contents. */
static enum sidestep_status new_file(struct sidestep_state_dict *state, const char *name,
                                     struct state_file **out, struct sidestep_error *err)
{
    if (state->file_count == SIDESTEP_MAX_FILES)
        return FAIL(err, SIDESTEP_EINVAL, "file '%s': the state has %u files, which is the limit",
                    display_name(name).text, SIDESTEP_MAX_FILES);
    TRY_GROW(state->files, state->file_capacity, state->file_count, err);
    char *copy = memory_resize(NULL, strlen(name) + 1, 1);
    if (copy == NULL)
        return FAIL_NOMEM(err, strlen(name) + 1);
    memcpy(copy, name, strlen(name) + 1);
    *out = &state->files[state->file_count++];
    **out = (struct state_file){.name = copy};
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_state_dict_add_file(struct sidestep_state_dict *state,
                                                  const char *name, const void *bytes,
                                                  size_t length, uint32_t flags,
                                                  struct sidestep_error *err)
{
    struct state_blob *blob = NULL;
    struct state_file *file;

    TRY(check_file(state, name, bytes, length, flags, err));
    if ((flags & SIDESTEP_FILE_ALIAS) == 0 && (blob = new_blob(bytes, length)) == NULL)
        return FAIL_NOMEM(err, length);
    file = find_file(state, name);
    enum sidestep_status status = file != NULL ? SIDESTEP_OK : new_file(state, name, &file, err);
    if (status != SIDESTEP_OK) {
        state_blob_release(blob);
        return status;
    }
    if (blob != NULL)
        blob->is_path = (flags & SIDESTEP_FILE_TAKE) != 0;
    state_blob_release(file->blob);
    file->blob = blob;
    file->flags = flags;
    return SIDESTEP_OK;
}

void sidestep_state_dict_clear_files(struct sidestep_state_dict *state)
{
    for (size_t i = 0; state != NULL && i < state->file_count; i++) {
        state_blob_release(state->files[i].blob);
        free(state->files[i].name);
    }
    if (state != NULL)
        state->file_count = 0;
}
