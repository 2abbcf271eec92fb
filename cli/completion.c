/* SPDX-License-Identifier: BSD-3-Clause */
/* completion.c -- `sidestep completion`, and what the scripts of the three shells share. */
#include "completion.h"

#include "cli.h"
#include "json.h"
#include "memory.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *shell;
    void (*print)(FILE *out);
} printers[] = {
    {"bash", cli_completion_bash},
    {"zsh", cli_completion_zsh},
    {"fish", cli_completion_fish},
};

void cli_completion_commands(FILE *out)
{
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++)
        fprintf(out, "%s%s", at == cli_commands ? "" : " ", command->name);
}

void cli_completion_shells(FILE *out)
{
    for (const char *const *shell = cli_commands_shells; *shell != NULL; shell++)
        fprintf(out, "%s%s", shell == cli_commands_shells ? "" : " ", *shell);
}

void cli_completion_choices(FILE *out, const struct cli_option *option)
{
    for (size_t i = 0; i < CLI_MAX_CHOICES && option->choices[i] != NULL; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", option->choices[i]);
}

void cli_completion_short_text(FILE *out, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (strchr(".,;:", *text) != NULL && (text[1] == ' ' || text[1] == '\0'))
            return;
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr(special, *text) != NULL)
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void print_json(const struct cli *cli, const char *shell, void (*print)(FILE *out))
{
    struct cli_json json = cli_json_begin(cli->out);
    char *script = NULL;
    size_t length = 0;
    FILE *stream = cli_memory_stream(&script, &length);

    print(stream);
    cli_memory_stream_close(stream);
    cli_json_text(&json, "shell", shell);
    cli_json_text(&json, "script", script);
    cli_json_end(&json);
    free(script);
}

int cli_completion_run(const struct cli *cli)
{
    for (size_t i = 0; i < sizeof(printers) / sizeof(printers[0]); i++) {
        if (strcmp(printers[i].shell, cli->operands[0]) != 0)
            continue;
        if (cli_has_option(cli, CLI_OPTION_JSON))
            print_json(cli, printers[i].shell, printers[i].print);
        else
            printers[i].print(cli->out);
        return 0;
    }
    return cli_output_usage(cli, "completion: '%s' is none of: bash, zsh, fish", cli->operands[0]);
}
