/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.h -- answers HTTP requests, until it is interrupted. */
#ifndef CLI_LISTEN_H
#define CLI_LISTEN_H

#include "cli.h"

/**
 * cli_listen_run(cli, look): give whoever asks for /metrics, at the address of --listen, the text
 * of a look that began after the request.  ${look} returns a text to free, and sets ${*length}.
 * Only one look runs at a time.  Returns the exit status, after it has printed an error; 0 after
 * SIGINT or SIGTERM.
 */
int cli_listen_run(const struct cli *cli, char *(*look)(const struct cli *cli, size_t *length));

#endif
