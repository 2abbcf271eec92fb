/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.c -- `sidestep verify`: one checkpoint, or each committed one in a directory.
 *
 * Which of the two a path is, the library decides: what it calls uncommitted, but which has
 * committed checkpoints in it, is a directory of checkpoints.
 */
#include "arguments.h"
#include "check.h"
#include "escape.h"
#include "json.h"
#include "memory.h"
#include "output.h"
#include "table.h"
#include "units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

/* What a directory of checkpoints adds up to. */
struct sum {
    const struct cli *cli;
    struct cli_json json; /* of "checkpoints"; only with --json */
    uint64_t checked_bytes;
    size_t good, damaged, failed;
    size_t gone;       /* deleted before they were checked */
    int failed_status; /* of the first that could not be checked */
};

static enum sidestep_status check(const struct cli *cli, const char *path,
                                  struct sidestep_verify_report *report, struct sidestep_error *err)
{
    unsigned long threads = 0;

    if (cli_has(cli, CLI_OPTION_THREADS))
        (void)cli_arguments_number(cli->options[CLI_OPTION_THREADS], MAX_THREADS, &threads);
    return cli_check(cli, path, threads, report, err);
}

/* "{" and what each kind of report has in common; the caller closes it. */
static void json_report(struct cli_json *json, const struct sidestep_verify_report *report)
{
    cli_json_bool(json, "ok", report->ok);
    cli_json_uint(json, "checked_bytes", report->checked_bytes);
    cli_json_open(json, "problems", '[');
    for (size_t i = 0; i < report->problem_count; i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "file", report->problems[i].file);
        cli_json_text(json, "name", report->problems[i].name);
        cli_json_text(json, "kind", report->problems[i].kind);
        cli_json_text(json, "message", report->problems[i].message);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    cli_json_uint(json, "unlisted", report->unlisted_count);
}

/* "  __0_0.distcp: model.weight: hash: message" */
static void print_problem(FILE *out, const struct sidestep_problem *problem)
{
    const char *parts[] = {problem->file, problem->name, problem->kind, problem->message};

    fputs(" ", out);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i] == NULL)
            continue;
        fputs(" ", out);
        cli_escape_write(out, parts[i], strlen(parts[i]));
        fputs(i + 1 < sizeof(parts) / sizeof(parts[0]) ? ":" : "", out);
    }
    fputs("\n", out);
}

static void print_report(const struct cli *cli, const char *path,
                         const struct sidestep_verify_report *report)
{
    const char *style = report->ok ? CLI_STYLE_GREEN : CLI_STYLE_RED;
    const char *word = report->ok                            ? "ok     "
                       : report->status == SIDESTEP_ECORRUPT ? "DAMAGED"
                                                             : "UNREADABLE";
    size_t problems = report->problem_count + report->unlisted_count;
    char size[CLI_UNITS_ROOM];

    cli_units_size(size, report->checked_bytes);
    cli_table_style(cli->out, cli->color ? style : NULL, word);
    fputs("  ", cli->out);
    cli_escape_write(cli->out, path, strlen(path));
    fprintf(cli->out, "  %s checked", size);
    if (!report->ok)
        fprintf(cli->out, ", %zu problem%s", problems, problems == 1 ? "" : "s");
    fputs("\n", cli->out);
    for (size_t i = 0; i < report->problem_count; i++)
        print_problem(cli->out, &report->problems[i]);
    if (report->unlisted_count > 0)
        fprintf(cli->out, "  and %" PRIu32 " more\n", report->unlisted_count);
}

