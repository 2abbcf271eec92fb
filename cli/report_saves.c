/* SPDX-License-Identifier: BSD-3-Clause */
/* report_saves.c -- sums up the events of a series; see report_saves.h. */
#include "report_saves.h"

#include <math.h>

static void add_committed(struct cli_report_saves *saves, const struct cli_event *event)
{
    double call = fmax(cli_event_number(event, "call_ns"), 0) / 1e9;
    double write = fmax(cli_event_number(event, "write_ns"), 0) / 1e9;
    double commit = fmax(cli_event_number(event, "commit_ns"), 0) / 1e9;

    saves->committed++;
    saves->call += call;
    saves->longest = fmax(saves->longest, call);
    saves->background += write + commit;
    saves->bytes += fmax(cli_event_number(event, "bytes"), 0);
}

void cli_report_saves_sum(const struct cli_event_log *log, struct cli_report_saves *saves)
{
    bool is_open = false;

    *saves = (struct cli_report_saves){.slowest_rank = -1};
    for (size_t i = 0; i < log->count; i++) {
        const struct cli_event *event = &log->events[i];
        double call = cli_event_number(event, "call_ns") / 1e9;

        if (call > saves->slowest) {
            saves->slowest = call;
            saves->slowest_rank = event->rank;
        }
        if (event->rank != 0)
            continue;
        if (strcmp(event->kind, "committed") == 0)
            add_committed(saves, event);
        saves->failed += strcmp(event->kind, "aborted") == 0 || strcmp(event->kind, "unknown") == 0;
        saves->resumes += strcmp(event->kind, "resumed") == 0;
        if (strcmp(event->kind, "opened") == 0) {
            saves->starts++;
            saves->broken += is_open;
            is_open = true;
        }
        if (strcmp(event->kind, "closed") == 0)
            is_open = false;
    }
    if (log->count != 0) {
        saves->from = log->events[0].time;
        saves->to = log->events[log->count - 1].time;
    }
}

double cli_report_saves_interval(const struct cli_report_saves *saves)
{
    if (saves->broken == 0 || saves->committed == 0)
        return 0;
    double mtbf = (saves->to - saves->from) / (double)saves->broken;
    double cost = saves->call / (double)saves->committed;

    return fmax(sqrt(2 * cost * mtbf), saves->background / (double)saves->committed);
}
