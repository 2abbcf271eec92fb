/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress.h -- how far a long command is, on standard error: a line redrawn at most ten times
 * a second on a terminal, else a new line every ten seconds.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli.h"

#include <pthread.h>
#include <stdint.h>

struct cli_progress {
    const char *label; /* constant from begin to end, as is ... */
    bool enabled;      /* ... this ... */
    bool terminal;     /* ... and this */
    int64_t begun_ns;

    struct {
        pthread_mutex_t lock;
        int64_t drawn_ns;
        bool line_open; /* the terminal's cursor stands behind a drawn line */
    } shared;
};

/** cli_progress_begin(progress, cli, label): draws nothing yet.  ${label} must outlive it. */
void cli_progress_begin(struct cli_progress *progress, const struct cli *cli, const char *label);
/** cli_progress_update(progress, done, total): from any thread; ${progress} is void so that this
 * can be sidestep_verify_options.on_progress. */
void cli_progress_update(void *progress, uint64_t done_bytes, uint64_t total_bytes);
/** cli_progress_end(progress): clear the line.  No thread may be in cli_progress_update(). */
void cli_progress_end(struct cli_progress *progress);

#endif