static int finish_one(const struct cli *cli, struct sidestep_verify_report *report)
{
    enum sidestep_status found = report->status;

    if (cli_has(cli, CLI_OPTION_JSON)) {
        struct cli_json json = {.out = cli->out};

        cli_json_open(&json, NULL, '{');
        json_report(&json, report);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else {
        print_report(cli, cli->operands[0], report);
    }
    sidestep_verify_report_release(report);
    return sidestep_status_exit(found);
}

static void add_failed(struct sum *sum, const char *path, const struct sidestep_error *err)
{
    struct sidestep_verify_report nothing = {.ok = false};

    sum->failed++;
    if (sum->failed == 1)
        sum->failed_status = sidestep_status_exit((enum sidestep_status)err->status);
    if (!cli_has(sum->cli, CLI_OPTION_JSON)) {
        (void)cli_output_error(sum->cli, err);
        return;
    }
    cli_json_open(&sum->json, NULL, '{');
    cli_json_text(&sum->json, "path", path);
    json_report(&sum->json, &nothing);
    cli_output_json_error(&sum->json, err);
    cli_json_close(&sum->json, '}');
}

static void add_checked(struct sum *sum, const char *path,
                        const struct sidestep_verify_report *report)
{
    sum->checked_bytes += report->checked_bytes;
    if (report->ok)
        sum->good++;
    else
        sum->damaged++;
    if (!cli_has(sum->cli, CLI_OPTION_JSON)) {
        print_report(sum->cli, path, report);
        (void)fflush(sum->cli->out);
        return;
    }
    cli_json_open(&sum->json, NULL, '{');
    cli_json_text(&sum->json, "path", path);
    json_report(&sum->json, report);
    cli_json_close(&sum->json, '}');
}

/* It may be a checkpoint.  Those of file systems are none. */
static bool is_unreadable(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_UNREADABLE && strcmp(entry->name, "lost+found") != 0;
}

/* One entry of a directory.  Fails only where the rest is not to be looked at. */
static enum sidestep_status add_entry(struct sum *sum, const struct sidestep_listed *entry,
                                      struct sidestep_error *err)
{
    struct sidestep_verify_report report = {0};
    enum sidestep_status status;

    if (entry->state != SIDESTEP_COMMITTED && entry->state != SIDESTEP_DAMAGED &&
        !is_unreadable(entry))
        return SIDESTEP_OK;
    status = check(sum->cli, entry->path, &report, err);
    if (status == SIDESTEP_ECANCELLED)
        return status;
    if ((status != SIDESTEP_OK || !report.ok) && cli_check_is_gone(entry->path))
        sum->gone++;
    else if (status != SIDESTEP_OK)
        add_failed(sum, entry->path, err);
    else
        add_checked(sum, entry->path, &report);
    sidestep_verify_report_release(&report);
    return SIDESTEP_OK;
}

static int finish_many(struct sum *sum, const char *checkpoints, size_t passed_over)
{
    bool ok = sum->damaged == 0 && sum->failed == 0;
    char size[CLI_UNITS_ROOM];

    if (cli_has(sum->cli, CLI_OPTION_JSON)) {
        struct cli_json json = {.out = sum->cli->out};

        cli_json_open(&json, NULL, '{');
        cli_json_bool(&json, "ok", ok);
        cli_json_uint(&json, "checked_bytes", sum->checked_bytes);
        cli_json_raw(&json, "checkpoints", checkpoints);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else {
        cli_units_size(size, sum->checked_bytes);
        fprintf(sum->cli->out, "%zu ok, %zu damaged, %zu not checked; %s\n", sum->good,
                sum->damaged, sum->failed, size);
        if (passed_over > 0)
            cli_output_note(sum->cli, "%zu unfinished or set aside, not checked", passed_over);
        if (sum->gone > 0)
            cli_output_note(sum->cli, "%zu deleted before they were checked", sum->gone);
    }
    return sum->damaged > 0 ? sidestep_status_exit(SIDESTEP_ECORRUPT) : sum->failed_status;
}

static int verify_many(const struct cli *cli, const struct sidestep_list *list)
{
    struct sum sum = {.cli = cli};
    struct sidestep_error err = {0};
    enum sidestep_status status = SIDESTEP_OK;
    char *checkpoints = NULL;
    size_t length = 0, passed_over = 0;
    int exit_status;

    /* In memory until all is done: half a JSON document is worse than none. */
    sum.json.out = cli_memory_stream(&checkpoints, &length);
    cli_json_open(&sum.json, NULL, '[');
    for (size_t i = 0; i < list->count && status == SIDESTEP_OK; i++) {
        enum sidestep_presence state = list->entries[i].state;

        passed_over += state == SIDESTEP_SAVING || state == SIDESTEP_DEAD ||
                       state == SIDESTEP_TRASH || state == SIDESTEP_BAD;
        status = add_entry(&sum, &list->entries[i], &err);
    }
    cli_json_close(&sum.json, ']');
    cli_memory_stream_close(sum.json.out);
    if (status != SIDESTEP_OK)
        exit_status = cli_output_error(cli, &err);
    else
        exit_status = finish_many(&sum, checkpoints, passed_over);
    free(checkpoints);
    return exit_status;
}

static bool has_candidates(const struct sidestep_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->entries[i].state == SIDESTEP_COMMITTED ||
            list->entries[i].state == SIDESTEP_DAMAGED || is_unreadable(&list->entries[i]))
            return true;
    return false;
}

int cli_verify_run(const struct cli *cli)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};
    struct sidestep_list list = {0};
    enum sidestep_status status;
    unsigned long threads;
    int exit_status;

    if (cli_has(cli, CLI_OPTION_THREADS) &&
        !cli_arguments_number(cli->options[CLI_OPTION_THREADS], MAX_THREADS, &threads))
        return cli_output_usage(cli, "verify: --threads: '%s' is not a number from 1 to %d",
                                cli->options[CLI_OPTION_THREADS], MAX_THREADS);
    cli_check_watch_interrupts();
    status = check(cli, cli->operands[0], &report, &err);
    if (status == SIDESTEP_OK)
        return finish_one(cli, &report);
    if (status != SIDESTEP_EUNCOMMITTED ||
        sidestep_list_root(cli->operands[0], &list, NULL) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (has_candidates(&list))
        exit_status = verify_many(cli, &list);
    else
        exit_status = cli_output_error(cli, &err);
    sidestep_list_release(&list);
    return exit_status;
}
