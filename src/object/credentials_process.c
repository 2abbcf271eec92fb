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
#define MAX_PAUSE_MS 20       /* between looks whether it has ended */
#define KILL_NS 2000000000ull /* for it to end, once it is killed */

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

/* A program that runs, in a process group of its own: what it starts ends with it. */
struct run {
    pid_t child;
    int output;
    uint64_t end_ns; /* when it is killed */
    bool is_closed;  /* it has closed its output */
};

/* Start a program with default signals, whose output goes to ${output}. */
static int spawn(char *const arguments[], int output, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGCHLD);
    int failure = posix_spawn_file_actions_init(&actions);
    if (failure != 0)
        return failure;
    failure = posix_spawnattr_init(&attributes);
    if (failure == 0) {
        (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                        POSIX_SPAWN_SETPGROUP);
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

enum state {
    RUNNING,
    ENDED, /* it stays a zombie, so that its number stays its own */
    GONE,  /* somebody else has reaped it: a handler of SIGCHLD, or the kernel if that is ignored */
};

static enum state state_of(const struct run *run)
{
    siginfo_t info = {.si_pid = 0};
    long failed =
        TEMP_FAILURE_RETRY(waitid(P_PID, (id_t)run->child, &info, WEXITED | WNOHANG | WNOWAIT));

    if (failed != 0)
        return GONE;
    return info.si_pid != 0 ? ENDED : RUNNING;
}

/* Read what there is. */
static enum sidestep_status read_some(struct run *run, struct buffer *output, uint8_t *bytes,
                                      struct sidestep_error *err)
{
    while (!run->is_closed) {
        ssize_t got = read(run->output, bytes + output->length, MAX_OUTPUT_BYTES - output->length);
        if (got < 0 && errno == EAGAIN)
            return SIDESTEP_OK;
        if (got < 0 && errno != EINTR)
            return FAIL_SYS(err, "read the output of credential_process");
        run->is_closed = got == 0;
        output->length += got > 0 ? (size_t)got : 0;
        if (output->length == MAX_OUTPUT_BYTES)
            return FAIL(err, SIDESTEP_EINVAL, "credential_process prints more than %zu bytes",
                        MAX_OUTPUT_BYTES - 1);
    }
    return SIDESTEP_OK;
}

/* Read until the program has ended, whatever it leaves running.  The buffer is extended once, so
 * that it leaves no copy of a secret. */
static enum sidestep_status read_output(struct run *run, struct buffer *output,
                                        struct sidestep_error *err)
{
    uint8_t *bytes = buffer_extend(output, MAX_OUTPUT_BYTES);
    int pause_ms = 1;

    TRY(buffer_check(output, err));
    output->length = 0;
    for (;;) {
        bool is_last = state_of(run) != RUNNING; /* before the read, which then gets all of it */
        TRY(read_some(run, output, bytes, err));
        if (is_last)
            return SIDESTEP_OK;
        if (clock_now(clock_system()) >= run->end_ns ||
            (run->is_closed && fault_hit("credentials.closed")))
            return FAIL(err, SIDESTEP_ETIMEDOUT, "credential_process runs for more than %u s",
                        MAX_SECONDS);
        struct pollfd ready = {.fd = run->is_closed ? -1 : run->output, .events = POLLIN};
        (void)poll(&ready, 1, pause_ms);
        pause_ms = pause_ms < MAX_PAUSE_MS ? pause_ms * 2 : pause_ms;
    }
}

/* Kill the program, and what it has started.  It is not waited for without limit: one that hangs in
 * the kernel stays a zombie. */
static void end(const struct run *run)
{
    uint64_t end_ns = clock_now(clock_system()) + KILL_NS;

    if (state_of(run) == GONE)
        return; /* its number may be another process's by now */
    (void)kill(-run->child, SIGKILL);
    while (state_of(run) == RUNNING && clock_now(clock_system()) < end_ns)
        clock_system()->sleep_ms(clock_system(), 1);
}

/* Returns the program's exit status; 0 also if somebody else took it. */
static int reap(const struct run *run)
{
    int status = 0;

    if (TEMP_FAILURE_RETRY(waitpid(run->child, &status, WNOHANG)) <= 0)
        return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum sidestep_status credentials_run(const char *command, struct buffer *output,
                                     struct sidestep_error *err)
{
    OWNED char *text = memory_strdup(command);
    char *arguments[MAX_ARGUMENTS + 1];
    int ends[2];

    if (text == NULL)
        return FAIL_NOMEM(err, strlen(command));
    TRY(split(text, arguments, err));
    if (fault_hit("pipe") || pipe2(ends, O_CLOEXEC) != 0)
        return FAIL_SYS(err, "make a pipe for credential_process");
    OWNED_FD from = ends[0];
    (void)fcntl(from, F_SETFL, O_NONBLOCK); /* this end only */
    struct run run = {.output = from,
                      .end_ns = clock_now(clock_system()) + MAX_SECONDS * 1000000000ull};
    int failure = fault_hit("spawn") ? errno : spawn(arguments, ends[1], &run.child);
    (void)close(ends[1]);
    if (failure != 0)
        return error_set(err, SIDESTEP_EPERM, failure, HERE, "run credential_process '%.*s'",
                         (int)min_u64(strcspn(arguments[0], "="), 100), arguments[0]);
    enum sidestep_status status = read_output(&run, output, err);
    if (status != SIDESTEP_OK)
        end(&run);
    int exit_status = reap(&run);
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
