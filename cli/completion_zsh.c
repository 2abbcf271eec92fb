/* SPDX-License-Identifier: BSD-3-Clause */
/* completion_zsh.c -- completion for zsh, by _arguments. */
#include "completion.h"

/* '(-a --all)'{-a,--all}'[List foreign directories]' */
static void print_options(FILE *out, const struct cli_option *options, const char *indent)
{
    for (const struct cli_option *option = options; option->name != NULL; option++) {
        const char *equals = option->argument == NULL ? "" : option->optional ? "=-" : "=";

        if (option->hidden)
            continue;
        if (option->letter != 0)
            fprintf(out, "%s'(-%c --%s)'{-%c,--%s%s}'[", indent, option->letter, option->name,
                    option->letter, option->name, equals);
        else
            fprintf(out, "%s'--%s%s[", indent, option->name, equals);
        cli_completion_short_text(out, option->text, "[]\\");
        fputs("]", out);
        if (option->argument != NULL) {
            fprintf(out, option->optional ? "::%s:(" : ":%s:(", option->argument);
            cli_completion_choices(out, option);
            fputs(")", out);
        }
        fputs("' \\\n", out);
    }
}

static void print_operands(FILE *out, const struct cli_command *command)
{
    for (int i = 0; command->operands[i].name != NULL; i++) {
        const struct cli_operand *operand = &command->operands[i];

        if (operand->repeated)
            fprintf(out, "                '*:%s:", operand->name);
        else
            fprintf(out, "                '%d:%s%s:", i + 1, operand->optional ? ":" : "",
                    operand->name);
        switch (operand->kind) {
        case CLI_OPERAND_DIRECTORY:
            fputs("_directories", out);
            break;
        case CLI_OPERAND_PATH:
            fputs("_files", out);
            break;
        case CLI_OPERAND_SHELL:
            fputs("(", out);
            cli_completion_shells(out);
            fputs(")", out);
            break;
        case CLI_OPERAND_COMMAND:
            fputs("(", out);
            cli_completion_commands(out);
            fputs(")", out);
            break;
        case CLI_OPERAND_TEXT:
            break;
        }
        fputs("' \\\n", out);
    }
}

void cli_completion_zsh(FILE *out)
{
    fputs("#compdef sidestep\n"
          "# zsh completion for sidestep, made by 'sidestep completion zsh'\n"
          "_sidestep()\n"
          "{\n"
          "    local context state state_descr line\n"
          "    typeset -A opt_args\n"
          "    local -a commands=(\n",
          out);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++) {
        fprintf(out, "        '%s:", command->name);
        cli_completion_short_text(out, command->summary, ":\\");
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    _arguments -C \\\n",
          out);
    print_options(out, cli_commands_global_options, "        ");
    fputs("        '1:command:->command' \\\n"
          "        '*::operand:->operands' && return\n"
          "    case $state in\n"
          "    command) _describe command commands ;;\n"
          "    operands)\n"
          "        case $line[1] in\n",
          out);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++) {
        fprintf(out, "        %s)\n            _arguments \\\n", command->name);
        print_options(out, cli_commands_global_options, "                ");
        print_options(out, command->options, "                ");
        print_operands(out, command);
        fputs("                && return\n            ;;\n", out);
    }
    fputs("        esac\n"
          "        ;;\n"
          "    esac\n"
          "}\n"
          "if [[ $funcstack[1] == _sidestep ]]; then _sidestep \"$@\"; else compdef _sidestep "
          "sidestep; fi\n",
          out);
}
