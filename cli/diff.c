/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff.c -- `sidestep diff`: compares two checkpoints.
 *
 * Its exit status is that of diff(1) and cmp(1): 0 the same, 1 different.  So a failure without a
 * status of its own, 1 in other commands, is 2 here.
 */
#include "arguments.h"
#include "verify_path.h"
#include "escape.h"
#include "json.h"
#include "output.h"
#include "progress.h"
#include "table.h"
#include "format_units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_THREADS 1024
#define STATUS_DIFFERENT 1
#define STATUS_FAILED 2

static bool is_data(const struct sidestep_difference *difference)
{
    return strcmp(difference->kind, "data") == 0;
}

static void json_numbers(struct cli_json *json, const struct sidestep_difference *difference)
{
    if (!is_data(difference)) {
        cli_json_null(json, "elements");
        cli_json_null(json, "max_abs");
        cli_json_null(json, "max_rel");
        cli_json_null(json, "first");
        return;
    }
    cli_json_uint(json, "elements", difference->element_count);
    if (isnan(difference->max_abs)) {
        cli_json_null(json, "max_abs");
        cli_json_null(json, "max_rel");
    } else {
        cli_json_real(json, "max_abs", difference->max_abs);
        cli_json_real(json, "max_rel", difference->max_rel);
    }
    cli_json_open(json, "first", '[');
    for (uint32_t d = 0; d < difference->ndim; d++)
        cli_json_int(json, NULL, difference->first[d]);
    cli_json_close(json, ']');
}

static void print_json(const struct cli *cli, const struct sidestep_diff_report *report)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_bool(&json, "same", report->is_same);
    cli_json_uint(&json, "same_count", report->same_count);
    cli_json_uint(&json, "same_by_hash", report->same_by_hash);
    cli_json_uint(&json, "read_bytes", report->read_bytes);
    cli_json_open(&json, "differences", '[');
    for (size_t i = 0; i < report->difference_count; i++) {
        const struct sidestep_difference *difference = sidestep_diff_report_difference(report, i);

        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "name", difference->name);
        cli_json_text(&json, "kind", difference->kind);
        cli_json_text(&json, "message", difference->message);
        json_numbers(&json, difference);
        cli_json_close(&json, '}');
    }
    cli_json_close(&json, ']');
    cli_json_end(&json);
}

static void add_real(struct cli_table *table, double number)
{
    char text[CLI_FORMAT_UNITS_BYTES];

    snprintf(text, sizeof(text), "%.3g", number);
    cli_table_add(table, NULL, isnan(number) ? "-" : text);
}

static void add_index(struct cli_table *table, const struct sidestep_difference *difference)
{
    char text[160];
    size_t used = (size_t)snprintf(text, sizeof(text), "[");

    for (uint32_t d = 0; d < difference->ndim && used < sizeof(text); d++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRId64, d != 0 ? ", " : "",
                                 difference->first[d]);
    if (used < sizeof(text))
        snprintf(text + used, sizeof(text) - used, "]");
    cli_table_add(table, NULL, text);
}

/* Print a table of tensors that differ, and by how much. */
static void print_data(const struct cli *cli, const struct sidestep_diff_report *report)
{
    static const struct cli_column columns[] = {{"DIFFERENT", true},
                                                {"MAX ABS", true},
                                                {"MAX REL", true},
                                                {"FIRST", false},
                                                {"TENSOR", false}};
    struct cli_table table;
    bool any = false;

    cli_table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < report->difference_count; i++) {
        const struct sidestep_difference *difference = sidestep_diff_report_difference(report, i);

        if (!is_data(difference))
            continue;
        any = true;
        cli_table_add_count(&table, difference->element_count);
        add_real(&table, difference->max_abs);
        add_real(&table, difference->max_rel);
        add_index(&table, difference);
        cli_table_add(&table, NULL, difference->name);
    }
    if (any)
        cli_table_print(&table, cli->out, cli->color);
}

static void print_text(const struct cli *cli, const struct sidestep_diff_report *report)
{
    for (size_t i = 0; i < report->difference_count; i++) {
        const struct sidestep_difference *difference = sidestep_diff_report_difference(report, i);

        if (is_data(difference))
            continue;
        cli_escape_write(cli->out, difference->name, strlen(difference->name));
        fputs(": ", cli->out);
        cli_escape_write(cli->out, difference->message, strlen(difference->message));
        fputc('\n', cli->out);
    }
    print_data(cli, report);
    fprintf(cli->out, "%s: %zu alike, %zu not\n", report->is_same ? "same" : "different",
            report->same_count, report->difference_count);
    if (report->same_by_hash > 0)
        cli_output_note(
            cli, "%zu are alike by their checksums, and were not read ('sidestep verify' does)",
            (size_t)report->same_by_hash);
}

static int print_failure(const struct cli *cli, const struct sidestep_error *err)
{
    int status = cli_output_error(cli, err);

    return status == STATUS_DIFFERENT ? STATUS_FAILED : status;
}

int cli_diff_run(const struct cli *cli)
{
    struct sidestep_diff_options options = SIDESTEP_DIFF_OPTIONS_INIT;
    struct sidestep_diff_report report = {0};
    struct sidestep_error err = {0};
    struct cli_progress progress;
    uint64_t threads = 0;
    int wrong = cli_arguments_number(cli, CLI_OPTION_THREADS, 1, MAX_THREADS, &threads);

    if (wrong != 0)
        return wrong;
    cli_interrupt_watch();
    cli_progress_begin(&progress, cli, cli->operands[0]);
    options.threads = (uint32_t)threads;
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = cli_interrupt_flag();
    enum sidestep_status status =
        sidestep_diff(cli->operands[0], cli->operands[1], &options, &report, &err);
    cli_progress_end(&progress);
    if (status != SIDESTEP_OK)
        return print_failure(cli, &err);
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, &report);
    else
        print_text(cli, &report);
    bool same = report.is_same;
    sidestep_diff_report_release(&report);
    return same ? 0 : STATUS_DIFFERENT;
}
