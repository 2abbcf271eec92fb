/* SPDX-License-Identifier: BSD-3-Clause */
/* completion.h -- completion scripts, made from the table of commands; one file per shell. */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "commands.h"

#include <stdio.h>

void cli_completion_bash(FILE *out);
void cli_completion_zsh(FILE *out);
void cli_completion_fish(FILE *out);

/* Print the names of the commands, with spaces between them. */
void cli_completion_commands(FILE *out);
void cli_completion_shells(FILE *out);
void cli_completion_choices(FILE *out, const struct cli_option *option);

/** cli_completion_short_text(out, text, special): print ${text} up to its first punctuation, to be
 * put in single quotes; characters in ${special} get a backslash. */
void cli_completion_short_text(FILE *out, const char *text, const char *special);

#endif
