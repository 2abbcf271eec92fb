/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c -- the command line: parses it, runs one command, and exits with its status. */
#include "arguments.h"
#include "help.h"
#include "output.h"

#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* If a standard stream is closed, the next file that is opened gets its number, and output would go
 * into that file.  So open something to which a write fails. */
static void keep_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(CLI_EXIT_STATUS_FAILED);
}

/* A usage error may precede --json, and must be JSON too. */
static bool asks_for_json(int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Is ${path} a file in a checkpoint?  The checkpoint is its first ${*length} bytes. */
static bool is_of_checkpoint(const char *path, size_t *length)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t bytes = strlen(name);

    *length = slash != NULL ? (size_t)(slash - path) : 0;
    return *length > 0 && (strcmp(name, ".metadata") == 0 ||
                           (bytes > strlen(".distcp") &&
                            strcmp(name + bytes - strlen(".distcp"), ".distcp") == 0));
}

/* A file where a directory is expected is a usage error, not a missing checkpoint. */
static bool is_file_for_directory(const struct cli *cli, size_t i, int *status)
{
    const struct cli_operand *operand = cli_commands_operand(cli->command, i);
    const char *path = cli->operands[i];
    struct stat st;
    size_t length;

    bool may_be_file = operand->kind == CLI_OPERAND_PATH;
    if ((operand->kind != CLI_OPERAND_DIRECTORY && !may_be_file) || stat(path, &st) != 0 ||
        S_ISDIR(st.st_mode))
        return false;
    if (may_be_file && !is_of_checkpoint(path, &length))
        return false;
    if (is_of_checkpoint(path, &length))
        *status =
            cli_output_usage(cli, "%s: '%s' is a file, %s is a directory; did you mean '%.*s'?",
                             cli->command->name, path, operand->name, (int)length, path);
    else
        *status = cli_output_usage(cli, "%s: '%s' is a file, %s is a directory", cli->command->name,
                                   path, operand->name);
    return true;
}

/* To a monitor, status 2 means critical, and wrong usage means that nothing is known. */
static int usage_status(const struct cli *cli, int status)
{
    bool is_monitored = cli->command != NULL && (cli->command->exits & CLI_EXIT_MONITOR) != 0;

    return is_monitored ? CLI_EXIT_STATUS_UNKNOWN : status;
}

static int run(struct cli *cli, int argc, char *const *argv)
{
    struct sidestep_error err = {0};
    int status;

    if (cli_arguments_parse(cli, argc, argv, &err) != SIDESTEP_OK) {
        if (asks_for_json(argc, argv))
            cli->options[CLI_OPTION_JSON] = "";
        return usage_status(cli, cli_output_usage(cli, "%s", err.message));
    }
    cli->color = cli_output_wants_color(cli->options[CLI_OPTION_COLOR]);
    if (cli_has_option(cli, CLI_OPTION_VERSION))
        return cli_version_run(cli);
    if (cli_has_option(cli, CLI_OPTION_HELP)) {
        cli_help_print(cli->out, cli->command, false, cli->color);
        return 0;
    }
    for (size_t i = 0; i < cli->operand_count; i++)
        if (is_file_for_directory(cli, i, &status))
            return usage_status(cli, status);
    return cli->command->run(cli);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};

    keep_standard_streams();
    /* Only for the width of characters; numbers keep their decimal point. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    (void)setvbuf(stderr, NULL, _IOLBF, 4096);
    cli.out = cli_output_open();
    return cli_output_close(cli.out, run(&cli, argc, argv));
}
