/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify.c -- `sidestep verify`: verifies one checkpoint, or all in a directory.
 *
 * The library decides which of the two a path is: a path that it calls uncommitted or does not find
 * (a prefix of a bucket), but that contains checkpoints, is a directory of checkpoints.  Each entry
 * of its listing is counted in some way, so that nothing is missing from the sum.
 */
#include "arguments.h"
#include "verify_path.h"
#include "escape.h"
#include "json.h"
#include "levels.h"
#include "memory.h"
#include "output.h"
#include "table.h"
#include "format_units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

/* The counts for a directory of checkpoints. */
struct sum {
    const struct cli *cli;
    const char *root;            /* which is being checked */
    struct cli_json checkpoints; /* only with --json */
    struct cli_json unfinished;
    uint64_t checked_bytes;
    size_t good, damaged, uncommitted, unreadable; /* all but the first are failures */
    size_t dead, saving, trash, other;             /* not failures */
    size_t gone;                                   /* deleted before they were checked */
    int unreadable_status;                         /* of the first that could not be read */
};

static enum sidestep_status check(const struct cli *cli, const char *path,
                                  struct sidestep_verify_report *report, struct sidestep_error *err)
{
    uint64_t threads = 0;

    (void)cli_arguments_number(cli, CLI_OPTION_THREADS, 1, MAX_THREADS, &threads);
    return cli_verify_path(cli, path, threads, report, err);
}

/* Print "{" and the members that all reports share; the caller closes it. */
static void json_report(struct cli_json *json, const struct sidestep_verify_report *report)
{
    cli_json_bool(json, "ok", report->is_ok);
    cli_json_uint(json, "checked_bytes", report->checked_bytes);
    cli_json_open(json, "problems", '[');
    for (size_t i = 0; i < report->problem_count; i++) {
        const struct sidestep_problem *problem = sidestep_verify_report_problem(report, i);
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "file", problem->file);
        cli_json_text(json, "name", problem->name);
        cli_json_text(json, "kind", problem->kind);
        cli_json_text(json, "message", problem->message);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    cli_json_uint(json, "unlisted", report->unlisted_count);
    cli_json_open(json, "unchecked", '[');
    for (size_t i = 0; i < report->unchecked_count; i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "file", sidestep_verify_report_unchecked(report, i)->file);
        cli_json_text(json, "what", sidestep_verify_report_unchecked(report, i)->what);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

/* "  without checksums: model.safetensors (safetensors), config.json (JSON)" */
static void print_unchecked(FILE *out, const struct sidestep_verify_report *report)
{
    if (report->unchecked_count == 0)
        return;
    fputs("  without checksums:", out);
    for (size_t i = 0; i < report->unchecked_count; i++) {
        const struct sidestep_unchecked *unchecked = sidestep_verify_report_unchecked(report, i);

        fputs(i != 0 ? ", " : " ", out);
        if (unchecked->file != NULL)
            cli_escape_write(out, unchecked->file, strlen(unchecked->file));
        fprintf(out, unchecked->file != NULL ? " (%s)" : "%s", unchecked->what);
    }
    fputc('\n', out);
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
    const char *style = report->is_ok ? CLI_STYLE_GREEN : CLI_STYLE_RED;
    const char *word = report->is_ok                             ? "ok     "
                       : report->status == SIDESTEP_ECORRUPT     ? "DAMAGED"
                       : report->status == SIDESTEP_EUNCOMMITTED ? "INCOMPLETE"
                                                                 : "UNREADABLE";
    size_t problems = report->problem_count + report->unlisted_count;
    char size[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, report->checked_bytes);
    cli_table_style(cli->out, cli->color ? style : NULL, word);
    fputs("  ", cli->out);
    cli_escape_write(cli->out, path, strlen(path));
    fprintf(cli->out, "  %s checked", size);
    if (!report->is_ok)
        fprintf(cli->out, ", %zu problem%s", problems, problems == 1 ? "" : "s");
    fputs("\n", cli->out);
    for (size_t i = 0; i < report->problem_count; i++)
        print_problem(cli->out, sidestep_verify_report_problem(report, i));
    if (report->unlisted_count > 0)
        fprintf(cli->out, "  and %" PRIu32 " more\n", report->unlisted_count);
    print_unchecked(cli->out, report);
}

static int finish_one(const struct cli *cli, struct sidestep_verify_report *report)
{
    enum sidestep_status found = report->status;

    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        struct cli_json json = cli_json_begin(cli->out);

        json_report(&json, report);
        cli_json_end(&json);
    } else {
        print_report(cli, cli->operands[0], report);
    }
    sidestep_verify_report_release(report);
    return sidestep_status_exit(found);
}

