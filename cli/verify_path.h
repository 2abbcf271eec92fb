/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_path.h -- verifying one checkpoint, with progress, until somebody interrupts. */
#ifndef CLI_VERIFY_PATH_H
#define CLI_VERIFY_PATH_H

#include "cli.h"

/** cli_interrupt_watch(): the first SIGINT or SIGTERM stops cli_verify_path(), a second one the
 * process. */
void cli_interrupt_watch(void);

/** cli_interrupt_received(): did one come? */
bool cli_interrupt_received(void);

/** cli_interrupt_flag(): what becomes true then, for options of the library. */
const bool volatile *cli_interrupt_flag(void);

/** cli_verify_path(cli, path, threads, report, err): sidestep_verify(); SIDESTEP_ECANCELLED if it
 * was interrupted. */
enum sidestep_status cli_verify_path(const struct cli *cli, const char *path, unsigned long threads,
                                     struct sidestep_verify_report *report,
                                     struct sidestep_error *err);

/** cli_verify_path_was_deleted(path): has it been deleted, so that what was found wrong with it is
 * no damage?
 */
bool cli_verify_path_was_deleted(const char *path);

#endif
