/* SPDX-License-Identifier: BSD-3-Clause */
/* small_file.c -- small files as a whole: metadata, manifests, marks. */
#include "commit/commit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "base/source.h"
#include "commit/lock_file.h"

#define MARK_MAX_BYTES 4096u
#define MARK_START "target "

static enum sidestep_status open_file(struct store_dir *dir, const char *name, uint32_t flags,
                                      uint64_t max, struct store_file **file, uint64_t *length,
                                      struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(store_file_open(dir, name, flags, file, err));
    TRY(store_file_stat(*file, &stat, err));
    if (stat.size > max)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' has %llu bytes, more than the limit of %llu",
                    name, (unsigned long long)stat.size, (unsigned long long)max);
    *length = stat.size;
    return SIDESTEP_OK;
}

enum sidestep_status small_file_read(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, struct buffer *out, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    uint64_t length;

    TRY(open_file(dir, name, flags, max, &file, &length, err));
    uint8_t *to = buffer_extend(out, length);
    TRY(buffer_check(out, err));
    return length != 0 ? store_file_read_at(file, to, length, 0, err) : SIDESTEP_OK;
}

enum sidestep_status small_file_hash(struct store_dir *dir, const char *name, uint32_t flags,
                                     uint64_t max, uint64_t *length,
                                     uint8_t sha256[HASH_SHA256_BYTES], struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    TRY(open_file(dir, name, flags, max, &file, length, err));
    struct source source = small_file_source(file, *length);
    return hash_sha256_source(&source, sha256, err);
}

enum sidestep_status small_file_write(struct store_dir *dir, const char *name, const void *bytes,
                                      size_t length, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    TRY(store_file_create(dir, name, 0, &file, err));
    TRY(store_file_write_at(file, bytes, length, 0, err));
    TRY(store_file_sync(file, err));
    return store_file_close(TAKE(file), err);
}

static enum sidestep_status source_file_read_at(const struct source *source, void *to, size_t bytes,
                                                uint64_t offset, struct sidestep_error *err)
{
    return store_file_read_at((struct store_file *)source->context, to, bytes, offset, err);
}

struct source small_file_source(struct store_file *file, uint64_t length)
{
    return (struct source){.length = length, .read_at = source_file_read_at, .context = file};
}

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
