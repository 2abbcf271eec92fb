/* SPDX-License-Identifier: BSD-3-Clause */
/* event_log.c -- reads the events that a series keeps; see event_log.h. */
#include "event_log.h"

#include "memory.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_READ ((off_t)64 << 20) /* of one file, at once */

static void forget_events(struct cli_event_log *log)
{
    for (size_t i = 0; i < log->count; i++) {
        json_decref((json_t *)log->events[i].line);
        free((char *)log->events[i].text);
    }
    free(log->events);
    log->events = NULL;
    log->count = 0;
}

void cli_event_log_release(struct cli_event_log *log)
{
    forget_events(log);
    free(log->files);
    log->files = NULL;
    log->file_count = 0;
}

double cli_event_number(const struct cli_event *event, const char *key)
{
    const json_t *value = json_object_get(event->line, key);

    return json_is_number(value) && json_number_value(value) >= 0 ? json_number_value(value) : -1;
}

const char *cli_event_string(const struct cli_event *event, const char *key)
{
    return json_string_value(json_object_get(event->line, key));
}

static void add_line(struct cli_event_log *log, const char *text, size_t length)
{
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    struct cli_event event = {.line = line};
    const json_t *rank = json_object_get(line, "rank"), *step = json_object_get(line, "step");

    event.kind = cli_event_string(&event, "event");
    event.path = cli_event_string(&event, "path");
    event.time = cli_event_number(&event, "time");
    event.rank = json_integer_value(rank);
    event.step = json_is_integer(step) ? json_integer_value(step) : -1;
    if (event.kind == NULL || event.time < 0 || event.time > 1e11 || !json_is_integer(rank)) {
        json_decref(line);
        return;
    }
    event.text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER);
    if (event.text == NULL)
        cli_memory_exhausted();
    log->events = cli_memory_resize(log->events, log->count + 1, sizeof(*log->events));
    log->events[log->count++] = event;
}

/* Returns how many bytes of ${text} are whole lines. */
static size_t add_lines(struct cli_event_log *log, const char *text, size_t length)
{
    size_t used = 0;
    const char *end;

    while ((end = memchr(text + used, '\n', length - used)) != NULL) {
        size_t line = (size_t)(end - text) - used;
        if (line != 0)
            add_line(log, text + used, line);
        used += line + 1;
    }
    return used;
}

static struct cli_event_file *find_file(struct cli_event_log *log, const struct stat *stat)
{
    for (size_t i = 0; i < log->file_count; i++)
        if (log->files[i].device == stat->st_dev && log->files[i].inode == stat->st_ino)
            return &log->files[i];
    log->files = cli_memory_resize(log->files, log->file_count + 1, sizeof(*log->files));
    struct cli_event_file *file = &log->files[log->file_count++];
    *file = (struct cli_event_file){.device = stat->st_dev, .inode = stat->st_ino};
    return file;
}

static void read_rest(struct cli_event_log *log, int fd)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        return;
    struct cli_event_file *file = find_file(log, &stat);
    if (stat.st_size < file->read)
        file->read = 0; /* another file with this inode */
    off_t left = stat.st_size - file->read < MAX_READ ? stat.st_size - file->read : MAX_READ;
    if (left == 0)
        return;
    char *text = cli_memory_alloc((size_t)left);
    ssize_t length = pread(fd, text, (size_t)left, file->read);
    if (length > 0) {
        size_t used = add_lines(log, text, (size_t)length);
        file->read += used == 0 && length == MAX_READ ? length : (off_t)used;
    }
    free(text);
}

static int compare(const void *a, const void *b)
{
    const struct cli_event *x = a, *y = b;

    return x->time < y->time ? -1 : x->time > y->time;
}

static enum sidestep_status fail(const struct cli_event_log *log, int number,
                                 struct sidestep_error *err)
{
    if (number == ENOENT)
        return cli_error_set(err, SIDESTEP_ENOTFOUND,
                             "no events are kept in '%s': a series keeps them in .sidestep/, from "
                             "its first opening on",
                             log->root);
    err->sys_errno = number;
    return cli_error_set(err, number == EACCES ? SIDESTEP_EPERM : SIDESTEP_EIO,
                         "read the events in '%s': %s", log->root, strerror(number));
}

enum sidestep_status cli_event_log_next(struct cli_event_log *log, struct sidestep_error *err)
{
    bool found = false;
    char *path = NULL;

    forget_events(log);
    if (sidestep_check_path(log->root, err) != SIDESTEP_OK)
        return (enum sidestep_status)err->status;
    if (strncmp(log->root, "s3://", strlen("s3://")) == 0)
        return cli_error_set(err, SIDESTEP_EUNSUPPORTED,
                             "'%s' is in an object store, where a series keeps no events; let the "
                             "job write them to a file: SIDESTEP_EVENTS=FILE",
                             log->root);
    if (asprintf(&path, "%s/.sidestep", log->root) < 0)
        cli_memory_exhausted();
    DIR *dir = opendir(path);
    int number = errno;
    free(path);
    if (dir == NULL)
        return fail(log, number, err);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "events.", strlen("events.")) != 0)
            continue;
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            continue;
        found = true;
        read_rest(log, fd);
        (void)close(fd);
    }
    (void)closedir(dir);
    if (!found)
        return fail(log, ENOENT, err);
    if (log->count != 0)
        qsort(log->events, log->count, sizeof(*log->events), compare);
    return SIDESTEP_OK;
}
