/* SPDX-License-Identifier: BSD-3-Clause */
/* no_checkpoint.h -- says that there is no checkpoint in a root. */
#ifndef CLI_NO_CHECKPOINT_H
#define CLI_NO_CHECKPOINT_H

#include "cli.h"

/** cli_no_checkpoint_note(cli, root, more): note that there is none in ${root}; or, what is easily
 * mistaken, that ${root} is one.  ${more} follows the first. */
void cli_no_checkpoint_note(const struct cli *cli, const char *root, const char *more);

#endif
