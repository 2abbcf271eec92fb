/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * event_log.h -- reads the events that a series keeps in ROOT/.sidestep (docs/SERIES-REFERENCE.md).
 *
 * The files are not trusted: what is no line of JSON with an event, a time and a rank is passed
 * over, and so is what is no regular file.
 */
#ifndef CLI_EVENT_LOG_H
#define CLI_EVENT_LOG_H

#include "cli.h"

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

struct cli_event {
    double time; /* seconds since 1970 */
    int64_t rank;
    const char *kind;
    const char *path;   /* NULL: none */
    int64_t step;       /* -1: none */
    const json_t *line; /* with all fields */
    const char *text;   /* the same, in ASCII */
};

/** A file, by its inode: one that was renamed is the same. */
struct cli_event_file {
    dev_t device;
    ino_t inode;
    off_t read; /* bytes */
};

struct cli_event_log {
    const char *root;
    struct cli_event_file *files;
    size_t file_count;
    struct cli_event *events; /* in the order of time */
    size_t count;
};

/** cli_event_log_next(log, err): replace the events of ${log}, which begins with its root alone, by
 * those that were written since the last call; at first by all.  ENOTFOUND: no events are kept
 * there.  EUNSUPPORTED: it is a bucket. */
enum sidestep_status cli_event_log_next(struct cli_event_log *log, struct sidestep_error *err);
void cli_event_log_release(struct cli_event_log *log);

/** cli_event_number(event, key): a field; -1 if it is no number, or is negative. */
double cli_event_number(const struct cli_event *event, const char *key);
/** cli_event_string(event, key): a field; NULL if it is no string. */
const char *cli_event_string(const struct cli_event *event, const char *key);

#endif
