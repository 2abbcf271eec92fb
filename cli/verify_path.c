/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_path.c -- verifies one checkpoint, until it is interrupted; see verify_path.h. */
#include "verify_path.h"

#include "progress.h"

#include <signal.h>

/* A signal handler has no context, so this is global. */
static volatile bool interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = true;
}

void cli_interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};

    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL); /* from schedulers, and timeout(1) */
}

bool cli_interrupt_received(void)
{
    return interrupted;
}

const bool volatile *cli_interrupt_flag(void)
{
    return &interrupted;
}

enum sidestep_status cli_verify_path(const struct cli *cli, const char *path, unsigned long threads,
                                     struct sidestep_verify_report *report,
                                     struct sidestep_error *err)
{
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    struct cli_progress progress;
    enum sidestep_status status;

    cli_progress_begin(&progress, cli, path);
    options.threads = (uint32_t)threads;
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = &interrupted;
    status = sidestep_verify(path, &options, report, err);
    cli_progress_end(&progress);
    return status;
}
