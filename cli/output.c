/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * output.c -- prints results, notes and errors.
 *
 * A lost result must not look like a success.  So every failed write of results is noticed at once,
 * with its errno, which stdio would lose between printf() and exit.
 */
#include "output.h"

#include "escape.h"
#include "memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* End the process without exit handlers, because stdio holds a lock of the failed stream. */
static void __attribute__((noreturn)) results_failed(int reason)
{
    if (reason == EPIPE)
        _exit(CLI_EXIT_STATUS_PIPE);
    dprintf(STDERR_FILENO, "sidestep: write to standard output: %s\n", strerror(reason));
    _exit(reason == ENOSPC || reason == EDQUOT ? sidestep_status_exit(SIDESTEP_ENOSPC)
                                               : CLI_EXIT_STATUS_FAILED);
}

static ssize_t results_write(void *cookie, const char *bytes, size_t length)
{
    size_t done = 0;

    (void)cookie;
    while (done < length) {
        ssize_t written = write(STDOUT_FILENO, bytes + done, length - done);

        if (written < 0 && errno != EINTR)
            results_failed(errno);
        if (written > 0)
            done += (size_t)written;
    }
    return (ssize_t)length;
}

FILE *cli_output_open(void)
{
    FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = results_write});

    if (out == NULL)
        cli_memory_exhausted();
    setvbuf(out, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, 65536);
    return out;
}

int cli_output_close(FILE *out, int status)
{
    (void)fclose(out); /* flushes; results_write() handles failures */
    /* Network file systems and quotas may report a lost write only here. */
    if (close(STDOUT_FILENO) != 0 && errno != EBADF)
        results_failed(errno);
    return status;
}

bool cli_output_wants_color(const char *choice)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

    if (choice != NULL && strcmp(choice, "auto") != 0)
        return strcmp(choice, "always") == 0;
    if (no_color != NULL && no_color[0] != '\0')
        return false;
    return isatty(STDOUT_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
}

static void __attribute__((format(printf, 3, 0)))
set_message(struct sidestep_error *err, enum sidestep_status status, const char *format,
            va_list arguments)
{
    *err = (struct sidestep_error){.status = (int32_t)status, .rank = -1};
    vsnprintf(err->message, sizeof(err->message), format, arguments);
}

enum sidestep_status cli_error_set(struct sidestep_error *err, enum sidestep_status status,
                                   const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_message(err, status, format, arguments);
    va_end(arguments);
    return status;
}

void cli_error_append(struct sidestep_error *err, const char *advice)
{
    size_t used = strlen(err->message);

    snprintf(err->message + used, sizeof(err->message) - used, "%s", advice);
}

static const char *status_name(int status)
{
    static const char *const names[] = {
#define STATUS_NAME(name, exit_status, text) #name,
        SIDESTEP_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    };

    if (status < 0 || (size_t)status >= sizeof(names) / sizeof(names[0]))
        return "EUNKNOWN";
    return names[status];
}

/* Use one write, so that lines of processes that share a terminal or a log do not mix. */
static void write_line(const char *before, const char *text, const char *after)
{
    fputs(before, stderr);
    cli_escape_write(stderr, text, strlen(text));
    fputs(after, stderr);
    fputc('\n', stderr);
    fflush(stderr);
}

/* The message of an error, or of its status if the message is empty. */
static const char *message_of(const struct sidestep_error *err)
{
    return err->message[0] != '\0' ? err->message
                                   : sidestep_status_text((enum sidestep_status)err->status);
}

void cli_output_json_error(struct cli_json *json, const struct sidestep_error *err)
{
    cli_json_open(json, "error", '{');
    cli_json_text(json, "status", status_name(err->status));
    cli_json_text(json, "message", message_of(err));
    cli_json_int(json, "errno", err->sys_errno);
    cli_json_int(json, "rank", err->rank);
    cli_json_close(json, '}');
}

int cli_output_error(const struct cli *cli, const struct sidestep_error *err)
{
    (void)fflush(cli->out);
    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        struct cli_json json = cli_json_begin(stderr);

        cli_output_json_error(&json, err);
        cli_json_end(&json);
        fflush(stderr);
    } else {
        char after[64] = "";

        if (cli_has_option(cli, CLI_OPTION_VERBOSE) && err->where[0] != '\0')
            snprintf(after, sizeof(after), " (%.40s)", err->where);
        write_line("sidestep: ", message_of(err), after);
    }
    /* An error whose status is OK is a bug of the caller; treat it as a failure. */
    return err->status == SIDESTEP_OK ? CLI_EXIT_STATUS_FAILED
                                      : sidestep_status_exit((enum sidestep_status)err->status);
}

int cli_output_usage(const struct cli *cli, const char *format, ...)
{
    struct sidestep_error err;
    va_list arguments;
    int status;

    va_start(arguments, format);
    set_message(&err, SIDESTEP_EINVAL, format, arguments);
    va_end(arguments);
    status = cli_output_error(cli, &err);
    if (!cli_has_option(cli, CLI_OPTION_JSON))
        fprintf(stderr, "Try 'sidestep help%s%s'.\n", cli->command != NULL ? " " : "",
                cli->command != NULL ? cli->command->name : "");
    return status;
}

static void write_note(const struct cli *cli, const char *format, va_list arguments)
{
    char text[1024];

    vsnprintf(text, sizeof(text), format, arguments);
    (void)fflush(cli->out);
    write_line("sidestep: ", text, "");
}

void cli_output_note(const struct cli *cli, const char *format, ...)
{
    va_list arguments;

    if (cli_has_option(cli, CLI_OPTION_QUIET) || cli_has_option(cli, CLI_OPTION_JSON))
        return;
    va_start(arguments, format);
    write_note(cli, format, arguments);
    va_end(arguments);
}

void cli_output_warning(const struct cli *cli, const char *format, ...)
{
    va_list arguments;

    if (cli_has_option(cli, CLI_OPTION_JSON))
        return;
    va_start(arguments, format);
    write_note(cli, format, arguments);
    va_end(arguments);
}

/* Replace the file ${path} by ${text}, in one step. */
static int replace_file(const struct cli *cli, const char *path, const char *text, size_t length)
{
    struct sidestep_error err = {0};
    size_t bytes = strlen(path) + sizeof(".XXXXXX");
    char *other = cli_memory_alloc(bytes);
    int saved;

    snprintf(other, bytes, "%s.XXXXXX", path);
    int fd = mkstemp(other);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file != NULL && fwrite(text, 1, length, file) == length && fchmod(fd, 0644) == 0;
    saved = errno;
    if (file != NULL && fclose(file) != 0 && written) {
        written = false;
        saved = errno;
    }
    if (written && rename(other, path) != 0) {
        written = false;
        saved = errno;
    }
    if (!written && fd >= 0)
        (void)unlink(other);
    free(other);
    if (written)
        return 0;
    cli_error_set(&err, saved == ENOSPC ? SIDESTEP_ENOSPC : SIDESTEP_EIO,
                  "%s: write '%s': %s; the file is as it was", cli->command->name, path,
                  strerror(saved));
    err.sys_errno = saved;
    return cli_output_error(cli, &err);
}

int cli_output_document(const struct cli *cli, const char *text, size_t length)
{
    if (cli_has_option(cli, CLI_OPTION_OUT))
        return replace_file(cli, cli->options[CLI_OPTION_OUT], text, length);
    fwrite(text, 1, length, cli->out);
    return 0;
}
