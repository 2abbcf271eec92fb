/* SPDX-License-Identifier: BSD-3-Clause */
/* latest.c -- `sidestep latest`: the path alone, for scripts. */
#include "check.h"
#include "escape.h"
#include "json.h"
#include "output.h"

#include <string.h>
#include <unistd.h>

#define MAX_LOOKS 32 /* at a root that is being changed */

/* All that is known of it is that something could not be read, which is no damage. */
static bool is_unreadable(const struct sidestep_verify_report *report)
{
    for (size_t i = 0; i < report->problem_count; i++)
        if (strcmp(report->problems[i].kind, "io") != 0)
            return false;
    return !report->ok;
}

/* Fails only where the rest is not to be looked at. */
static enum sidestep_status check_one(const struct cli *cli, const char *path, bool *is_good,
                                      struct sidestep_error *err)
{
    struct sidestep_verify_report report = {0};
    enum sidestep_status status = cli_check(cli, path, 0, &report, err);

    *is_good = status == SIDESTEP_OK && report.ok;
    if (status != SIDESTEP_ECANCELLED && !*is_good && cli_check_is_gone(path)) {
        sidestep_verify_report_release(&report);
        return cli_error_set(err, SIDESTEP_ENOTFOUND, "'%s' was deleted meanwhile", path);
    }
    if (status == SIDESTEP_ECANCELLED || status == SIDESTEP_EPERM || status == SIDESTEP_EIO ||
        status == SIDESTEP_ENOMEM)
        return status;
    if (status == SIDESTEP_OK && is_unreadable(&report))
        status = cli_error_set(err, SIDESTEP_EIO, "'%s' cannot be read: %s", path,
                               report.problems[0].message);
    else if (status != SIDESTEP_OK)
        cli_output_note(cli, "passed over: %s", err->message);
    else if (!*is_good)
        cli_output_note(cli, "passed over: '%s' is damaged: %s", path, report.problems[0].message);
    sidestep_verify_report_release(&report);
    return status == SIDESTEP_EIO ? status : SIDESTEP_OK;
}

/* The newest of which every byte is right, beginning with the newest that is whole in its
 * structure: what the library would do, with progress, and until somebody interrupts. */
static enum sidestep_status find_verified(const struct cli *cli, const char **path,
                                          const struct sidestep_list *list, size_t newest,
                                          struct sidestep_error *err)
{
    size_t seen = 0;

    cli_check_watch_interrupts();
    for (size_t i = newest + (newest < list->count); i > 0; i--) {
        const struct sidestep_listed *entry = &list->entries[i - 1];
        bool is_good = false;

        if (entry->state != SIDESTEP_COMMITTED || entry->reason != NULL)
            continue;
        enum sidestep_status status = check_one(cli, entry->path, &is_good, err);
        if (status != SIDESTEP_OK)
            return status;
        *path = entry->path;
        if (is_good)
            return SIDESTEP_OK;
        seen++;
    }
    if (seen == 0) /* another program's */
        return cli_error_set(err, SIDESTEP_EUNSUPPORTED, "'%s' has no checksums to verify it by",
                             *path);
    return cli_error_set(err, SIDESTEP_ECORRUPT, "'%s': none of %zu checkpoints is valid",
                         cli->operands[0], seen);
}

static void print_path(const struct cli *cli, const char *path)
{
    if (cli_has(cli, CLI_OPTION_JSON)) {
        struct cli_json json = {.out = cli->out};

        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "path", path);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else if (isatty(STDOUT_FILENO)) {
        cli_escape_write(cli->out, path, strlen(path));
        fputc('\n', cli->out);
    } else {
        /* A script opens what it reads here: as it is. */
        fprintf(cli->out, "%s\n", path);
    }
}

/* Where ${path} stands in ${list}: behind it are the newer ones. */
static size_t find_path(const struct sidestep_list *list, const char *path)
{
    size_t i = list->count;

    while (i > 0 && strcmp(list->entries[i - 1].path, path) != 0)
        i--;
    return i > 0 ? i - 1 : list->count;
}

static void note_passed_over(const struct cli *cli, const struct sidestep_list *list, size_t newest)
{
    for (size_t i = newest; i < list->count; i++)
        if (list->entries[i].state == SIDESTEP_UNREADABLE)
            cli_output_note(cli, "passed over: '%s' cannot be read", list->entries[i].path);
        else if (list->entries[i].state == SIDESTEP_INCOMPLETE)
            cli_output_note(cli, "passed over: '%s' is incomplete: %s", list->entries[i].path,
                            list->entries[i].reason);
        else if (list->entries[i].state == SIDESTEP_COMMITTED && list->entries[i].reason != NULL)
            cli_output_note(cli, "passed over: '%s' %s", list->entries[i].path,
                            list->entries[i].reason);
}

/* ENOTFOUND with ${*gone}: one that was to be looked at has been deleted meanwhile. */
static enum sidestep_status look(const struct cli *cli, bool *gone, struct sidestep_error *err)
{
    struct sidestep_list list = {0};
    const char *path;
    char *newest = NULL;

    *gone = false;
    enum sidestep_status status =
        sidestep_latest(cli->operands[0], SIDESTEP_VERIFY_STRUCTURE, &newest, err);
    if (status != SIDESTEP_OK)
        return status;
    path = newest;
    status = sidestep_list_root(cli->operands[0], &list, err);
    if (status == SIDESTEP_OK && cli_has(cli, CLI_OPTION_VERIFY)) {
        status = find_verified(cli, &path, &list, find_path(&list, newest), err);
        *gone = status == SIDESTEP_ENOTFOUND;
    }
    if (status == SIDESTEP_OK) {
        note_passed_over(cli, &list, find_path(&list, newest));
        print_path(cli, path);
    }
    sidestep_list_release(&list);
    sidestep_string_free(&newest);
    return status;
}

int cli_latest_run(const struct cli *cli)
{
    struct sidestep_error err = {0};
    enum sidestep_status status;
    bool gone;

    for (unsigned attempt = 1;; attempt++) {
        status = look(cli, &gone, &err);
        if (!gone || attempt == MAX_LOOKS)
            break;
    }
    return status == SIDESTEP_OK ? 0 : cli_output_error(cli, &err);
}
