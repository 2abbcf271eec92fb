/* SPDX-License-Identifier: BSD-3-Clause */
/* arguments.h -- parses argv into struct cli, by the table of commands. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include "cli.h"

/**
 * cli_arguments_parse(cli, argc, argv, err): fill ${cli} from the arguments.  Options may be before
 * or after the command and between operands; "--" ends them.  SIDESTEP_EINVAL: the message says
 * what is wrong, and what was probably meant.  If the command precedes the mistake, ${cli}->command
 * is set.
 */
enum sidestep_status cli_arguments_parse(struct cli *cli, int argc, char *const *argv,
                                         struct sidestep_error *err);

/** cli_arguments_number(cli, id, least, most, &number): parse the argument of option ${id}, if it
 * was given, as a decimal integer.  Returns 0; or, if it is not a number from ${least} to ${most},
 * prints an error and returns the exit status. */
int cli_arguments_number(const struct cli *cli, enum cli_option_id id, uint64_t least,
                         uint64_t most, uint64_t *number);

#endif
