/* SPDX-License-Identifier: BSD-3-Clause */
/* detach.h -- leaves a command in the background, until another process has ended. */
#ifndef CLI_DETACH_H
#define CLI_DETACH_H

#include "cli.h"

#include <sys/types.h>

/**
 * cli_detach_until_end(cli, pid, &is_child): returns twice, as fork() does.  In the child, which is
 * in a session of its own, when process ${pid} has ended, or when an interrupt was received (see
 * cli_interrupt_watch()); in the parent at once.  The child keeps only those of its outputs that
 * are files.  Returns 0; or, after an error was printed and without a child, the exit status.
 */
int cli_detach_until_end(const struct cli *cli, pid_t pid, bool *is_child);

#endif
