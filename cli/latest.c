/* SPDX-License-Identifier: BSD-3-Clause */
/* latest.c -- `sidestep latest`: prints only the path, for scripts; notes on checkpoints that were
 * passed over go to standard error. */
#include "verify_path.h"
#include "escape.h"
#include "json.h"
#include "output.h"
#include "progress.h"
#include "format_units.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static void json_passed(struct cli_json *json, const struct sidestep_latest_report *report)
{
    cli_json_open(json, "passed_over", '[');
    for (size_t i = 0; i < report->passed_count; i++) {
        const struct sidestep_passed_over *passed = sidestep_latest_report_passed(report, i);

        cli_json_open(json, NULL, '{');
        cli_json_text(json, "path", passed->path);
        cli_json_known(json, "step", passed->step >= 0, passed->step);
        cli_json_text(json, "state", passed->state_name);
        cli_json_text(json, "reason", passed->reason);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void print_json(const struct cli *cli, const struct sidestep_latest_report *report)
{
    struct cli_json json = cli_json_begin(cli->out);
    int64_t age = report->saved_at >= 0 ? (int64_t)time(NULL) - report->saved_at : -1;
    char when[CLI_FORMAT_UNITS_BYTES];
    bool has_time = report->saved_at >= 0 && cli_format_units_time(when, report->saved_at);

    cli_json_text(&json, "path", report->path);
    cli_json_known(&json, "step", report->step >= 0, report->step);
    cli_json_text(&json, "saved_at", has_time ? when : NULL);
    cli_json_known(&json, "age_seconds", age >= 0, age);
    cli_json_text(&json, "layout", report->layout);
    json_passed(&json, report);
    cli_json_end(&json);
}

static void print_path(const struct cli *cli, const char *path)
{
    if (isatty(STDOUT_FILENO)) {
        cli_escape_write(cli->out, path, strlen(path));
        fputc('\n', cli->out);
    } else {
        /* A script opens the path that it reads here, so it is unchanged. */
        fprintf(cli->out, "%s\n", path);
    }
}

/* Note the checkpoints that were passed over.  After a failure, the error message names them. */
static void note_passed_over(const struct cli *cli, const struct sidestep_latest_report *report)
{
    static const struct {
        const char *state;
        const char *words; /* between the path and the reason */
    } phrases[] = {{"committed", " "},
                   {"unreadable", " cannot be read: "},
                   {"foreign", ": "},
                   {"complete", ": "},
                   {"incomplete", " is incomplete: "}};

    for (size_t i = 0; i < report->passed_count; i++) {
        const struct sidestep_passed_over *passed = sidestep_latest_report_passed(report, i);
        const char *words = " is damaged: ";

        if (report->path == NULL && passed->status != SIDESTEP_OK)
            continue;
        for (size_t p = 0; p < sizeof(phrases) / sizeof(phrases[0]); p++)
            if (strcmp(passed->state_name, phrases[p].state) == 0)
                words = phrases[p].words;
        cli_output_note(cli, "passed over: '%s'%s%s", passed->path, words, passed->reason);
    }
}

int cli_latest_run(const struct cli *cli)
{
    bool reads = cli_has_option(cli, CLI_OPTION_VERIFY);
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    struct sidestep_latest_report report = {0};
    struct sidestep_error err = {0};
    struct cli_progress progress;

    if (reads)
        cli_interrupt_watch();
    cli_progress_begin(&progress, cli, cli->operands[0]);
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = cli_interrupt_flag();
    enum sidestep_status status = sidestep_find_latest(
        cli->operands[0], reads ? SIDESTEP_VERIFY_READ : SIDESTEP_VERIFY_STRUCTURE, &options,
        &report, &err);
    cli_progress_end(&progress);
    note_passed_over(cli, &report);
    if (status == SIDESTEP_OK && cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, &report);
    else if (status == SIDESTEP_OK)
        print_path(cli, report.path);
    sidestep_latest_report_release(&report);
    return status == SIDESTEP_OK ? 0 : cli_output_error(cli, &err);
}
