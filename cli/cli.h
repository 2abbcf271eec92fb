/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cli.h -- what every command gets: its arguments and its output streams, and the exit statuses.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "commands.h"

#include <sidestep/sidestep_tools.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/** Exit status if the reader of the output has gone: that of a process that SIGPIPE killed. */
#define CLI_EXIT_STATUS_PIPE 141
#define CLI_EXIT_STATUS_FAILED 1
/** Of a command with CLI_EXIT_MONITOR: nothing is known. */
#define CLI_EXIT_STATUS_UNKNOWN 3

/** Limit of the arguments of all options that may be given several times. */
#define CLI_MAX_REPEATED 256

struct cli_repeated_argument {
    enum cli_option_id id;
    const char *text;
};

/** One run of the command line.  Parsing fills it; then it is constant. */
struct cli {
    const struct cli_command *command;     /* NULL: none was given */
    const char *options[CLI_OPTION_COUNT]; /* argument, or "" if it takes none; NULL: not given */
    struct cli_repeated_argument many[CLI_MAX_REPEATED];
    size_t many_count;
    const char *operands[CLI_MAX_GIVEN_OPERANDS];
    size_t operand_count;
    FILE *out;  /* results; a failed write ends the process with a message */
    bool color; /* colour the results */
};

static inline bool cli_has_option(const struct cli *cli, enum cli_option_id id)
{
    return cli->options[id] != NULL;
}

/** cli_option_values(cli, id, texts): set ${texts} to the arguments of an option that may be given
 * several times, in order; returns how many, at most CLI_MAX_REPEATED. */
static inline size_t cli_option_values(const struct cli *cli, enum cli_option_id id,
                                       const char *texts[CLI_MAX_REPEATED])
{
    size_t count = 0;

    for (size_t i = 0; i < cli->many_count; i++)
        if (cli->many[i].id == id)
            texts[count++] = cli->many[i].text;
    return count;
}

/** cli_is_lost_and_found(entry): a directory that file systems make, not a checkpoint. */
static inline bool cli_is_lost_and_found(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_UNREADABLE && strcmp(entry->name, "lost+found") == 0;
}

#endif