/* ---- a directory of checkpoints ---- */

static void count_unreadable(struct sum *sum, enum sidestep_status status)
{
    if (sum->unreadable++ == 0)
        sum->unreadable_status = sidestep_status_exit(status);
}

static void json_entry(struct sum *sum, const struct sidestep_listed *entry,
                       const struct sidestep_verify_report *report,
                       const struct sidestep_error *err)
{
    struct cli_json *json = &sum->checkpoints;

    if (!cli_has_option(sum->cli, CLI_OPTION_JSON))
        return;
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "path", entry->path);
    json_report(json, report);
    cli_json_text(json, "state", entry->state_name);
    cli_json_text(json, "reason", entry->reason);
    if (err != NULL)
        cli_output_json_error(json, err);
    cli_json_close(json, '}');
}

/* Count and print a checkpoint that could not be checked. */
static void add_failed(struct sum *sum, const struct sidestep_listed *entry,
                       const struct sidestep_error *err)
{
    static const struct sidestep_verify_report nothing;

    count_unreadable(sum, (enum sidestep_status)err->status);
    if (!cli_has_option(sum->cli, CLI_OPTION_JSON))
        (void)cli_output_error(sum->cli, err);
    json_entry(sum, entry, &nothing, err);
}

static void add_checked(struct sum *sum, const struct sidestep_listed *entry,
                        const struct sidestep_verify_report *report)
{
    sum->checked_bytes += report->checked_bytes;
    if (report->is_ok)
        sum->good++;
    else if (report->status == SIDESTEP_ECORRUPT)
        sum->damaged++;
    else if (report->status == SIDESTEP_EUNCOMMITTED)
        sum->uncommitted++;
    else
        count_unreadable(sum, report->status);
    if (!cli_has_option(sum->cli, CLI_OPTION_JSON)) {
        print_report(sum->cli, entry->path, report);
        (void)fflush(sum->cli->out);
    }
    json_entry(sum, entry, report, NULL);
}

/* "incomplete  PATH  optimizer.pt is truncated" */
static void print_state(const struct sum *sum, const char *style,
                        const struct sidestep_listed *entry)
{
    FILE *out = sum->cli->out;

    if (cli_has_option(sum->cli, CLI_OPTION_JSON))
        return;
    cli_table_style(out, sum->cli->color ? style : NULL, entry->state_name);
    fputs("  ", out);
    cli_escape_write(out, entry->path, strlen(entry->path));
    fputs("  ", out);
    cli_escape_write(out, entry->reason, strlen(entry->reason));
    fputc('\n', out);
}

/* Count and print a save that is under way or was killed; it is not a checkpoint. */
static void add_unfinished(struct sum *sum, const struct sidestep_listed *entry)
{
    struct cli_json *json = &sum->unfinished;

    if (entry->state == SIDESTEP_DEAD)
        sum->dead++;
    else
        sum->saving++;
    print_state(sum, CLI_STYLE_DIM, entry);
    if (!cli_has_option(sum->cli, CLI_OPTION_JSON))
        return;
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "path", entry->path);
    cli_json_text(json, "state", entry->state_name);
    cli_json_text(json, "target", entry->target);
    cli_json_text(json, "reason", entry->reason);
    cli_json_close(json, '}');
}

