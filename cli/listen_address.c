/* SPDX-License-Identifier: BSD-3-Clause */
/* listen_address.c -- opens the socket of --listen; see listen_address.h. */
#include "listen_address.h"

#include "output.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOPBACK "127.0.0.1"
#define KERNEL_QUEUE 128 /* who has connected and found no place yet */

/* "9188", ":9188", "HOST:9188", "[::1]:9188". */
static bool split(const char *text, char host[NI_MAXHOST], const char **port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;

    *port = colon != NULL ? colon + 1 : text;
    if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    } else if (memchr(text, ':', length) != NULL) {
        return false;
    }
    if (length >= NI_MAXHOST)
        return false;
    snprintf(host, NI_MAXHOST, "%.*s", (int)length, text);
    if (length == 0)
        strcpy(host, LOOPBACK);
    size_t digits = strspn(*port, "0123456789");
    return digits >= 1 && digits <= 5 && (*port)[digits] == '\0' && atoi(*port) <= 65535;
}

/* "127.0.0.1:9188", "[::1]:9188" */
static void name_address(const struct sockaddr *address, socklen_t bytes,
                         char name[CLI_LISTEN_ADDRESS_BYTES])
{
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

    (void)getnameinfo(address, bytes, host, sizeof(host), port, sizeof(port),
                      NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(name, CLI_LISTEN_ADDRESS_BYTES, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
             host, port);
}

static enum sidestep_status refused(const struct cli *cli, const char *name,
                                    struct sidestep_error *err)
{
    int reason = errno;

    cli_error_set(err,
                  reason == EADDRINUSE ? SIDESTEP_ELOCKED
                  : reason == EACCES   ? SIDESTEP_EPERM
                                       : SIDESTEP_EIO,
                  "%s: listen on %s: %s", cli->command->name, name, strerror(reason));
    err->sys_errno = reason;
    if (reason == EADDRINUSE)
        cli_error_append(err, "; end the program that has this port ('ss -ltnp' names it), or "
                              "choose another one");
    return (enum sidestep_status)err->status;
}

enum sidestep_status cli_listen_address_open(const struct cli *cli, int *fd,
                                             char name[CLI_LISTEN_ADDRESS_BYTES],
                                             struct sidestep_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *text = cli->options[CLI_OPTION_LISTEN], *port;
    struct addrinfo *found = NULL;
    struct sockaddr_storage own;
    socklen_t bytes = sizeof(own);
    char host[NI_MAXHOST];

    if (!split(text, host, &port))
        return cli_error_set(err, SIDESTEP_EINVAL,
                             "%s: --listen: '%s' is none of PORT, HOST:PORT and [HOST]:PORT",
                             cli->command->name, text);
    int problem = getaddrinfo(host, port, &hints, &found);
    if (problem != 0)
        return cli_error_set(err, SIDESTEP_EINVAL, "%s: --listen: '%s': %s", cli->command->name,
                             text, gai_strerror(problem));
    name_address(found->ai_addr, found->ai_addrlen, name);
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Without this, the connections of a process that has ended keep the next one out. */
    bool works =
        *fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
        bind(*fd, found->ai_addr, found->ai_addrlen) == 0 && listen(*fd, KERNEL_QUEUE) == 0;
    enum sidestep_status status = works ? SIDESTEP_OK : refused(cli, name, err);
    freeaddrinfo(found);
    if (!works) {
        if (*fd >= 0)
            close(*fd);
        return status;
    }
    if (getsockname(*fd, (struct sockaddr *)&own, &bytes) == 0)
        name_address((const struct sockaddr *)&own, bytes, name);
    return SIDESTEP_OK;
}
