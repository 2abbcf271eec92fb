/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c -- `sidestep events`: prints what a series has done, from the log beside it. */
#include "arguments.h"
#include "escape.h"
#include "event_log.h"
#include "format_units.h"
#include "output.h"
#include "table.h"
#include "verify_path.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

static const char *style_of(const struct cli *cli, const struct cli_event *event)
{
    static const char *const bad[] = {"aborted", "load_failed", "delete_failed", "note_failed",
                                      "mirror_failed"};
    static const char *const doubtful[] = {"unknown", "rejected", "skipped", "abandoned",
                                           "not_mirrored"};

    if (!cli->color)
        return NULL;
    if (strcmp(event->kind, "committed") == 0)
        return CLI_STYLE_GREEN;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (strcmp(event->kind, bad[i]) == 0)
            return CLI_STYLE_RED;
    for (size_t i = 0; i < sizeof(doubtful) / sizeof(doubtful[0]); i++)
        if (strcmp(event->kind, doubtful[i]) == 0)
            return CLI_STYLE_YELLOW;
    return NULL;
}

static void write_field(FILE *out, const char *before, const char *text)
{
    if (text == NULL)
        return;
    fputs(before, out);
    cli_escape_write(out, text, strlen(text));
}

/* ", 1.2 GiB; training waited 0.012 s, 1.30 s in the background" */
static void write_cost(FILE *out, const struct cli_event *event)
{
    char size[CLI_FORMAT_UNITS_BYTES];
    double bytes = cli_event_number(event, "bytes"), call = cli_event_number(event, "call_ns"),
           write = cli_event_number(event, "write_ns"),
           commit = cli_event_number(event, "commit_ns");

    if (bytes >= 0) {
        cli_format_units_size(size, (uint64_t)bytes);
        fprintf(out, "  %s", size);
    }
    if (strcmp(event->kind, "committed") == 0 && call >= 0 && write >= 0 && commit >= 0)
        fprintf(out, "  training waited %.3f s, then %.2f s in the background", call / 1e9,
                (write + commit) / 1e9);
}

static void print_event(const struct cli *cli, const struct cli_event *event)
{
    char when[CLI_FORMAT_UNITS_BYTES], kind[24];
    double ranks = cli_event_number(event, "ranks"), start = cli_event_number(event, "incarnation"),
           lost = cli_event_number(event, "lost_steps");

    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        fprintf(cli->out, "%s\n", event->text);
        return;
    }
    (void)cli_format_units_time(when, (int64_t)event->time);
    fprintf(cli->out, "%s  rank %-4" PRId64 "  ", when, event->rank);
    snprintf(kind, sizeof(kind), "%-13s", event->kind);
    char *shown = cli_escape_text(kind);
    cli_table_style(cli->out, style_of(cli, event), shown);
    free(shown);
    if (event->step >= 0)
        fprintf(cli->out, "  step %" PRId64, event->step);
    else
        write_field(cli->out, "  ", event->path);
    if (ranks >= 0)
        fprintf(cli->out, "  start %.0f, %.0f rank%s", start, ranks, ranks == 1 ? "" : "s");
    write_field(cli->out, " on ", cli_event_string(event, "host"));
    write_field(cli->out, " from ", cli_event_string(event, "from"));
    write_cost(cli->out, event);
    if (lost >= 0)
        fprintf(cli->out, "  %.0f step%s lost", lost, lost == 1 ? "" : "s");
    write_field(cli->out, ", was ", cli_event_string(event, "before"));
    write_field(cli->out, "  ", cli_event_string(event, "why"));
    write_field(cli->out, " to ", cli_event_string(event, "to"));
    write_field(cli->out, "  ", cli_event_string(event, "message"));
    fputc('\n', cli->out);
}

int cli_events_run(const struct cli *cli)
{
    struct cli_event_log log = {.root = cli->operands[0]};
    struct sidestep_error err = {0};
    bool follows = cli_has_option(cli, CLI_OPTION_FOLLOW);
    enum sidestep_status status;

    cli_interrupt_watch();
    while ((status = cli_event_log_next(&log, &err)) == SIDESTEP_OK) {
        for (size_t i = 0; i < log.count; i++)
            print_event(cli, &log.events[i]);
        fflush(cli->out);
        if (!follows || cli_interrupt_received())
            break;
        sleep(1);
    }
    cli_event_log_release(&log);
    return status == SIDESTEP_OK ? 0 : cli_output_error(cli, &err);
}
