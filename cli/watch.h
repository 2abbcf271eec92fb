/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h -- what the files watch*.c share: the saves that `sidestep watch` has seen. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "levels.h"

#include <stdint.h>

/** A save that was seen. */
struct cli_watched {
    char save_id[40];
    char *name; /* of the checkpoint, or where it is written; owned */
    int64_t step;
    uint64_t written;
    int64_t seen_ns;
    double rate;  /* bytes per second; < 0: not known yet */
    bool is_seen; /* the last look saw it */
    struct cli_watched *next;
};

/** A root that is watched, and what the last look has seen. */
struct cli_watch_root {
    const char *path;
    const char *level;        /* as in struct cli_level_row */
    struct cli_levels levels; /* of a root with a mirror, which is the next one */
    struct cli_watched *saves;
    struct sidestep_saving_list list;
    struct sidestep_list entries;       /* only if a save has disappeared */
    struct sidestep_error err;          /* why the last look failed; SIDESTEP_OK: it did not */
    enum sidestep_status unread_status; /* of a directory that the last look could not read */
    bool has_printed_none;
    bool has_looked;
    bool is_lost; /* it has a mirror, and was not there at any look */
};

struct cli_watch {
    const struct cli *cli;
    struct cli_watch_root roots[2 * CLI_MAX_GIVEN_OPERANDS];
    size_t root_count;
    bool draws; /* on a terminal: bars and ranks, over what was drawn before */
    bool is_json;
    int64_t interval_ns;
    size_t drawn_lines;
};

/** cli_watch_find(root, saving): what is known of a save; it is added if it is new. */
struct cli_watched *cli_watch_find(struct cli_watch_root *root,
                                   const struct sidestep_saving *saving);
/** cli_watch_total_bytes(saving): the final size: that of the files, once all ranks have made
 * theirs. */
uint64_t cli_watch_total_bytes(const struct sidestep_saving *saving);
/** cli_watch_time_left(w, saving): in seconds; < 0: unknown. */
double cli_watch_time_left(const struct cli_watched *w, const struct sidestep_saving *saving);

/** The outcome of a save that has disappeared. */
enum cli_watch_outcome { CLI_WATCH_COMMITTED, CLI_WATCH_ABORTED, CLI_WATCH_UNKNOWN };

/** cli_watch_outcome(w, root, found): ${*found}: its checkpoint, if it is committed. */
enum cli_watch_outcome cli_watch_outcome(const struct cli_watched *w,
                                         const struct sidestep_list *root,
                                         const struct sidestep_listed **found);

/** watch_text.c and watch_json.c: print a look at all roots. */
void cli_watch_print_text(struct cli_watch *watch);
void cli_watch_print_json(struct cli_watch *watch);

#endif
