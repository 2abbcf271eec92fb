/* SPDX-License-Identifier: BSD-3-Clause */
/* removal.h -- what gc and prune share: ask on a terminal, remove, print what was removed. */
#ifndef CLI_REMOVAL_H
#define CLI_REMOVAL_H

#include "cli.h"

/** ${flags}: SIDESTEP_GC_DRY_RUN, or 0. */
typedef enum sidestep_status cli_removal_function(const struct cli *cli, const char *place,
                                                  uint32_t flags, struct sidestep_gc_report *report,
                                                  struct sidestep_error *err);

/** Neither --yes nor --dry-run was given. */
bool cli_removal_needs_confirmation(const struct cli *cli);
/** Is there a terminal, and so somebody who can answer? */
bool cli_removal_is_interactive(void);
/** cli_removal_run(cli, remove): remove at the operand; with --mirror also at its mirror, and
 * nothing before it is known what would be removed at both.  Returns the process's exit status. */
int cli_removal_run(const struct cli *cli, cli_removal_function *remove);

#endif
