/* SPDX-License-Identifier: BSD-3-Clause */
/* no_checkpoint.h -- notes that there is no checkpoint in a root. */
#ifndef CLI_NO_CHECKPOINT_H
#define CLI_NO_CHECKPOINT_H

#include "cli.h"

/** cli_no_checkpoint_note(cli, root, more): note that ${root} contains no checkpoint, with ${more}
 * after it; or, because users confuse the two, that ${root} is a checkpoint itself. */
void cli_no_checkpoint_note(const struct cli *cli, const char *root, const char *more);

#endif
