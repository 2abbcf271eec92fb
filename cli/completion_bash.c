/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * completion_bash.c -- completion for bash.  It does not need the bash-completion package, and it
 * handles '=' as a separate word (COMP_WORDBREAKS).
 */
#include "completion.h"

static const char head[] =
    "# bash completion for sidestep, made by 'sidestep completion bash'\n"
    "_sidestep()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local command= operands=0 i\n"
    "    [[ $cur == = ]] && cur=\n"
    "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n";

static const char find_command_head[] = "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                                        "        case ${COMP_WORDS[i]} in\n";

static const char find_command_tail[] =
    ") [[ ${COMP_WORDS[i+1]} == = ]] && ((i++)); ((i++)) ;;\n"
    "        =) ((i++)) ;;\n"
    "        -?*) ;;\n"
    "        *) if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else ((operands++)); fi ;;\n"
    "        esac\n"
    "    done\n";

static const char tail[] = "    esac\n"
                           "}\n"
                           "complete -F _sidestep sidestep\n";

static void print_option_words(FILE *out, const struct cli_option *options)
{
    for (const struct cli_option *option = options; option->name != NULL; option++)
        if (!option->hidden)
            fprintf(out, " --%s", option->name);
}

static void print_argument_case(FILE *out, const struct cli_option *options)
{
    for (const struct cli_option *option = options; option->name != NULL; option++) {
        if (option->argument == NULL || option->optional)
            continue;
        fprintf(out, "    --%s", option->name);
        if (option->letter != 0)
            fprintf(out, "|-%c", option->letter);
        fputs(") COMPREPLY=($(compgen -W \"", out);
        cli_completion_choices(out, option);
        fputs("\" -- \"$cur\")); return ;;\n", out);
    }
}

/* Print the options with an argument as alternatives of a pattern. */
static void print_argument_pattern(FILE *out, const struct cli_option *options,
                                   const char **separator)
{
    for (const struct cli_option *option = options; option->name != NULL; option++) {
        if (option->argument == NULL || option->optional)
            continue;
        fprintf(out, "%s--%s", *separator, option->name);
        if (option->letter != 0)
            fprintf(out, "|-%c", option->letter);
        *separator = "|";
    }
}

/* Print the loop that finds the command, and counts its operands. */
static void print_find_command(FILE *out)
{
    const char *separator = "        ";

    fputs(find_command_head, out);
    print_argument_pattern(out, cli_commands_global_options, &separator);
    for (const struct cli_command *const *at = cli_commands; *at != NULL; at++)
        print_argument_pattern(out, (*at)->options, &separator);
    fputs(find_command_tail, out);
}

static void print_operand_case(FILE *out, const struct cli_command *command)
{
    for (int i = 0; command->operands[i].name != NULL; i++) {
        if (command->operands[i].kind == CLI_OPERAND_TEXT)
            continue;
        if (command->operands[i].repeated)
            fprintf(out, "    %s.*) ", command->name);
        else
            fprintf(out, "    %s.%d) ", command->name, i);
        if (command->operands[i].kind == CLI_OPERAND_DIRECTORY ||
            command->operands[i].kind == CLI_OPERAND_PATH) {
            fprintf(out,
                    "compopt -o filenames 2>/dev/null\n"
                    "        mapfile -t COMPREPLY < <(compgen -%c -- \"$cur\") ;;\n",
                    command->operands[i].kind == CLI_OPERAND_PATH ? 'f' : 'd');
            continue;
        }
        fputs("COMPREPLY=($(compgen -W \"", out);
        if (command->operands[i].kind == CLI_OPERAND_SHELL)
            cli_completion_shells(out);
        else
            cli_completion_commands(out);
        fputs("\" -- \"$cur\")) ;;\n", out);
    }
}

void cli_completion_bash(FILE *out)
{
    fputs(head, out);
    fputs("    case $prev in\n", out);
    print_argument_case(out, cli_commands_global_options);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++)
        print_argument_case(out, command->options);
    fputs("    esac\n", out);
    print_find_command(out);
    fputs("    if [[ $cur == -* ]]; then\n        local options=\"", out);
    print_option_words(out, cli_commands_global_options);
    fputs("\"\n        case $command in\n", out);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++) {
        fprintf(out, "        %s) options+=\"", command->name);
        print_option_words(out, command->options);
        fputs("\" ;;\n", out);
    }
    fputs("        esac\n        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return\n    "
          "fi\n",
          out);
    fputs("    case $command.$operands in\n    .0) COMPREPLY=($(compgen -W \"", out);
    cli_completion_commands(out);
    fputs("\" -- \"$cur\")) ;;\n", out);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++)
        print_operand_case(out, command);
    fputs(tail, out);
}
