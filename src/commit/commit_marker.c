/* SPDX-License-Identifier: BSD-3-Clause */
/* commit_marker.c -- see commit_marker.h. */
#include "commit/commit_marker.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "commit/commit.h"
#include "commit/lock_file.h"
#include "commit/small_file.h"

#define MARK_MAX_BYTES 4096u
#define MARK_START "target "

static enum sidestep_status write_mark(struct store_file *file, const struct commit *commit,
                                       struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    buffer_printf(&text, MARK_START "%s\nowner %ld\nhost %s\nrun %s\nstep %lld\n", commit->name,
                  (long)getpid(), host, commit->run_id, (long long)commit->step);
    TRY(buffer_check(&text, err));
    return store_file_write_at(file, text.bytes, text.length, 0, err);
}

enum sidestep_status commit_marker_create(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    enum sidestep_status status =
        lock_file_create(commit, commit->dir, name, LOCK_FILE_NEW, &commit->mark, err);
    if (status != SIDESTEP_EUNSUPPORTED)
        TRY(status);
    return write_mark(commit->mark, commit, err);
}

enum sidestep_status commit_marker_link(struct commit *commit, struct store_dir *dir,
                                        const char *name)
{
    char mark[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, mark);
    return store_link(commit->dir, mark, dir, name, NULL);
}

bool commit_has_marker(const struct commit *commit, struct store_dir *dir)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    return store_stat(dir, name, &stat, NULL) != SIDESTEP_ENOTFOUND;
}

/* The rest of the line that starts with "${key} ", cut to fit. */
static void mark_field(const char *text, const char *key, char *out, size_t out_bytes)
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

enum sidestep_status commit_marker_read(struct store_file *file, struct commit_marker *mark,
                                        struct sidestep_error *err)
{
    char text[MARK_MAX_BYTES + 1] = "", step[24];
    struct store_stat stat;

    *mark = (struct commit_marker){.step = -1};
    TRY(store_file_stat(file, &stat, err));
    if (stat.size > MARK_MAX_BYTES)
        return SIDESTEP_OK;
    if (stat.size != 0)
        TRY(store_file_read_at(file, text, stat.size, 0, err));
    mark_field(text, "target", mark->target, sizeof(mark->target));
    mark_field(text, "owner", mark->owner, sizeof(mark->owner));
    mark_field(text, "host", mark->host, sizeof(mark->host));
    mark_field(text, "run", mark->run_id, sizeof(mark->run_id));
    mark_field(text, "step", step, sizeof(step));
    mark->step = file_name_parse_number(step, step + strspn(step, "0123456789"));
    return SIDESTEP_OK;
}

bool commit_marker_is_elsewhere(struct store_dir *dir, const struct commit_marker *mark)
{
    char host[sizeof(mark->host)] = "";
    struct store_traits traits;

    if (store_dir_traits(dir, &traits, NULL) != SIDESTEP_OK)
        return true;
    (void)gethostname(host, sizeof(host) - 1);
    return traits.is_network && strcmp(host, mark->host) != 0;
}

enum sidestep_status commit_read_reason(struct store_dir *dir, const char *name,
                                        struct sidestep_error *reason, struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    reason->message[0] = '\0';
    TRY(small_file_read(dir, name, 0, sizeof(reason->message) - 1, &text, err));
    /* A link to the mark, or a part that was renamed, says no more than its name does. */
    bool is_mark = text.length >= strlen(MARK_START) &&
                   memcmp(text.bytes, MARK_START, strlen(MARK_START)) == 0;
    if (text.length != 0 && !is_mark && memchr(text.bytes, '\0', text.length) == NULL)
        snprintf(reason->message, sizeof(reason->message), "%.*s", (int)text.length,
                 (const char *)text.bytes);
    return SIDESTEP_OK;
}
