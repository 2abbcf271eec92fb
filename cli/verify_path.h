/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_path.h -- verifies one checkpoint, with progress, until it is interrupted. */
#ifndef CLI_VERIFY_PATH_H
#define CLI_VERIFY_PATH_H

#include "cli.h"

/** cli_interrupt_watch(): make the first SIGINT or SIGTERM stop cli_verify_path(), and a second one
 * the process. */
void cli_interrupt_watch(void);

/** cli_interrupt_received(): was SIGINT or SIGTERM received? */
bool cli_interrupt_received(void);

/** cli_interrupt_flag(): a flag that such a signal sets, for options of the library. */
const bool volatile *cli_interrupt_flag(void);

/** cli_verify_path(cli, path, threads, report, err): sidestep_verify(); SIDESTEP_ECANCELLED if it
 * was interrupted. */
enum sidestep_status cli_verify_path(const struct cli *cli, const char *path, unsigned long threads,
                                     struct sidestep_verify_report *report,
                                     struct sidestep_error *err);

#endif
