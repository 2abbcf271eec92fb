/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arguments.c -- parses the command line.  It does not use getopt_long(), which permutes argv,
 * prints by itself, and accepts abbreviations, so that every new option could break a script.
 */
#include "arguments.h"

#include "memory.h"
#include "output.h"
#include "suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    struct cli *cli;
    int argc;
    char *const *argv;
    int next; /* index of the next argument */
    struct sidestep_error *err;
};

static const char *command_prefix(const struct cli *cli)
{
    return cli->command != NULL ? cli->command->name : "sidestep";
}

/* Find an option among those of the command, then among the global ones. */
static const struct cli_option *find_option(const struct cli *cli, const char *name, size_t length,
                                            char letter)
{
    const struct cli_option *lists[] = {
        cli->command != NULL ? cli->command->options : NULL,
        cli_commands_global_options,
    };

    for (size_t i = 0; i < 2; i++)
        for (const struct cli_option *option = lists[i]; option && option->name; option++) {
            if (letter != 0 && option->letter == letter)
                return option;
            if (letter == 0 && strlen(option->name) == length &&
                memcmp(option->name, name, length) == 0)
                return option;
        }
    return NULL;
}

static const char *nearest_option(const struct cli *cli, const char *name)
{
    struct cli_suggest suggest;

    cli_suggest_init(&suggest, name);
    if (cli->command != NULL)
        for (const struct cli_option *option = cli->command->options; option->name; option++)
            if (!option->hidden)
                cli_suggest_offer(&suggest, option->name);
    for (const struct cli_option *option = cli_commands_global_options; option->name; option++)
        cli_suggest_offer(&suggest, option->name);
    return suggest.best;
}

static enum sidestep_status unknown_long(struct parser *parser, const char *name)
{
    const char *nearest = nearest_option(parser->cli, name);

    if (nearest != NULL)
        return cli_error_set(parser->err, SIDESTEP_EINVAL,
                             "%s: unknown option '--%s'; did you mean '--%s'?",
                             command_prefix(parser->cli), name, nearest);
    return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: unknown option '--%s'",
                         command_prefix(parser->cli), name);
}

/* Record ${option} with its argument, which must be one of its choices if it has any. */
static enum sidestep_status take_option(struct parser *parser, const struct cli_option *option,
                                        const char *argument)
{
    bool allowed = option->choices[0] == NULL || option->more_choices;

    for (size_t i = 0; i < CLI_MAX_CHOICES && option->choices[i] != NULL; i++)
        allowed = allowed || strcmp(option->choices[i], argument) == 0;
    if (!allowed) {
        char list[80] = "";

        for (size_t i = 0; i < CLI_MAX_CHOICES && option->choices[i] != NULL; i++) {
            size_t used = strlen(list);

            snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "",
                     option->choices[i]);
        }
        return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: --%s: '%s' is none of: %s",
                             command_prefix(parser->cli), option->name, argument, list);
    }
    parser->cli->options[option->id] = argument;
    if (!option->many)
        return SIDESTEP_OK;
    if (parser->cli->many_count == CLI_MAX_REPEATED)
        return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: --%s: more than %d of its kind",
                             command_prefix(parser->cli), option->name, CLI_MAX_REPEATED);
    parser->cli->many[parser->cli->many_count++] =
        (struct cli_repeated_argument){.id = option->id, .text = argument};
    return SIDESTEP_OK;
}

/* Take the next argument, as that of an option; NULL if there is none. */
static const char *next_argument(struct parser *parser)
{
    return parser->next < parser->argc ? parser->argv[parser->next++] : NULL;
}

static enum sidestep_status missing_argument(struct parser *parser, const struct cli_option *option)
{
    return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: option '--%s' needs an argument: %s",
                         command_prefix(parser->cli), option->name, option->argument);
}

/* "--name", "--name=argument", or, if the argument is not optional, "--name argument". */
static enum sidestep_status parse_long(struct parser *parser, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    const struct cli_option *option = find_option(parser->cli, text, length, 0);
    const char *argument = equals != NULL ? equals + 1 : NULL;

    if (option == NULL) {
        char *name = cli_memory_copy(text, length);
        enum sidestep_status status = unknown_long(parser, name);

        free(name);
        return status;
    }
    if (option->argument == NULL || (option->optional && argument == NULL)) {
        if (argument != NULL)
            return cli_error_set(parser->err, SIDESTEP_EINVAL,
                                 "%s: option '--%s' takes no argument", command_prefix(parser->cli),
                                 option->name);
        return take_option(parser, option, "");
    }
    if (argument == NULL)
        argument = next_argument(parser);
    if (argument == NULL || (option->optional && argument[0] == '\0'))
        return missing_argument(parser, option);
    return take_option(parser, option, argument);
}

