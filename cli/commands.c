/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commands.c -- the table of commands, global options and exit statuses.  The help texts of the
 * commands are in commands_readonly.c and commands_other.c.
 */
#include "commands.h"

#include <string.h>

const struct cli_option cli_commands_global_options[] = {
    {.id = CLI_OPTION_JSON,
     .name = "json",
     .text = "Print results as one line of JSON on standard output, and an error as one line of "
             "JSON on standard error: {\"error\":{\"status\",\"message\",\"errno\",\"rank\"}}. "
             "Field names are stable; sizes are integers, in bytes; unknown values are null."},
    {.id = CLI_OPTION_COLOR,
     .name = "color",
     .argument = "WHEN",
     .choices = {"auto", "always", "never"},
     .text = "Colour the output: auto (the default: if standard output is a terminal, NO_COLOR is "
             "not set and TERM is not dumb), always, or never."},
    {.id = CLI_OPTION_QUIET,
     .letter = 'q',
     .name = "quiet",
     .text = "No progress and no notes on standard error; errors are still printed."},
    {.id = CLI_OPTION_VERBOSE,
     .letter = 'v',
     .name = "verbose",
     .text = "Print more: exact times instead of ages, and where in the library an error arose."},
    {.id = CLI_OPTION_HELP, .letter = 'h', .name = "help", .text = "Print the help and stop."},
    {.id = CLI_OPTION_VERSION,
     .letter = 'V',
     .name = "version",
     .text = "Print the version and stop."},
    CLI_END_OPTIONS,
};

const struct cli_exit cli_commands_exits[] = {
    {0, 0, "Done."},
    {1, 0, "Failed; the message says why."},
    {2, 0, "Wrong usage: unknown command or option, missing or wrong operand."},
    {1, CLI_EXIT_DIFFERENT, "The two differ."},
    {0, CLI_EXIT_MONITOR, "OK: nothing was found that is not as it should be."},
    {1, CLI_EXIT_MONITOR, "Warning: something needs a look by daylight."},
    {2, CLI_EXIT_MONITOR, "Critical: a resume would lose more than is allowed, or finds nothing."},
    {3, CLI_EXIT_MONITOR, "Unknown: something could not be read, or wrong usage."},
    {2, CLI_EXIT_DIFFERENT,
     "Wrong usage, or a failure that has no status of its own; the message says why."},
    {3, CLI_EXIT_DAMAGE, "Damage: stored bytes do not match their checksum or format."},
    {4, CLI_EXIT_UNCOMMITTED, "Not a checkpoint: incomplete, or never committed."},
    {5, CLI_EXIT_UNSUPPORTED, "Not supported."},
    {10, CLI_EXIT_NOT_FOUND, "Nothing found."},
    {11, CLI_EXIT_LOCKED, "Locked or in use."},
    {12, CLI_EXIT_PERMISSION, "Permission denied."},
    {28, CLI_EXIT_SPACE, "No space left."},
    {130, CLI_EXIT_INTERRUPTED, "Interrupted."},
    {-1, 0, NULL},
};

const char *const cli_commands_shells[] = {"bash", "zsh", "fish", NULL};

const struct cli_command *const cli_commands[] = {
    &cli_command_ls,      &cli_command_show,    &cli_command_latest,
    &cli_command_verify,  &cli_command_cat,     &cli_command_diff,
    &cli_command_convert, &cli_command_cp,      &cli_command_mirror,
    &cli_command_gc,      &cli_command_prune,   &cli_command_watch,
    &cli_command_check,   &cli_command_metrics, &cli_command_events,
    &cli_command_trace,   &cli_command_report,  &cli_command_pin,
    &cli_command_unpin,   &cli_command_tag,     &cli_command_rebuild,
    &cli_command_doctor,  &cli_command_bench,   &cli_command_completion,
    &cli_command_help,    &cli_command_version, NULL,
};

const struct cli_operand *cli_commands_operand(const struct cli_command *command, size_t i)
{
    for (size_t k = 0; command->operands[k].name != NULL; k++)
        if (k == i || command->operands[k].repeated)
            return &command->operands[k];
    static const struct cli_operand none;
    return &none;
}

const struct cli_command *cli_commands_find(const char *name)
{
    for (const struct cli_command *const *command = cli_commands; *command != NULL; command++)
        if (strcmp((*command)->name, name) == 0)
            return *command;
    return NULL;
}
