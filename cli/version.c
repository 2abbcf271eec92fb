/* SPDX-License-Identifier: BSD-3-Clause */
/* version.c -- `sidestep version`: prints the versions of the command and of the library. */
#include "cli.h"
#include "json.h"

#include <string.h>

int cli_version_run(const struct cli *cli)
{
    const char *library = sidestep_version();
    char own[32];

    snprintf(own, sizeof(own), "%d.%d.%d", SIDESTEP_VERSION_MAJOR, SIDESTEP_VERSION_MINOR,
             SIDESTEP_VERSION_PATCH);
    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        struct cli_json json = cli_json_begin(cli->out);

        cli_json_text(&json, "version", own);
        cli_json_text(&json, "library_version", library);
        cli_json_end(&json);
    } else if (strcmp(own, library) == 0) {
        fprintf(cli->out, "sidestep %s\n", own);
    } else {
        fprintf(cli->out, "sidestep %s (library %s)\n", own, library);
    }
    return 0;
}
