/* SPDX-License-Identifier: BSD-3-Clause */
/* help.h -- help and man pages, made from the table of commands. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli.h"

/** cli_help_print(out, command, roff, color): one command; NULL ${command}: the overview. */
void cli_help_print(FILE *out, const struct cli_command *command, bool roff, bool color);

#endif
