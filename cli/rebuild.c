/* SPDX-License-Identifier: BSD-3-Clause */
/* rebuild.c -- `sidestep rebuild`: writes a lost .metadata again. */
#include "cli.h"
#include "escape.h"
#include "json.h"
#include "output.h"

#include <string.h>

int cli_rebuild_run(const struct cli *cli)
{
    const char *path = cli->operands[0];
    struct sidestep_error err = {0};

    if (sidestep_rebuild(path, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        struct cli_json json = cli_json_begin(cli->out);

        cli_json_text(&json, "path", path);
        cli_json_bool(&json, "rebuilt", true);
        cli_json_end(&json);
    } else {
        fputs("rebuilt ", cli->out);
        cli_escape_write(cli->out, path, strlen(path));
        fputc('\n', cli->out);
    }
    return 0;
}
