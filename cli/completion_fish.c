/* SPDX-License-Identifier: BSD-3-Clause */
/* completion_fish.c -- completion for fish. */
#include "completion.h"

/* ${command} NULL: the options of every command. */
static void print_options(FILE *out, const struct cli_option *options, const char *command)
{
    for (const struct cli_option *option = options; option->name != NULL; option++) {
        if (option->hidden)
            continue;
        fputs("complete -c sidestep", out);
        if (command != NULL)
            fprintf(out, " -n '__fish_seen_subcommand_from %s'", command);
        if (option->letter != 0)
            fprintf(out, " -s %c", option->letter);
        fprintf(out, " -l %s", option->name);
        if (option->argument != NULL && !option->optional) {
            fputs(" -x -a '", out);
            cli_completion_choices(out, option);
            fputs("'", out);
        }
        fputs(" -d '", out);
        cli_completion_short_text(out, option->text, "\\");
        fputs("'\n", out);
    }
}

static void print_operands(FILE *out, const struct cli_command *command)
{
    for (int i = 0; command->operands[i].name != NULL; i++) {
        if (command->operands[i].kind == CLI_OPERAND_TEXT)
            continue;
        fprintf(out, "complete -c sidestep -n '__fish_seen_subcommand_from %s' -a '",
                command->name);
        if (command->operands[i].kind == CLI_OPERAND_DIRECTORY)
            fputs("(__fish_complete_directories)", out);
        else if (command->operands[i].kind == CLI_OPERAND_PATH)
            fputs("(__fish_complete_path)", out);
        else if (command->operands[i].kind == CLI_OPERAND_SHELL)
            cli_completion_shells(out);
        else
            cli_completion_commands(out);
        fputs("'\n", out);
    }
}

void cli_completion_fish(FILE *out)
{
    fputs("# fish completion for sidestep, made by 'sidestep completion fish'\n"
          "complete -c sidestep -f\n",
          out);
    print_options(out, cli_commands_global_options, NULL);
    for (const struct cli_command *const *at = cli_commands, *command; (command = *at) != NULL;
         at++) {
        fprintf(out, "complete -c sidestep -n __fish_use_subcommand -a %s -d '", command->name);
        cli_completion_short_text(out, command->summary, "\\");
        fputs("'\n", out);
        print_options(out, command->options, command->name);
        print_operands(out, command);
    }
}
