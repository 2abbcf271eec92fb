/* SPDX-License-Identifier: BSD-3-Clause */
/* listen_absent.c -- stands in for listen.c in a build without libmicrohttpd. */
#include "listen.h"
#include "output.h"

int cli_listen_run(const struct cli *cli, char *(*look)(const struct cli *cli, size_t *length))
{
    struct sidestep_error err;

    (void)look;
    cli_error_set(
        &err, SIDESTEP_EUNSUPPORTED,
        "%s: this sidestep was built without --listen (it needs libmicrohttpd); use --out FILE "
        "and the textfile collector of node_exporter",
        cli->command->name);
    return cli_output_error(cli, &err);
}
