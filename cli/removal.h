/* SPDX-License-Identifier: BSD-3-Clause */
/* removal.h -- what gc and prune share: ask where somebody can answer, remove, say what went. */
#ifndef CLI_REMOVAL_H
#define CLI_REMOVAL_H

#include "cli.h"

/** ${flags}: SIDESTEP_GC_DRY_RUN, or 0. */
typedef enum sidestep_status cli_remove(const struct cli *cli, uint32_t flags,
                                        struct sidestep_gc_report *report,
                                        struct sidestep_error *err);

/** Neither --yes nor --dry-run was given. */
bool cli_removing_must_ask(const struct cli *cli);
/** Is there somebody who can answer? */
bool cli_removing_can_ask(void);
/** cli_removing_run(cli, remove): the process's exit status. */
int cli_removing_run(const struct cli *cli, cli_remove *remove);

#endif
