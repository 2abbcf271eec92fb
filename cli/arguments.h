/* SPDX-License-Identifier: BSD-3-Clause */
/* arguments.h -- from argv to struct cli, by the table of commands. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include "cli.h"

/**
 * cli_arguments_parse(cli, argc, argv, err): fill ${cli} from the arguments.  Options may stand
 * before or after the command and between operands; "--" ends them.  SIDESTEP_EINVAL with a
 * message for people: what is wrong, and what was probably meant.  ${cli}->command is set also
 * on failure if it was seen before the mistake.
 */
enum sidestep_status cli_arguments_parse(struct cli *cli, int argc, char *const *argv,
                                         struct sidestep_error *err);

/** cli_arguments_parse_number(text, max, &number): a decimal number from 1 to ${max}, whole. */
bool cli_arguments_parse_number(const char *text, unsigned long max, unsigned long *number);

#endif
