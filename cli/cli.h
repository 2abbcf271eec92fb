/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cli.h -- what every command is given: its arguments, and the ways out (results, notes,
 * errors, exit status).
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "commands.h"

#include <sidestep/sidestep.h>

#include <stdbool.h>
#include <stdio.h>

/** Exit status of a process whose reader went away, as a shell shows a death by SIGPIPE. */
#define CLI_EXIT_STATUS_PIPE 141
#define CLI_EXIT_STATUS_FAILED 1
#define CLI_EXIT_STATUS_USAGE 2

/** Arguments of options that may be given several times, all together. */
#define CLI_MAX_REPEATED 256

struct cli_repeated_argument {
    enum cli_option_id id;
    const char *text;
};

/** One run of the command line.  Constant once parsing has filled it. */
struct cli {
    const struct cli_command *command;     /* NULL: none was given */
    const char *options[CLI_OPTION_COUNT]; /* argument, or "" of one that takes none; NULL: not
                                              given */
    struct cli_repeated_argument many[CLI_MAX_REPEATED];
    size_t many_count;
    const char *operands[CLI_MAX_OPERANDS];
    size_t operand_count;
    FILE *out;  /* results; a write that fails ends the process with a message */
    bool color; /* colour what goes to ${out} */
};

static inline bool cli_has_option(const struct cli *cli, enum cli_option_id id)
{
    return cli->options[id] != NULL;
}

/** cli_option_values(cli, id, texts): the arguments of an option that may be given several times,
 * in order; returns how many, at most CLI_MAX_REPEATED. */
static inline size_t cli_option_values(const struct cli *cli, enum cli_option_id id,
                                       const char *texts[CLI_MAX_REPEATED])
{
    size_t count = 0;

    for (size_t i = 0; i < cli->many_count; i++)
        if (cli->many[i].id == id)
            texts[count++] = cli->many[i].text;
    return count;
}

#endif
