/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_process.c -- runs the credential_process of a profile, which prints credentials. */
#include "object/credentials_source.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#define MAX_ARGUMENTS 64u
#define MAX_OUTPUT_BYTES ((size_t)64 << 10)
#define MAX_SECONDS 60u

extern char **environ;

/* Decode one argument in place; returns the rest of the text.  NULL: a quote is not closed. */
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

static enum sidestep_status split(char *text, char *arguments[MAX_ARGUMENTS + 1],
                                  struct sidestep_error *err)
{
    unsigned count = 0;

    while (*(text += strspn(text, " \t")) != '\0') {
        if (count == MAX_ARGUMENTS)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process has more than %u arguments",
                        MAX_ARGUMENTS);
        text = split_one(text, &arguments[count++]);
        if (text == NULL)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process has a quote that is not closed");
    }
    arguments[count] = NULL;
    return count != 0 ? SIDESTEP_OK : FAIL(err, SIDESTEP_EINVAL, "credential_process is empty");
}

/* Start a program with default signals, whose output goes to ${output}. */
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

/* Read until the program closes its end.  The buffer is extended once, so that it leaves no copy of
 * a secret. */
static enum sidestep_status read_output(int fd, struct buffer *output, struct sidestep_error *err)
{
    uint64_t end = clock_now(clock_system()) + (uint64_t)MAX_SECONDS * 1000000000u;
    uint8_t *bytes = buffer_extend(output, MAX_OUTPUT_BYTES);

    TRY(buffer_check(output, err));
    output->length = 0;
    for (;;) {
        uint64_t now = clock_now(clock_system());
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (now >= end)
            return FAIL(err, SIDESTEP_ETIMEDOUT, "credential_process runs for more than %u s",
                        MAX_SECONDS);
        int count = poll(&ready, 1, (int)((end - now) / 1000000u) + 1);
        if (count <= 0)
            continue;
        ssize_t got = read(fd, bytes + output->length, MAX_OUTPUT_BYTES - output->length);
        if (got < 0 && errno != EINTR)
            return FAIL_SYS(err, "read the output of credential_process");
        if (got == 0)
            return SIDESTEP_OK;
        output->length += got > 0 ? (size_t)got : 0;
        if (output->length == MAX_OUTPUT_BYTES)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process prints more than %zu bytes",
                        MAX_OUTPUT_BYTES - 1);
    }
}

/* Returns the program's exit status; 0 also if a handler of SIGCHLD took it. */
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
    char *arguments[MAX_ARGUMENTS + 1];
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
    OWNED_BY(buffer_wipe) struct buffer output = {0};

    TRY(credentials_run(source->process, &output, err));
    enum sidestep_status status =
        credentials_parse_json((char *)output.bytes, output.length, set, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "the output of credential_process");
    return status;
}
