/* SPDX-License-Identifier: BSD-3-Clause */
/* listen_address.h -- opens the socket of --listen. */
#ifndef CLI_LISTEN_ADDRESS_H
#define CLI_LISTEN_ADDRESS_H

#include "cli.h"

#include <netdb.h>

#define CLI_LISTEN_ADDRESS_BYTES (NI_MAXHOST + NI_MAXSERV + 4)

/** cli_listen_address_open(cli, &fd, name, err): listen at the argument of --listen: "PORT" and
 * ":PORT" (this machine only), "HOST:PORT", "[HOST]:PORT".  ${name} becomes the address that it
 * got, "127.0.0.1:9188". */
enum sidestep_status cli_listen_address_open(const struct cli *cli, int *fd,
                                             char name[CLI_LISTEN_ADDRESS_BYTES],
                                             struct sidestep_error *err);

#endif
