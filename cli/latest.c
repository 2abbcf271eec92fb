/* SPDX-License-Identifier: BSD-3-Clause */
/* latest.c -- `sidestep latest`: the path alone, for scripts. */
#include "check.h"
#include "escape.h"
#include "json.h"
#include "output.h"

#include <string.h>
#include <unistd.h>

/* Fails only where the rest is not to be looked at. */
static enum sidestep_status check_one(const struct cli *cli, const char *path, bool *is_good,
                                      struct sidestep_error *err)
{
    struct sidestep_verify_report report = {0};
    enum sidestep_status status = cli_check(cli, path, 0, &report, err);

    *is_good = status == SIDESTEP_OK && report.ok;
    if (status == SIDESTEP_ECANCELLED)
        return status;
    if (status != SIDESTEP_OK)
        cli_output_note(cli, "passed over: %s", err->message);
    else if (!*is_good)
        cli_output_note(cli, "passed over: '%s' is damaged: %s", path, report.problems[0].message);
    sidestep_verify_report_release(&report);
    return SIDESTEP_OK;
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

        if (entry->state != SIDESTEP_COMMITTED)
            continue;
        if (check_one(cli, entry->path, &is_good, err) != SIDESTEP_OK)
            return SIDESTEP_ECANCELLED;
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
}

int cli_latest_run(const struct cli *cli)
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};
    const char *path;
    char *newest = NULL;
    enum sidestep_status status;

    status = sidestep_latest(cli->operands[0], SIDESTEP_VERIFY_STRUCTURE, &newest, &err);
    if (status == SIDESTEP_OK)
        status = sidestep_list_root(cli->operands[0], &list, &err);
    if (status != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    path = newest;
    note_passed_over(cli, &list, find_path(&list, newest));
    if (cli_has(cli, CLI_OPTION_VERIFY))
        status = find_verified(cli, &path, &list, find_path(&list, newest), &err);
    if (status == SIDESTEP_OK)
        print_path(cli, path);
    sidestep_list_release(&list);
    sidestep_string_free(&newest);
    return status == SIDESTEP_OK ? 0 : cli_output_error(cli, &err);
}
