/* SPDX-License-Identifier: BSD-3-Clause */
/* latest.c -- `sidestep latest`: prints only the path, for scripts; notes on checkpoints that were
 * passed over go to standard error. */
#include "verify_path.h"
#include "escape.h"
#include "json.h"
#include "levels.h"
#include "output.h"
#include "progress.h"
#include "format_units.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* What was found at one level. */
struct found {
    const char *level; /* NULL: without --mirror */
    enum sidestep_status status;
    struct sidestep_latest_report report;
    struct sidestep_error err;
    uint64_t incarnation; /* of the checkpoint, where there are two levels */
    bool is_abandoned;    /* by what the other level says */
};

static void json_passed(struct cli_json *json, const struct sidestep_latest_report *report)
{
    for (size_t i = 0; i < report->passed_count; i++) {
        const struct sidestep_passed_over *passed = sidestep_latest_report_passed(report, i);

        cli_json_open(json, NULL, '{');
        cli_json_text(json, "path", passed->path);
        cli_json_known(json, "step", passed->step >= 0, passed->step);
        cli_json_text(json, "state", passed->state_name);
        cli_json_text(json, "reason", passed->reason);
        cli_json_close(json, '}');
    }
}

static void print_json(const struct cli *cli, const struct found levels[2],
                       const struct found *found)
{
    const struct sidestep_latest_report *report = &found->report;
    struct cli_json json = cli_json_begin(cli->out);
    int64_t age = report->saved_at >= 0 ? (int64_t)time(NULL) - report->saved_at : -1;
    char when[CLI_FORMAT_UNITS_BYTES];
    bool has_time = report->saved_at >= 0 && cli_format_units_time(when, report->saved_at);

    cli_json_text(&json, "path", report->path);
    cli_json_known(&json, "step", report->step >= 0, report->step);
    cli_json_text(&json, "saved_at", has_time ? when : NULL);
    cli_json_known(&json, "age_seconds", age >= 0, age);
    cli_json_text(&json, "kept", report->kept);
    cli_json_text(&json, "kept_because", report->kept_because);
    cli_json_text(&json, "layout", report->layout);
    cli_json_open(&json, "passed_over", '[');
    json_passed(&json, &levels[0].report);
    json_passed(&json, &levels[1].report);
    cli_json_close(&json, ']');
    if (found->level != NULL)
        cli_json_text(&json, "level", found->level);
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
    } phrases[] = {{"committed", " "}, {"unreadable", " cannot be read: "},
                   {"foreign", ": "},  {"part", ": "},
                   {"complete", ": "}, {"incomplete", " is incomplete: "}};

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

static void find(const struct cli *cli, const char *root, struct found *found)
{
    bool reads = cli_has_option(cli, CLI_OPTION_VERIFY);
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    struct cli_progress progress;

    cli_progress_begin(&progress, cli, root);
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = cli_interrupt_flag();
    found->status =
        sidestep_find_latest(root, reads ? SIDESTEP_VERIFY_READ : SIDESTEP_VERIFY_STRUCTURE,
                             &options, &found->report, &found->err);
    cli_progress_end(&progress);
}

/* Find out where in the run the checkpoint of each level is. The root decides what is left behind.
 */
static void place(const struct cli_levels *levels, struct found found[2])
{
    for (size_t i = 0; i < levels->count; i++)
        for (size_t level = 0; level < 2; level++) {
            const struct sidestep_listed *entry = levels->rows[i].entry;
            const char *path = found[level].report.path;
            const char *name = path != NULL ? strrchr(path, '/') : NULL;
            if (name == NULL || strcmp(name + 1, entry->name) != 0 ||
                (strcmp(levels->rows[i].level, "both") != 0 && strcmp(path, entry->path) != 0))
                continue;
            found[level].incarnation = entry->incarnation;
            found[level].is_abandoned = entry->is_abandoned;
        }
}

/* Has this level told that it has none that a resume takes? */
static bool has_none(const struct found *found)
{
    return found->status == SIDESTEP_ENOTFOUND || found->status == SIDESTEP_ECORRUPT ||
           found->status == SIDESTEP_EMISMATCH;
}

/* Which of both does a resume take? A level that cannot be read may have a newer one. A later
 * incarnation that is at a lower step has gone back. */
static const struct found *choose(const struct found found[2])
{
    const struct found *near = &found[0], *far = &found[1];

    if (near->level == NULL)
        return near;
    if (near->status != SIDESTEP_OK && !has_none(near))
        return near;
    if (far->status != SIDESTEP_OK)
        return !has_none(far) || near->status == SIDESTEP_ENOTFOUND ? far : near;
    if (near->status != SIDESTEP_OK)
        return far;
    if (far->is_abandoned || far->incarnation < near->incarnation)
        return near;
    return far->incarnation > near->incarnation || far->report.step > near->report.step ? far
                                                                                        : near;
}

/* Look at the root, and with --mirror at both levels. */
static int print_latest(const struct cli *cli, const struct cli_levels *levels,
                        struct found found[2])
{
    find(cli, levels->root, &found[0]);
    if (levels->mirror != NULL) {
        found[0].level = "near";
        found[1].level = "mirror";
        find(cli, levels->mirror, &found[1]);
        place(levels, found);
    }
    const struct found *chosen = choose(found);
    note_passed_over(cli, &found[0].report);
    note_passed_over(cli, &found[1].report);
    if (chosen->status != SIDESTEP_OK)
        return cli_output_error(cli, &chosen->err);
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, found, chosen);
    else
        print_path(cli, chosen->report.path);
    return 0;
}

int cli_latest_run(const struct cli *cli)
{
    struct found found[2] = {{.status = SIDESTEP_OK}, {.status = SIDESTEP_OK}};
    struct cli_levels levels = {.root = cli->operands[0]};
    struct sidestep_error err = {0};
    bool is_read = true;

    if (cli_has_option(cli, CLI_OPTION_VERIFY))
        cli_interrupt_watch();
    if (cli_has_option(cli, CLI_OPTION_MIRROR))
        is_read = cli_levels_read(cli, cli->operands[0], &levels, &err) == SIDESTEP_OK;
    int status = is_read ? print_latest(cli, &levels, found) : cli_output_error(cli, &err);
    for (size_t level = 0; level < 2; level++)
        sidestep_latest_report_release(&found[level].report);
    cli_levels_release(&levels);
    return status;
}
