/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c -- draws one line with bytes, percentage, rate and time left. */
#include "progress.h"

#include "escape.h"
#include "memory.h"
#include "format_units.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll
#define REDRAW_NS (NS_PER_S / 10)
#define LINE_NS (NS_PER_S * 10)

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

void cli_progress_begin(struct cli_progress *progress, const struct cli *cli, const char *label)
{
    bool terminal = isatty(STDERR_FILENO);

    *progress = (struct cli_progress){
        .label = label,
        .terminal = terminal,
        /* With --json a program reads standard error, and expects only errors there. */
        .enabled = !cli_has_option(cli, CLI_OPTION_QUIET) &&
                   (terminal || !cli_has_option(cli, CLI_OPTION_JSON)),
        .begun_ns = now_ns(),
        .shared.busy = ATOMIC_FLAG_INIT,
    };
    progress->shared.drawn_ns = progress->begun_ns;
}

static size_t terminal_columns(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}

/* "step-12: 1.2 GiB of 4.0 GiB, 30 %, 1.1 GiB/s, 0:03 left" */
static char *describe(const struct cli_progress *progress, int64_t now, uint64_t done,
                      uint64_t total)
{
    char done_text[CLI_FORMAT_UNITS_BYTES], total_text[CLI_FORMAT_UNITS_BYTES],
        rate_text[CLI_FORMAT_UNITS_BYTES];
    char left_text[CLI_FORMAT_UNITS_BYTES] = "";
    double seconds = (double)(now - progress->begun_ns) / NS_PER_S;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    char *text = NULL;
    size_t length = 0;
    FILE *stream = cli_memory_stream(&text, &length);

    cli_format_units_size(done_text, done);
    cli_format_units_size(total_text, total);
    cli_format_units_size(rate_text, (uint64_t)rate);
    cli_escape_write(stream, progress->label, strlen(progress->label));
    fprintf(stream, ": %s of %s", done_text, total_text);
    if (total > 0)
        fprintf(stream, ", %.0f %%", (double)done * 100 / (double)total);
    fprintf(stream, ", %s/s", rate_text);
    if (rate > 0 && total >= done) {
        cli_format_units_duration(left_text, (uint64_t)((double)(total - done) / rate));
        fprintf(stream, ", %s left", left_text);
    }
    cli_memory_stream_close(stream);
    return text;
}

void cli_progress_update(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct cli_progress *progress = context;
    int64_t now;

    if (!progress->enabled)
        return;
    /* Another thread is drawing, and will draw this thread's progress soon. */
    if (atomic_flag_test_and_set(&progress->shared.busy))
        return;
    now = now_ns();
    if (now - progress->shared.drawn_ns >= (progress->terminal ? REDRAW_NS : LINE_NS)) {
        char *text = describe(progress, now, done_bytes, total_bytes);

        if (progress->terminal) {
            cli_escape_truncate(text, terminal_columns() - 1);
            fprintf(stderr, "\r\033[K%s", text);
        } else {
            fprintf(stderr, "%s\n", text);
        }
        fflush(stderr);
        free(text);
        progress->shared.drawn_ns = now;
        progress->shared.line_open = progress->terminal;
    }
    atomic_flag_clear(&progress->shared.busy);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->shared.line_open) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}
