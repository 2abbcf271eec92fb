/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report.c -- `sidestep report`: one page about a root: health, checkpoints, saves over time, what
 * they cost, and the last events.
 *
 * Everything comes from storage.  Without a log of events, the page has what the checkpoints tell.
 */
#include "event_log.h"
#include "format_units.h"
#include "health.h"
#include "html.h"
#include "memory.h"
#include "output.h"
#include "report_saves.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#define MAX_ROWS 500u   /* of checkpoints */
#define MAX_EVENTS 100u /* in the table */
#define MAX_MARKS 2000u /* in the chart */
#define CHART_WIDTH 1000.0
#define CHART_HEIGHT 120.0

struct report {
    FILE *out;
    struct cli_health_look health;
    struct cli_event_log log;
    struct cli_report_saves saves;
};

/* ---- what is not as it should be */

static void print_health(const struct report *r)
{
    static const char *const styles[] = {[CLI_HEALTH_OK] = "good",
                                         [CLI_HEALTH_WARNING] = "warn",
                                         [CLI_HEALTH_CRITICAL] = "bad",
                                         [CLI_HEALTH_UNKNOWN] = "bad"};
    const struct cli_health_look *health = &r->health;
    enum cli_health worst = cli_health_of(health);

    fprintf(r->out, "<p class=\"%s\"><b>%s</b></p>\n", styles[worst], cli_health_name(worst));
    if (health->finding_count != 0)
        fputs("<ul>", r->out);
    for (size_t i = 0; i < health->finding_count; i++) {
        fprintf(r->out, "<li class=\"%s\">", styles[health->findings[i].level]);
        cli_html_text(r->out, health->findings[i].text);
        fputs("</li>\n", r->out);
    }
    if (health->finding_count != 0)
        fputs("</ul>\n", r->out);
}

static void __attribute__((format(printf, 3, 4)))
print_tile(const struct report *r, const char *what, const char *format, ...)
{
    char text[128];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fputs("<div class=\"tile\"><b>", r->out);
    cli_html_text(r->out, text);
    fprintf(r->out, "</b><span class=\"dim\">%s</span></div>\n", what);
}

static void print_tiles(const struct report *r)
{
    const struct cli_health_look *health = &r->health;
    const struct cli_report_saves *saves = &r->saves;
    char text[CLI_FORMAT_UNITS_BYTES];

    fputs("<div class=\"tiles\">\n", r->out);
    if (health->step >= 0)
        print_tile(r, "newest step", "%" PRId64, health->step);
    if (health->saved_at >= 0) {
        cli_format_units_age(text, health->now - health->saved_at);
        print_tile(r, "since it was saved", "%s", text);
    }
    print_tile(r, "checkpoints to resume from", "%" PRIu64, health->kept);
    cli_format_units_size(text, health->bytes);
    print_tile(r, "stored", "%s", text);
    if (health->has_space) {
        cli_format_units_size(text, health->free_bytes);
        print_tile(r, "free", "%s", text);
    }
    if (r->log.count != 0) {
        print_tile(r, "saves committed", "%" PRIu64, saves->committed);
        print_tile(r, "saves failed", "%" PRIu64, saves->failed);
        print_tile(r, "starts, of which after a kill", "%" PRIu64 ", %" PRIu64, saves->starts,
                   saves->broken);
    }
    fputs("</div>\n", r->out);
}

/* ---- what saves cost */

static void print_costs(const struct report *r)
{
    const struct cli_report_saves *saves = &r->saves;
    double count = (double)saves->committed, span = saves->to - saves->from;
    double interval = cli_report_saves_interval(saves);
    char size[CLI_FORMAT_UNITS_BYTES];

    if (saves->committed == 0)
        return;
    cli_format_units_size(size,
                          saves->background > 0 ? (uint64_t)(saves->bytes / saves->background) : 0);
    fprintf(r->out,
            "<h2>What saves cost</h2>\n<p>Training waited %.3f s for %" PRIu64
            " saves, %.4f s each and %.4f s at most, which is %.3f %% of the time that the log "
            "covers. In the background a save took %.2f s; %s per second were written.</p>\n",
            saves->call, saves->committed, saves->call / count, saves->longest,
            span > 0 ? 100 * saves->call / span : 0.0, saves->background / count, size);
    if (saves->slowest_rank > 0)
        fprintf(r->out, "<p>The longest wait was that of rank %" PRId64 ": %.4f s.</p>\n",
                saves->slowest_rank, saves->slowest);
    if (interval > 0)
        fprintf(r->out,
                "<p>The job was killed every %.0f s. The interval between saves that loses least "
                "is then %.0f s (the square root of 2 x %.4f s x %.0f s, but no shorter than a "
                "save takes); they came every %.0f s.</p>\n",
                span / (double)saves->broken, interval, saves->call / count,
                span / (double)saves->broken, span / count);
}

/* ---- saves over time */

struct chart {
    FILE *out;
    const struct cli_report_saves *saves;
};

