/* SPDX-License-Identifier: BSD-3-Clause */
/* latest.c -- `sidestep latest`: the path alone, for scripts. */
#include "cli.h"
#include "escape.h"
#include "json.h"
#include "output.h"

#include <string.h>
#include <unistd.h>

int cli_latest_run(const struct cli *cli)
{
    enum sidestep_verify_mode mode =
        cli_has(cli, CLI_OPTION_VERIFY) ? SIDESTEP_VERIFY_BEFORE : SIDESTEP_VERIFY_STRUCTURE;
    struct sidestep_error err = {0};
    char *path = NULL;

    if (sidestep_latest(cli->operands[0], mode, &path, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (cli_has(cli, CLI_OPTION_JSON)) {
        struct cli_json json = {.out = cli->out};

        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "path", path);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else if (isatty(STDOUT_FILENO)) {
        cli_escape_write(cli->out, path, strlen(path));
        fputc('\n', cli->out);
    } else {
        /* A script opens what it reads here: as it is. */
        fprintf(cli->out, "%s\n", path);
    }
    sidestep_string_free(&path);
    return 0;
}
