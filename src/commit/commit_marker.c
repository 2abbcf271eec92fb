/* SPDX-License-Identifier: BSD-3-Clause */
/* commit_marker.c -- writes and reads pending markers; see commit_marker.h. */
#include "commit/commit_marker.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "commit/commit.h"
#include "commit/lock_file.h"
#include "commit/small_file.h"

#define MARKER_MAX_BYTES 4096u
#define MARKER_START "target "

static enum sidestep_status write_marker(struct store_file *file, const struct commit *commit,
                                         struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    buffer_printf(&text, MARKER_START "%s\nowner %ld\nhost %s\nrun %s\nstep %lld\n", commit->name,
                  (long)getpid(), host, commit->request.run_id, (long long)commit->request.step);
    if (commit->request.resumes)
        buffer_printf(&text, "resumable yes\n");
    TRY(buffer_check(&text, err));
    return store_file_write_at(file, text.bytes, text.length, 0, err);
}

enum sidestep_status commit_marker_create(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit) && commit->dir != NULL && commit->files.marker == NULL);
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    enum sidestep_status status =
        lock_file_create(commit, commit->dir, name, LOCK_FILE_NEW, &commit->files.marker, err);
    if (status != SIDESTEP_EUNSUPPORTED)
        TRY(status);
    return write_marker(commit->files.marker, commit, err);
}

enum sidestep_status commit_marker_adopt(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit) && commit->dir != NULL && commit->files.marker == NULL);
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    enum sidestep_status status =
        lock_file_create(commit, commit->dir, name, LOCK_FILE_SHARED, &commit->files.marker, err);
    if (status == SIDESTEP_EUNSUPPORTED)
        return FAIL(err, SIDESTEP_ELOCKED,
                    "this storage has no locks, so nobody can tell whether another process still "
                    "writes to it");
    TRY(status);
    TRY(store_file_truncate(commit->files.marker, 0, err));
    return write_marker(commit->files.marker, commit, err);
}

enum sidestep_status commit_marker_link(struct commit *commit, struct store_dir *dir,
                                        const char *name)
{
    char marker[FILE_NAME_BYTES];

    assert(commit->dir != NULL && dir != NULL);
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, marker);
    return store_link(commit->dir, marker, dir, name, NULL);
}

bool commit_has_marker(const struct commit *commit, struct store_dir *dir)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    return store_stat(dir, name, &stat, NULL) != SIDESTEP_ENOTFOUND;
}

/* Copy the rest of the line that starts with "${key} ", cut to ${out_bytes}. */
static void read_field(const char *text, const char *key, char *out, size_t out_bytes)
{
    size_t key_length = strlen(key);

    out[0] = '\0';
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        if (length > key_length && strncmp(line, key, key_length) == 0 && line[key_length] == ' ')
            snprintf(out, out_bytes, "%.*s", (int)(length - key_length - 1), line + key_length + 1);
        line = end != NULL ? end + 1 : NULL;
    }
}

enum sidestep_status commit_marker_read(struct store_file *file, struct commit_marker *marker,
                                        struct sidestep_error *err)
{
    char text[MARKER_MAX_BYTES + 1] = "", step[24], resumable[8];
    struct store_stat stat;

    *marker = (struct commit_marker){.step = -1};
    TRY(store_file_stat(file, &stat, err));
    if (stat.size > MARKER_MAX_BYTES)
        return SIDESTEP_OK;
    if (stat.size != 0)
        TRY(store_file_read_at(file, text, stat.size, 0, err));
    read_field(text, "target", marker->target, sizeof(marker->target));
    read_field(text, "owner", marker->owner, sizeof(marker->owner));
    read_field(text, "host", marker->host, sizeof(marker->host));
    read_field(text, "run", marker->run_id, sizeof(marker->run_id));
    read_field(text, "step", step, sizeof(step));
    read_field(text, "resumable", resumable, sizeof(resumable));
    marker->is_resumable = strcmp(resumable, "yes") == 0;
    marker->step = file_name_parse_number(step, step + strspn(step, "0123456789"));
    return SIDESTEP_OK;
}

bool commit_marker_is_elsewhere(struct store_dir *dir, const struct commit_marker *marker)
{
    char host[sizeof(marker->host)] = "";
    struct store_traits traits;

    if (store_dir_traits(dir, &traits, NULL) != SIDESTEP_OK)
        return true;
    (void)gethostname(host, sizeof(host) - 1);
    return traits.is_network && strcmp(host, marker->host) != 0;
}

enum sidestep_status commit_read_reason(struct store_dir *dir, const char *name,
                                        struct sidestep_error *reason, struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    reason->message[0] = '\0';
    TRY(small_file_read(dir, name, 0, sizeof(reason->message) - 1, &text, err));
    /* A link to the marker, or a shard that was renamed, holds no reason. */
    bool is_marker = text.length >= strlen(MARKER_START) &&
                     memcmp(text.bytes, MARKER_START, strlen(MARKER_START)) == 0;
    if (text.length != 0 && !is_marker && memchr(text.bytes, '\0', text.length) == NULL)
        snprintf(reason->message, sizeof(reason->message), "%.*s", (int)text.length,
                 (const char *)text.bytes);
    return SIDESTEP_OK;
}