/* "-a", "-ab", "-j4", or "-j 4". */
static enum sidestep_status parse_short(struct parser *parser, const char *letters)
{
    while (*letters != '\0') {
        const struct cli_option *option = find_option(parser->cli, NULL, 0, *letters);
        const char *argument = "";
        enum sidestep_status status;

        if (option == NULL)
            return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: unknown option '-%c'",
                                 command_prefix(parser->cli), *letters);
        letters++;
        if (option->argument != NULL) {
            argument = *letters != '\0' ? letters : next_argument(parser);
            if (argument == NULL)
                return missing_argument(parser, option);
            letters = "";
        }
        status = take_option(parser, option, argument);
        if (status != SIDESTEP_OK)
            return status;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status take_command(struct parser *parser, const char *name)
{
    const char *nearest;

    parser->cli->command = cli_commands_find(name);
    if (parser->cli->command != NULL)
        return SIDESTEP_OK;
    nearest = cli_suggest_command(name);
    if (nearest != NULL)
        return cli_error_set(parser->err, SIDESTEP_EINVAL,
                             "unknown command '%s'; did you mean '%s'?", name, nearest);
    return cli_error_set(parser->err, SIDESTEP_EINVAL, "unknown command '%s'", name);
}

static enum sidestep_status take_operand(struct parser *parser, const char *text)
{
    struct cli *cli = parser->cli;
    const struct cli_operand *slot;

    if (cli->command == NULL)
        return take_command(parser, text);
    slot = cli_commands_operand(cli->command, cli->operand_count);
    if (slot->name == NULL || cli->operand_count == CLI_MAX_GIVEN_OPERANDS)
        return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: one operand too many: '%s'",
                             cli->command->name, text);
    if (text[0] == '\0' && slot->kind != CLI_OPERAND_TEXT)
        return cli_error_set(parser->err, SIDESTEP_EINVAL, "%s: %s is empty", cli->command->name,
                             slot->name);
    cli->operands[cli->operand_count++] = text;
    return SIDESTEP_OK;
}

enum sidestep_status cli_arguments_parse(struct cli *cli, int argc, char *const *argv,
                                         struct sidestep_error *err)
{
    struct parser parser = {.cli = cli, .argc = argc, .argv = argv, .next = 1, .err = err};
    bool options_ended = false;

    while (parser.next < argc) {
        const char *text = argv[parser.next++];
        enum sidestep_status status;

        if (options_ended || text[0] != '-' || text[1] == '\0')
            status = take_operand(&parser, text);
        else if (text[1] != '-')
            status = parse_short(&parser, text + 1);
        else if (text[2] != '\0')
            status = parse_long(&parser, text + 2);
        else {
            options_ended = true;
            status = SIDESTEP_OK;
        }
        if (status != SIDESTEP_OK)
            return status;
    }
    if (cli_has_option(cli, CLI_OPTION_HELP) || cli_has_option(cli, CLI_OPTION_VERSION))
        return SIDESTEP_OK;
    if (cli->command == NULL)
        return cli_error_set(err, SIDESTEP_EINVAL, "a command is missing");
    const struct cli_operand *wanted = cli_commands_operand(cli->command, cli->operand_count);
    bool has_one = wanted->repeated && cli->operand_count != 0;
    if (wanted->name != NULL && !wanted->optional && !has_one)
        return cli_error_set(err, SIDESTEP_EINVAL, "%s: %s is missing", cli->command->name,
                             wanted->name);
    return SIDESTEP_OK;
}

int cli_arguments_number(const struct cli *cli, enum cli_option_id id, uint64_t least,
                         uint64_t most, uint64_t *number)
{
    const struct cli_option *option = cli->command->options;
    const char *text = cli->options[id];
    char *end = NULL;

    if (!cli_has_option(cli, id))
        return 0;
    errno = 0;
    if (text[0] >= '0' && text[0] <= '9')
        *number = strtoull(text, &end, 10);
    if (end != NULL && errno == 0 && *end == '\0' && *number >= least && *number <= most)
        return 0;
    while (option->id != id)
        option++;
    return cli_output_usage(cli, "%s: --%s: '%s' is not a number from %" PRIu64 " to %" PRIu64,
                            cli->command->name, option->name, text, least, most);
}