static double x_of(const struct chart *chart, double time)
{
    double span = chart->saves->to - chart->saves->from;

    return span > 0 ? (time - chart->saves->from) / span * (CHART_WIDTH - 8) + 4 : 4;
}

static void print_mark(const struct chart *chart, const struct cli_event *event, const char *color,
                       double height, double wait)
{
    char when[CLI_FORMAT_UNITS_BYTES];

    (void)cli_format_units_time(when, (int64_t)event->time);
    fprintf(chart->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"3\" height=\"%.1f\" fill=\"var(--%s)\"><title>",
            x_of(chart, event->time) - 1.5, CHART_HEIGHT - height, height, color);
    fprintf(chart->out, "%s ", when);
    cli_html_text(chart->out, event->kind);
    if (event->step >= 0)
        fprintf(chart->out, ", step %" PRId64, event->step);
    if (wait >= 0)
        fprintf(chart->out, ", training waited %.4f s", wait);
    fputs("</title></rect>\n", chart->out);
}

static void print_event_mark(const struct chart *chart, const struct cli_event *event)
{
    double wait = cli_event_number(event, "call_ns") / 1e9;
    double share = chart->saves->longest > 0 ? fmin(wait / chart->saves->longest, 1) : 0;

    if (strcmp(event->kind, "committed") == 0)
        print_mark(chart, event, "bar", 4 + fmax(share, 0) * (CHART_HEIGHT - 30), wait);
    else if (strcmp(event->kind, "aborted") == 0 || strcmp(event->kind, "unknown") == 0)
        print_mark(chart, event, "bad", CHART_HEIGHT - 10, wait);
    else if (strcmp(event->kind, "resumed") == 0)
        print_mark(chart, event, "good", CHART_HEIGHT - 10, -1);
}

static void print_chart(const struct report *r)
{
    const struct chart chart = {.out = r->out, .saves = &r->saves};
    char from[CLI_FORMAT_UNITS_BYTES], to[CLI_FORMAT_UNITS_BYTES];
    size_t marks = 0, first = r->log.count;

    if (r->log.count == 0)
        return;
    while (first > 0 && marks < MAX_MARKS)
        marks += r->log.events[--first].rank == 0;
    (void)cli_format_units_time(from, (int64_t)r->saves.from);
    (void)cli_format_units_time(to, (int64_t)r->saves.to);
    fprintf(r->out,
            "<h2>Saves over time</h2>\n<p class=\"dim\">A bar is a save, as high as the training "
            "waited (the highest: %.4f s); <span class=\"bad\">red</span>: it failed; <span "
            "class=\"good\">green</span>: the job resumed.</p>\n"
            "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"saves over time\">"
            "<line class=\"axis\" x1=\"0\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>"
            "<text x=\"4\" y=\"%.0f\">%s</text><text x=\"%.0f\" y=\"%.0f\" "
            "text-anchor=\"end\">%s</text>\n",
            r->saves.longest, CHART_WIDTH, CHART_HEIGHT + 20, CHART_WIDTH, CHART_HEIGHT,
            CHART_HEIGHT, CHART_HEIGHT + 15, from, CHART_WIDTH - 4, CHART_HEIGHT + 15, to);
    for (size_t i = first; i < r->log.count; i++)
        if (r->log.events[i].rank == 0)
            print_event_mark(&chart, &r->log.events[i]);
    fputs("</svg>\n", r->out);
}

/* ---- checkpoints */

/* Print one of the notes on a checkpoint. */
static void print_note(FILE *out, bool *is_first, const char *before, const char *text)
{
    fprintf(out, "%s%s", *is_first ? "" : "; ", before);
    cli_html_text(out, text);
    *is_first = false;
}

static void print_notes(FILE *out, const struct sidestep_listed *entry)
{
    char number[CLI_FORMAT_UNITS_BYTES];
    bool is_first = true;

    fputs("<td class=\"text\">", out);
    if (entry->kept != NULL && strcmp(entry->kept, "all") != 0 &&
        strcmp(entry->kept, "unknown") != 0)
        print_note(out, &is_first, "kept: ", entry->kept_because);
    else if (entry->is_pinned)
        print_note(out, &is_first, "", "pinned");
    if (entry->is_abandoned)
        print_note(out, &is_first, "", "left behind by a resume");
    for (uint32_t i = 0; i < entry->tag_count; i++)
        print_note(out, &is_first, "", entry->tags[i]);
    for (uint32_t i = 0; i < entry->metric_count; i++) {
        print_note(out, &is_first, "", entry->metrics[i].name);
        cli_format_units_real(number, entry->metrics[i].value);
        fprintf(out, "=%s", number);
    }
    if (entry->reason != NULL)
        print_note(out, &is_first, "", entry->reason);
    fputs("</td>", out);
}

static const char *style_of(enum sidestep_presence state)
{
    switch (state) {
    case SIDESTEP_COMMITTED:
    case SIDESTEP_COMPLETE:
        return "good";
    case SIDESTEP_SAVING:
    case SIDESTEP_PART:
        return "warn";
    case SIDESTEP_DEAD:
    case SIDESTEP_TRASH:
    case SIDESTEP_FOREIGN:
        return "dim";
    default:
        return "bad";
    }
}

