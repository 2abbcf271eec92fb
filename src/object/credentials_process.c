/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_process.c -- credentials that a program prints (credential_process of a profile). */
#include "object/credentials_source.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#define MOST_ARGUMENTS 64u
#define MOST_OUTPUT_BYTES ((size_t)64 << 10)
#define MOST_SECONDS 60u

extern char **environ;

/* Decode one argument in place; returns what stands behind it.  NULL: a quote is not closed. */
static char *split_one(char *text, char **argument)
{
    char *to = text;
    char quote = '\0';

    *argument = text;
    for (; *text != '\0' && (quote != '\0' || strchr(" \t", *text) == NULL); text++) {
        if (quote == '\0' && (*text == '\'' || *text == '"'))
            quote = *text;
        else if (*text == quote)
            quote = '\0';
        else if (*text == '\\' && quote != '\'' && text[1] != '\0')
            *to++ = *++text;
        else
            *to++ = *text;
    }
    char *rest = *text != '\0' ? text + 1 : text;
    *to = '\0';
    return quote == '\0' ? rest : NULL;
}

static enum sidestep_status split(char *text, char *arguments[MOST_ARGUMENTS + 1],
                                  struct sidestep_error *err)
{
    unsigned count = 0;

    while (*(text += strspn(text, " \t")) != '\0') {
        if (count == MOST_ARGUMENTS)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process has more than %u arguments",
                        MOST_ARGUMENTS);
        text = split_one(text, &arguments[count++]);
        if (text == NULL)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process has an open quote");
    }
    arguments[count] = NULL;
    return count != 0 ? SIDESTEP_OK : FAIL(err, SIDESTEP_EINVAL, "credential_process is empty");
}

/* With signals as a new program expects them, and its output in the pipe. */
static int spawn(char *const arguments[], int output, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    int failure = posix_spawn_file_actions_init(&actions);
    if (failure != 0)
        return failure;
    failure = posix_spawnattr_init(&attributes);
    if (failure == 0) {
        (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        (void)posix_spawnattr_setsigmask(&attributes, &none);
        (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
        failure = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        if (failure == 0)
            failure =
                posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (failure == 0)
            failure = posix_spawnp(child, arguments[0], &actions, &attributes, arguments, environ);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return failure;
}

/* Until the other end is closed.  The buffer is extended once, so that it leaves no copy. */
static enum sidestep_status read_output(int fd, struct buffer *output, struct sidestep_error *err)
{
    uint64_t end = clock_now(clock_system()) + (uint64_t)MOST_SECONDS * 1000000000u;
    uint8_t *bytes = buffer_extend(output, MOST_OUTPUT_BYTES);

    TRY(buffer_check(output, err));
    output->length = 0;
    for (;;) {
        uint64_t now = clock_now(clock_system());
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (now >= end)
            return FAIL(err, SIDESTEP_ETIMEDOUT, "credential_process runs for more than %u s",
                        MOST_SECONDS);
        int count = poll(&ready, 1, (int)((end - now) / 1000000u) + 1);
        if (count <= 0)
            continue;
        ssize_t got = read(fd, bytes + output->length, MOST_OUTPUT_BYTES - output->length);
        if (got < 0 && errno != EINTR)
            return FAIL_SYS(err, "read what credential_process prints");
        if (got == 0)
            return SIDESTEP_OK;
        output->length += got > 0 ? (size_t)got : 0;
        if (output->length == MOST_OUTPUT_BYTES)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process prints more than %zu bytes",
                        MOST_OUTPUT_BYTES - 1);
    }
}

/* The program's exit status; 0 also where somebody else took it (a handler of SIGCHLD). */
static int reap(pid_t child, bool kill_first)
{
    int status = 0;

    if (kill_first)
        (void)kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum sidestep_status credentials_run(const char *command, struct buffer *output,
                                     struct sidestep_error *err)
{
    OWNED char *text = memory_strdup(command);
    char *arguments[MOST_ARGUMENTS + 1];
    int ends[2];
    pid_t child;

    if (text == NULL)
        return FAIL_NOMEM(err, strlen(command));
    TRY(split(text, arguments, err));
    if (fault_hit("pipe") || pipe2(ends, O_CLOEXEC) != 0)
        return FAIL_SYS(err, "make a pipe for credential_process");
    OWNED_FD from = ends[0];
    int failure = fault_hit("spawn") ? errno : spawn(arguments, ends[1], &child);
    (void)close(ends[1]);
    if (failure != 0)
        return error_set(err, SIDESTEP_EPERM, failure, HERE, "run credential_process '%.100s'",
                         arguments[0]);
    enum sidestep_status status = read_output(from, output, err);
    int exit_status = reap(child, status != SIDESTEP_OK);
    if (status == SIDESTEP_OK && exit_status != 0)
        return FAIL(err, SIDESTEP_EPERM, "credential_process '%.100s' ends with exit status %d",
                    arguments[0], exit_status);
    return status;
}

enum sidestep_status credentials_from_process(const struct credentials_source *source,
                                              struct credentials_set *set,
                                              struct sidestep_error *err)
{
    OWNED_BUFFER output = {0};
    enum sidestep_status status = credentials_run(source->process, &output, err);

    if (status == SIDESTEP_OK) {
        status = credentials_parse_json((char *)output.bytes, output.length, set, err);
        if (status != SIDESTEP_OK)
            error_wrap(err, "what credential_process prints");
    } else if (output.bytes != NULL) {
        explicit_bzero(output.bytes, output.capacity);
    }
    return status;
}