/* Is the checkpoint no longer listed in the root?  Then problems with it are not damage. */
static bool was_deleted(const char *root, const char *path)
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};
    bool is_there = false;

    if (sidestep_list_root(root, &list, &err) != SIDESTEP_OK)
        return false;
    for (size_t i = 0; i < list.count && !is_there; i++)
        is_there = strcmp(sidestep_list_entry(&list, i)->path, path) == 0;
    sidestep_list_release(&list);
    return !is_there;
}

/* Fails only if the other entries must not be checked. */
static enum sidestep_status check_entry(struct sum *sum, const struct sidestep_listed *entry,
                                        struct sidestep_error *err)
{
    struct sidestep_verify_report report = {0};
    enum sidestep_status status = check(sum->cli, entry->path, &report, err);

    if (status == SIDESTEP_ECANCELLED)
        return status;
    if ((status != SIDESTEP_OK || !report.is_ok) && was_deleted(sum->root, entry->path))
        sum->gone++;
    else if (status != SIDESTEP_OK)
        add_failed(sum, entry, err);
    else
        add_checked(sum, entry, &report);
    sidestep_verify_report_release(&report);
    return SIDESTEP_OK;
}

/* Check the entry, or only count it. */
static enum sidestep_status add_entry(struct sum *sum, const struct sidestep_listed *entry,
                                      struct sidestep_error *err)
{
    switch (entry->state) {
    case SIDESTEP_SAVING:
    case SIDESTEP_DEAD:
        add_unfinished(sum, entry);
        return SIDESTEP_OK;
    case SIDESTEP_TRASH:
        sum->trash++;
        return SIDESTEP_OK;
    case SIDESTEP_FOREIGN:
    case SIDESTEP_UNREADABLE:
        if (cli_is_lost_and_found(entry) ||
            (entry->state == SIDESTEP_FOREIGN && entry->layout == NULL)) {
            sum->other++;
            return SIDESTEP_OK;
        }
        return check_entry(sum, entry, err);
    case SIDESTEP_COMMITTED:
    case SIDESTEP_COMPLETE:
    case SIDESTEP_INCOMPLETE:
    case SIDESTEP_DAMAGED:
    case SIDESTEP_BAD:
    case SIDESTEP_PART:
        break;
    }
    return check_entry(sum, entry, err);
}

