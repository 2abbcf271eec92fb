/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_path.h -- verifying one checkpoint, with progress, until somebody interrupts. */
#ifndef CLI_VERIFY_PATH_H
#define CLI_VERIFY_PATH_H

#include "cli.h"

/** cli_check_watch_interrupts(): the first SIGINT or SIGTERM stops cli_check(), a second one the
 * process. */
void cli_check_watch_interrupts(void);

/** cli_check_interrupted(): did one come? */
bool cli_check_interrupted(void);

/** cli_check_cancel(): what becomes true then, for options of the library. */
const bool volatile *cli_check_cancel(void);

/** cli_check(cli, path, threads, report, err): sidestep_verify(); SIDESTEP_ECANCELLED if it was
 * interrupted. */
enum sidestep_status cli_check(const struct cli *cli, const char *path, unsigned long threads,
                               struct sidestep_verify_report *report, struct sidestep_error *err);

/** cli_check_is_gone(path): has it been deleted, so that what was found wrong with it is no damage?
 */
bool cli_check_is_gone(const char *path);

#endif
