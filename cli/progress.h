/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress.h -- shows the progress of a long command on standard error: on a terminal a line that
 * is redrawn at most ten times a second, otherwise a new line every ten seconds.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli.h"

#include <stdatomic.h>
#include <stdint.h>

struct cli_progress {
    const char *label; /* this and the next two are constant from begin to end */
    bool enabled;
    bool terminal;
    int64_t begun_ns;

    struct {
        atomic_flag busy; /* set by the thread that draws, which alone uses the next two */
        int64_t drawn_ns;
        bool line_open; /* a line is drawn, and the cursor is behind it */
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