static void json_sum(const struct sum *sum, bool ok, const char *checkpoints,
                     const char *unfinished)
{
    const struct {
        const char *key;
        size_t count;
    } counts[] = {{"ok", sum->good},
                  {"damaged", sum->damaged},
                  {"uncommitted", sum->uncommitted},
                  {"unreadable", sum->unreadable},
                  {"dead", sum->dead},
                  {"saving", sum->saving},
                  {"trash", sum->trash},
                  {"other", sum->other},
                  {"gone", sum->gone}};
    struct cli_json json = cli_json_begin(sum->cli->out);

    cli_json_bool(&json, "ok", ok);
    cli_json_uint(&json, "checked_bytes", sum->checked_bytes);
    cli_json_raw(&json, "checkpoints", checkpoints);
    cli_json_raw(&json, "unfinished", unfinished);
    cli_json_open(&json, "counts", '{');
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        cli_json_uint(&json, counts[i].key, counts[i].count);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

static void print_sum(const struct sum *sum)
{
    char size[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, sum->checked_bytes);
    fprintf(sum->cli->out, "%zu ok, %zu damaged, %zu uncommitted, %zu not readable; %s\n",
            sum->good, sum->damaged, sum->uncommitted, sum->unreadable, size);
    if (sum->trash > 0)
        cli_output_note(sum->cli, "%zu being deleted, not checked", sum->trash);
    if (sum->gone > 0)
        cli_output_note(sum->cli, "%zu deleted before they were checked", sum->gone);
    if (sum->other > 0)
        cli_output_note(sum->cli,
                        "%zu not known to be checkpoints, and not checked ('sidestep ls "
                        "--all' lists them)",
                        sum->other);
}

static int finish_many(const struct sum *sum, const char *checkpoints, const char *unfinished)
{
    bool ok = sum->damaged == 0 && sum->unreadable == 0 && sum->uncommitted == 0;

    if (cli_has_option(sum->cli, CLI_OPTION_JSON))
        json_sum(sum, ok, checkpoints, unfinished);
    else
        print_sum(sum);
    if (sum->damaged > 0)
        return sidestep_status_exit(SIDESTEP_ECORRUPT);
    if (sum->unreadable > 0)
        return sum->unreadable_status;
    return ok ? 0 : sidestep_status_exit(SIDESTEP_EUNCOMMITTED);
}

static enum sidestep_status add_root(struct sum *sum, const char *root,
                                     const struct sidestep_list *list, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    sum->root = root;
    for (size_t i = 0; i < list->count && status == SIDESTEP_OK; i++)
        status = add_entry(sum, sidestep_list_entry(list, i), err);
    return status;
}

/* Of the root, and with --mirror of both levels. */
static int verify_many(const struct cli *cli, const struct cli_levels *levels)
{
    struct sum sum = {.cli = cli};
    struct sidestep_error err = {0};
    char *checkpoints = NULL, *unfinished = NULL;
    size_t checkpoints_length = 0, unfinished_length = 0;

    /* Keep the JSON in memory until all is done, so that no incomplete document is printed. */
    sum.checkpoints.out = cli_memory_stream(&checkpoints, &checkpoints_length);
    sum.unfinished.out = cli_memory_stream(&unfinished, &unfinished_length);
    cli_json_open(&sum.checkpoints, NULL, '[');
    cli_json_open(&sum.unfinished, NULL, '[');
    enum sidestep_status status = add_root(&sum, levels->root, &levels->near, &err);
    if (status == SIDESTEP_OK && levels->mirror != NULL)
        status = add_root(&sum, levels->mirror, &levels->far, &err);
    cli_json_close(&sum.checkpoints, ']');
    cli_json_close(&sum.unfinished, ']');
    cli_memory_stream_close(sum.checkpoints.out);
    cli_memory_stream_close(sum.unfinished.out);
    int exit_status = status != SIDESTEP_OK ? cli_output_error(cli, &err)
                                            : finish_many(&sum, checkpoints, unfinished);
    free(checkpoints);
    free(unfinished);
    return exit_status;
}

/* Does the directory contain anything that should be counted? */
static bool is_root(const struct sidestep_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(list, i);
        if ((entry->state != SIDESTEP_FOREIGN || entry->layout != NULL) &&
            !cli_is_lost_and_found(entry))
            return true;
    }
    return false;
}

/* ${err}: why it is not a checkpoint. */
static int verify_root(const struct cli *cli, const struct sidestep_error *err)
{
    struct cli_levels levels;
    struct sidestep_error why = {0};
    bool is_read = cli_levels_read(cli, cli->operands[0], &levels, &why) == SIDESTEP_OK;
    int exit_status;

    if (is_read && (levels.mirror != NULL || is_root(&levels.near)))
        exit_status = verify_many(cli, &levels);
    else if (is_read || (levels.mirror == NULL && err->status == SIDESTEP_ENOTFOUND))
        exit_status = cli_output_error(cli, err);
    else
        exit_status = cli_output_error(cli, &why);
    cli_levels_release(&levels);
    return exit_status;
}

int cli_verify_run(const struct cli *cli)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};
    enum sidestep_status status;
    uint64_t threads;
    int wrong = cli_arguments_number(cli, CLI_OPTION_THREADS, 1, MAX_THREADS, &threads);

    if (wrong != 0)
        return wrong;
    cli_interrupt_watch();
    if (cli_has_option(cli, CLI_OPTION_MIRROR))
        return verify_root(cli, &err);
    status = check(cli, cli->operands[0], &report, &err);
    if (status == SIDESTEP_OK)
        return finish_one(cli, &report);
    if (status == SIDESTEP_EUNCOMMITTED || status == SIDESTEP_ENOTFOUND)
        return verify_root(cli, &err);
    return cli_output_error(cli, &err);
}
