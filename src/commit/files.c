/* SPDX-License-Identifier: BSD-3-Clause */
/* files.c -- small files as a whole: metadata, manifests, marks. */
#include "commit/commit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "base/source.h"

#define MARK_MAX_BYTES 4096u

enum sidestep_status commit_read_file(struct store_dir *dir, const char *name, uint32_t flags,
                                      uint64_t max, struct buffer *out, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    struct store_stat stat;

    TRY(store_file_open(dir, name, flags, &file, err));
    TRY(store_file_stat(file, &stat, err));
    if (stat.size > max)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' has %llu bytes, more than the limit of %llu",
                    name, (unsigned long long)stat.size, (unsigned long long)max);
    uint8_t *to = buffer_extend(out, stat.size);
    TRY(buffer_check(out, err));
    return stat.size != 0 ? store_file_read_at(file, to, stat.size, 0, err) : SIDESTEP_OK;
}

enum sidestep_status commit_write_file(struct store_dir *dir, const char *name, const void *bytes,
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

struct source commit_file_source(struct store_file *file, uint64_t length)
{
    return (struct source){.length = length, .read_at = source_file_read_at, .context = file};
}

enum sidestep_status commit_mark_write(struct store_file *file, const struct commit *commit,
                                       struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    buffer_printf(&text, "target %s\nowner %ld\nhost %s\nrun %s\n", commit->name, (long)getpid(),
                  host, commit->run_id);
    TRY(buffer_check(&text, err));
    return store_file_write_at(file, text.bytes, text.length, 0, err);
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

enum sidestep_status commit_mark_read(struct store_file *file, struct commit_mark *mark,
                                      struct sidestep_error *err)
{
    char text[MARK_MAX_BYTES + 1] = "";
    struct store_stat stat;

    memset(mark, 0, sizeof(*mark));
    TRY(store_file_stat(file, &stat, err));
    if (stat.size > MARK_MAX_BYTES)
        return SIDESTEP_OK;
    if (stat.size != 0)
        TRY(store_file_read_at(file, text, stat.size, 0, err));
    mark_field(text, "target", mark->target, sizeof(mark->target));
    mark_field(text, "owner", mark->owner, sizeof(mark->owner));
    mark_field(text, "host", mark->host, sizeof(mark->host));
    mark_field(text, "run", mark->run_id, sizeof(mark->run_id));
    return SIDESTEP_OK;
}