static void print_row(FILE *out, const struct sidestep_listed *entry)
{
    char text[CLI_FORMAT_UNITS_BYTES];

    fputs("<tr>", out);
    cli_html_cell(out, "text", entry->target != NULL ? entry->target : entry->name);
    snprintf(text, sizeof(text), "%" PRId64, entry->step);
    cli_html_cell(out, "number", entry->step >= 0 ? text : NULL);
    cli_html_cell(out, style_of(entry->state), entry->state_name);
    cli_html_cell(out, NULL,
                  entry->saved_at >= 0 && cli_format_units_time(text, entry->saved_at) ? text
                                                                                       : NULL);
    cli_format_units_size(text, entry->bytes);
    cli_html_cell(out, "number", entry->state != SIDESTEP_UNREADABLE ? text : NULL);
    print_notes(out, entry);
    fputs("</tr>\n", out);
}

static void print_checkpoints(const struct report *r)
{
    static const char *const heads[] = {"name", "step", "state", "saved", "size", "notes", NULL};
    size_t shown = 0;

    fputs("<h2>Checkpoints</h2>\n", r->out);
    cli_html_heads(r->out, heads);
    for (size_t i = r->health.list.count; i-- > 0 && shown < MAX_ROWS; shown++)
        print_row(r->out, sidestep_list_entry(&r->health.list, i));
    cli_html_end_table(r->out);
    if (r->health.list.count > shown)
        fprintf(r->out, "<p class=\"dim\">and %zu more; sidestep ls prints all.</p>\n",
                r->health.list.count - shown);
}

/* ---- the last events */

static bool is_routine(const struct cli_event *event)
{
    static const char *const kinds[] = {"started", "staged", "released", "written", "huge_pages"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(event->kind, kinds[i]) == 0)
            return true;
    return false;
}

static void print_event(FILE *out, const struct cli_event *event)
{
    char text[CLI_FORMAT_UNITS_BYTES];

    fputs("<tr>", out);
    (void)cli_format_units_time(text, (int64_t)event->time);
    cli_html_cell(out, NULL, text);
    snprintf(text, sizeof(text), "%" PRId64, event->rank);
    cli_html_cell(out, "number", text);
    cli_html_cell(out, NULL, event->kind);
    snprintf(text, sizeof(text), "%" PRId64, event->step);
    cli_html_cell(out, "number", event->step >= 0 ? text : NULL);
    cli_html_cell(out, "text", cli_event_string(event, "message"));
    fputs("</tr>\n", out);
}

static void print_events(const struct report *r)
{
    static const char *const heads[] = {"time", "rank", "event", "step", "message", NULL};
    size_t shown = 0;

    if (r->log.count == 0) {
        fputs("<p class=\"dim\">No events are kept here, so costs and failures are not known."
              "</p>\n",
              r->out);
        return;
    }
    fputs("<h2>The last events</h2>\n", r->out);
    cli_html_heads(r->out, heads);
    for (size_t i = r->log.count; i-- > 0 && shown < MAX_EVENTS;)
        if (!is_routine(&r->log.events[i])) {
            print_event(r->out, &r->log.events[i]);
            shown++;
        }
    cli_html_end_table(r->out);
}

static void print_page(const struct report *r)
{
    char when[CLI_FORMAT_UNITS_BYTES];

    cli_html_begin(r->out, r->health.root);
    fputs("<h1>Checkpoints in ", r->out);
    cli_html_text(r->out, r->health.root);
    fputs("</h1>\n", r->out);
    print_health(r);
    print_tiles(r);
    print_chart(r);
    print_costs(r);
    print_checkpoints(r);
    print_events(r);
    (void)cli_format_units_time(when, r->health.now);
    fprintf(r->out, "<p class=\"dim\">As of %s, by sidestep %s. Times are in UTC.</p>\n", when,
            sidestep_version());
    cli_html_end(r->out);
}

/* There is nothing to report about: say why, as ls does. */
static int fail_unlisted(const struct cli *cli, struct cli_health_look *health)
{
    int status = cli_output_error(cli, &health->unlisted);

    cli_health_release(health);
    return status;
}

int cli_report_run(const struct cli *cli)
{
    const struct cli_health_limits limits = {.min_kept = 1};
    struct report r = {.log = {.root = cli->operands[0]}};
    struct sidestep_error err = {0};
    char *text = NULL;
    size_t length = 0;

    (void)cli_health_look_all(cli, &limits, &r.health);
    if (!r.health.is_up)
        return fail_unlisted(cli, &r.health);
    (void)cli_event_log_next(&r.log, &err); /* without it the page says so */
    cli_report_saves_sum(&r.log, &r.saves);
    r.out = cli_memory_stream(&text, &length);
    print_page(&r);
    cli_memory_stream_close(r.out);
    int status = cli_output_document(cli, text, length);
    free(text);
    cli_event_log_release(&r.log);
    cli_health_release(&r.health);
    return status;
}
