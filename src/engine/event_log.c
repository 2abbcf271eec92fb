/* SPDX-License-Identifier: BSD-3-Clause */
/* event_log.c -- appends events to files of bounded size beside the checkpoints; see event_log.h.
 */
#include "engine/event_log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "format/format.h"

#define RANK_0_BYTES (UINT64_C(4) << 20)
#define OTHERS_BYTES (UINT64_C(32) << 20) /* of all files of other ranks */
#define PROGRESS "progress"
#define LEAST_BYTES (UINT64_C(64) << 10)

/* "on-HOST", where HOST has only bytes that are harmless in a file name. */
static void name_of_host(char *name, size_t bytes)
{
    char host[64] = "";

    (void)gethostname(host, sizeof(host) - 1);
    for (char *at = host; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && *at != '-')
            *at = '_';
    snprintf(name, bytes, "events.on-%s", host);
}

/* -1: something else has the name, or it cannot be made. */
static int open_name(int dir, const char *name, int flags)
{
    struct stat stat;
    int fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);

    if (fd < 0 || (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_nlink == 1))
        return fd;
    (void)close(fd);
    return -1;
}

static int open_file(const struct event_log *log)
{
    return open_name(log->dir, log->name, O_WRONLY | O_CREAT | O_APPEND);
}

/* Has a kill cut the last line? */
static bool ends_torn(const struct event_log *log)
{
    struct stat stat;
    char last = '\n';
    int fd = open_name(log->dir, log->name, O_RDONLY);

    if (fd >= 0 && fstat(fd, &stat) == 0 && stat.st_size > 0)
        (void)!pread(fd, &last, 1, stat.st_size - 1);
    if (fd >= 0)
        (void)close(fd);
    return last != '\n';
}

static int open_series_dir(const char *root)
{
    int at = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int dir =
        at >= 0 ? openat(at, FILE_NAME_SERIES_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
                : -1;

    if (at >= 0)
        (void)close(at);
    return dir;
}

/* As commit_open() makes the path of a save. */
static char *make_absolute(const char *root)
{
    char cwd[PATH_MAX] = "", path[2 * PATH_MAX];

    if (root[0] != '/' && getcwd(cwd, sizeof(cwd)) == NULL)
        return NULL;
    snprintf(path, sizeof(path), "%s%s%s", cwd, root[0] != '/' && strcmp(cwd, "/") != 0 ? "/" : "",
             root);
    return memory_strdup(path);
}

struct event_log *event_log_open(const char *root, const char *mirror, uint64_t incarnation,
                                 int32_t rank, int32_t ranks)
{
    struct event_log *log = memory_new(1, sizeof(*log));

    if (log == NULL)
        return NULL;
    *log = (struct event_log){.incarnation = incarnation, .dir = -1, .fd = -1, .progress = -1};
    log->limit = rank == 0
                     ? RANK_0_BYTES
                     : min_u64(max_u64(OTHERS_BYTES / (uint64_t)ranks, LEAST_BYTES), RANK_0_BYTES);
    if (rank == 0)
        snprintf(log->name, sizeof(log->name), "events.rank-0");
    else
        name_of_host(log->name, sizeof(log->name));
    log->root = memory_strdup(root);
    log->absolute = make_absolute(root);
    log->mirror = mirror != NULL ? memory_strdup(mirror) : NULL;
    log->dir = log->root != NULL && log->absolute != NULL ? open_series_dir(root) : -1;
    log->fd = log->dir >= 0 ? open_file(log) : -1;
    log->is_torn = log->fd >= 0 && ends_torn(log);
    if (log->fd >= 0)
        return log;
    event_log_close(log);
    return NULL;
}

void event_log_close(struct event_log *log)
{
    if (log == NULL)
        return;
    if (log->fd >= 0)
        (void)close(log->fd);
    if (log->progress >= 0)
        (void)close(log->progress);
    if (log->dir >= 0)
        (void)close(log->dir);
    free(log->absolute);
    free(log->mirror);
    free(log->root);
    free(log);
}

static bool is_still_named(const struct event_log *log, const struct stat *mine)
{
    struct stat named;

    return fstatat(log->dir, log->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == mine->st_dev && named.st_ino == mine->st_ino;
}

/* Begin a new file if this one is too large.  Another rank of this host may have done so already.
 * False: it stays too large, and gets no more lines. */
static bool make_room(struct event_log *log)
{
    struct stat mine;
    char old[sizeof(log->name) + sizeof(".old")];

    if (fstat(log->fd, &mine) != 0 || (uint64_t)mine.st_size < log->limit)
        return true;
    if (flock(log->fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK; /* another rank is about to do it */
    snprintf(old, sizeof(old), "%s.old", log->name);
    if (is_still_named(log, &mine) && renameat(log->dir, log->name, log->dir, old) != 0) {
        (void)flock(log->fd, LOCK_UN);
        return false;
    }
    (void)close(log->fd);
    log->fd = open_file(log);
    return log->fd >= 0;
}

void event_log_write(struct event_log *log, const char *line)
{
    if (log->fd < 0 || !make_room(log))
        return;
    /* One write, so that lines of several ranks do not mix. */
    struct iovec parts[] = {
        {(void *)"\n", log->is_torn ? 1 : 0}, {(void *)line, strlen(line)}, {(void *)"\n", 1}};
    ssize_t wanted = (ssize_t)(parts[0].iov_len + parts[1].iov_len + 1);
    ssize_t written = writev(log->fd, parts, 3);
    if (written > 0)
        log->is_torn = written < wanted;
}

void event_log_keep_progress(struct event_log *log, const char *text)
{
    if (log->progress < 0)
        log->progress = open_name(log->dir, PROGRESS, O_WRONLY | O_CREAT);
    ssize_t ignored = log->progress >= 0 ? pwrite(log->progress, text, strlen(text), 0) : 0;
    (void)ignored;
}

bool event_log_read_progress(const char *root, char text[EVENT_LOG_PROGRESS_BYTES])
{
    int dir = open_series_dir(root), fd = dir >= 0 ? open_name(dir, PROGRESS, O_RDONLY) : -1;
    ssize_t length = fd >= 0 ? pread(fd, text, EVENT_LOG_PROGRESS_BYTES - 1, 0) : -1;

    if (fd >= 0)
        (void)close(fd);
    if (dir >= 0)
        (void)close(dir);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool is_in(const char *path, const char *root)
{
    size_t length = strlen(root);

    return strncmp(path, root, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

bool event_log_covers(const struct event_log *log, const char *path)
{
    return is_in(path, log->root) || is_in(path, log->absolute) ||
           (log->mirror != NULL && is_in(path, log->mirror));
}
