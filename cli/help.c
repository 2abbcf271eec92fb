/* SPDX-License-Identifier: BSD-3-Clause */
/* help.c -- `sidestep help`, --help, and the man pages, from the table of commands. */
#include "help.h"

#include "document.h"
#include "json.h"
#include "output.h"
#include "suggest.h"

#include <string.h>

static void print_synopsis(struct cli_document *document, const struct cli_command *command)
{
    char text[128];
    size_t used;

    cli_document_section(document, "SYNOPSIS");
    if (command == NULL) {
        cli_document_command(document, "sidestep [GLOBAL OPTIONS] COMMAND [OPTIONS] PATH...");
        return;
    }
    used = (size_t)snprintf(text, sizeof(text), "sidestep %s%s", command->name,
                            command->options[0].name && !command->options[0].hidden ? " [OPTIONS]"
                                                                                    : "");
    for (const struct cli_operand *operand = command->operands; operand->name; operand++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 operand->optional ? " [%s]%s" : " %s%s", operand->name,
                                 operand->repeated ? "..." : "");
    cli_document_command(document, text);
}

static void print_options(struct cli_document *document, const char *title,
                          const struct cli_option *options)
{
    bool begun = false;

    for (const struct cli_option *option = options; option->name != NULL; option++) {
        char term[80], letter[8] = "";

        if (option->hidden)
            continue;
        if (!begun)
            cli_document_section(document, title);
        begun = true;
        if (option->letter != 0)
            snprintf(letter, sizeof(letter), "-%c, ", option->letter);
        snprintf(term, sizeof(term), option->optional ? "%s--%s[%s%s]" : "%s--%s%s%s", letter,
                 option->name, option->argument != NULL ? "=" : "",
                 option->argument != NULL ? option->argument : "");
        cli_document_item(document, term, option->text);
    }
}

/* Does another row, which only some commands have, describe this status? */
static bool is_replaced(const struct cli_exit *row, unsigned exits)
{
    for (const struct cli_exit *other = cli_commands_exits; other->status >= 0; other++)
        if (row->bit == 0 && other->status == row->status && (exits & other->bit) != 0)
            return true;
    return false;
}

static void print_exits(struct cli_document *document, unsigned exits)
{
    cli_document_section(document, "EXIT STATUS");
    for (const struct cli_exit *row = cli_commands_exits; row->status >= 0; row++) {
        char term[16];

        if ((row->bit != 0 && (exits & row->bit) == 0) || is_replaced(row, exits))
            continue;
        snprintf(term, sizeof(term), "%d", row->status);
        cli_document_item(document, term, row->text);
    }
}

static void print_command(struct cli_document *document, const struct cli_command *command)
{
    char page[64];

    snprintf(page, sizeof(page), "sidestep-%s", command->name);
    cli_document_title(document, page, command->summary);
    print_synopsis(document, command);
    cli_document_section(document, "EXAMPLES");
    for (const struct cli_example *example = command->examples; example->command; example++)
        cli_document_item(document, example->command, example->text);
    cli_document_section(document, "DESCRIPTION");
    for (const char *const *text = command->description; *text != NULL; text++)
        cli_document_paragraph(document, *text);
    print_options(document, "OPTIONS", command->options);
    print_options(document, "GLOBAL OPTIONS", cli_commands_global_options);
    cli_document_section(document, "JSON");
    cli_document_paragraph(document, command->json);
    print_exits(document, command->exits);
    cli_document_section(document, "SEE ALSO");
    cli_document_paragraph(document, "sidestep(1)");
}

static void print_overview(struct cli_document *document)
{
    cli_document_title(document, "sidestep", "inspect and manage training checkpoints");
    print_synopsis(document, NULL);
    cli_document_section(document, "EXAMPLES");
    /* The first example of each command, because it is the simplest. */
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++)
        if (command->exits != 0)
            cli_document_item(document, command->examples[0].command, command->examples[0].text);
    cli_document_section(document, "DESCRIPTION");
    cli_document_paragraph(document,
                           "A checkpoint is a directory of PyTorch Distributed Checkpoint (DCP) "
                           "files, written by sidestep or by torch. These commands need neither "
                           "torch nor Python, and execute nothing that a file contains.");
    cli_document_paragraph(document,
                           "Results go to standard output, everything else to standard error. "
                           "Options may be before or after operands; -- ends them.");
    cli_document_section(document, "COMMANDS");
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++)
        cli_document_item(document, command->name, command->summary);
    print_options(document, "GLOBAL OPTIONS", cli_commands_global_options);
    cli_document_section(document, "ENVIRONMENT");
    cli_document_item(document, "NO_COLOR", "If set and not empty: no colour by default.");
    cli_document_item(document, "TERM", "If it is dumb: no colour by default.");
    print_exits(document, ~(CLI_EXIT_DIFFERENT | CLI_EXIT_MONITOR));
    cli_document_section(document, "SEE ALSO");
    cli_document_paragraph(document, "sidestep-COMMAND(1) or sidestep help COMMAND, sidestep(3), "
                                     "sidestep-format(7)");
}

void cli_help_print(FILE *out, const struct cli_command *command, bool roff, bool color)
{
    struct cli_document document = {.out = out, .roff = roff, .color = color && !roff};

    if (command != NULL)
        print_command(&document, command);
    else
        print_overview(&document);
}

static void json_options(struct cli_json *json, const char *key, const struct cli_option *options)
{
    cli_json_open(json, key, '[');
    for (const struct cli_option *option = options; option->name != NULL; option++) {
        if (option->hidden)
            continue;
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "name", option->name);
        if (option->letter != 0)
            cli_json_bytes(json, "letter", &option->letter, 1);
        else
            cli_json_null(json, "letter");
        cli_json_text(json, "argument", option->argument);
        cli_json_bool(json, "optional", option->optional);
        cli_json_text(json, "text", option->text);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void print_json(FILE *out, const struct cli_command *only)
{
    struct cli_json json = cli_json_begin(out);

    cli_json_open(&json, "commands", '[');
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++) {
        if (only != NULL && command != only)
            continue;
        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "name", command->name);
        cli_json_text(&json, "summary", command->summary);
        cli_json_open(&json, "operands", '[');
        for (const struct cli_operand *operand = command->operands; operand->name; operand++)
            cli_json_text(&json, NULL, operand->name);
        cli_json_close(&json, ']');
        json_options(&json, "options", command->options);
        cli_json_close(&json, '}');
    }
    cli_json_close(&json, ']');
    json_options(&json, "global_options", cli_commands_global_options);
    cli_json_end(&json);
}

static int unknown_command(const struct cli *cli, const char *name)
{
    const char *nearest = cli_suggest_command(name);
    char names[256] = "";

    if (nearest != NULL)
        return cli_output_usage(cli, "help: unknown command '%s'; did you mean '%s'?", name,
                                nearest);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++) {
        size_t used = strlen(names);

        snprintf(names + used, sizeof(names) - used, "%s%s", used != 0 ? ", " : "", command->name);
    }
    return cli_output_usage(cli, "help: unknown command '%.200s'; the commands are: %s", name,
                            names);
}

int cli_help_run(const struct cli *cli)
{
    const struct cli_command *command = NULL;

    if (cli->operand_count > 0) {
        command = cli_commands_find(cli->operands[0]);
        if (command == NULL)
            return unknown_command(cli, cli->operands[0]);
    }
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli->out, command);
    else
        cli_help_print(cli->out, command, cli_has_option(cli, CLI_OPTION_MAN), cli->color);
    return 0;
}
