/* SPDX-License-Identifier: BSD-3-Clause */
/* removal.c -- asks and removes, for gc and prune; see removal.h. */
#include "removal.h"

#include "commands.h"
#include "escape.h"
#include "json.h"
#include "levels.h"
#include "memory.h"
#include "no_checkpoint.h"
#include "output.h"
#include "format_units.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct removal {
    const struct cli *cli;
    cli_removal_function *remove;
    struct cli_levels levels;
    const char *places[2]; /* the root, unless it is lost; its mirror, with --mirror */
    struct sidestep_gc_report of[2];
    struct sidestep_gc_report all; /* of both; its arrays are ours, their texts are not */
};

static void print_json(const struct cli *cli, const struct sidestep_gc_report *report)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_bool(&json, "dry_run", cli_has_option(cli, CLI_OPTION_DRY_RUN));
    cli_json_texts(&json, "removed", report->removed, report->removed_count);
    cli_json_texts(&json, "kept", report->kept, report->kept_count);
    cli_json_uint(&json, "bytes", report->bytes);
    cli_json_end(&json);
}

static void print_lines(FILE *out, const char *verb, const char *const *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s ", verb);
        cli_escape_write(out, lines[i], strlen(lines[i]));
        fputc('\n', out);
    }
}

static void print_report(const struct cli *cli, const struct sidestep_gc_report *report)
{
    bool dry_run = cli_has_option(cli, CLI_OPTION_DRY_RUN);
    char size[CLI_FORMAT_UNITS_BYTES];

    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        print_json(cli, report);
        return;
    }
    print_lines(cli->out, dry_run ? "would remove" : "removed", report->removed,
                report->removed_count);
    print_lines(cli->out, "kept", report->kept, report->kept_count);
    cli_format_units_size(size, report->bytes);
    if (report->removed_count + report->kept_count == 0 && cli->command == &cli_command_prune)
        cli_no_checkpoint_note(cli, cli->operands[0], "");
    else if (report->removed_count == 0)
        cli_output_note(cli, "nothing to remove");
    else if (report->bytes > 0)
        cli_output_note(cli, "%s %s", size, dry_run ? "would be freed" : "freed");
}

bool cli_removal_needs_confirmation(const struct cli *cli)
{
    return !cli_has_option(cli, CLI_OPTION_YES) && !cli_has_option(cli, CLI_OPTION_DRY_RUN);
}

bool cli_removal_is_interactive(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* ---- at both levels */

/* An outdated root has no say about the mirror, with which its run went on. */
static enum sidestep_status find_mirror(struct removal *r, struct sidestep_error *err)
{
    if (!cli_has_option(r->cli, CLI_OPTION_MIRROR))
        return SIDESTEP_OK;
    enum sidestep_status status = cli_levels_find(r->cli, r->places[0], &r->levels, err);
    if (status == SIDESTEP_OK && r->levels.is_outdated)
        return cli_error_set(err, SIDESTEP_EABORTED,
                             "%s: '%s' is outdated: the run went on elsewhere, with this mirror; "
                             "nothing was removed: without --mirror, name '%s' itself",
                             r->cli->command->name, r->levels.root, r->levels.mirror);
    r->places[1] = r->levels.mirror;
    return status;
}

static void add_texts(const char *const **texts, size_t *count, const char *const *more,
                      size_t more_count)
{
    const char **all = cli_memory_resize((void *)*texts, *count + more_count + 1, sizeof(*all));

    for (size_t i = 0; i < more_count; i++)
        all[(*count)++] = more[i];
    *texts = all;
}

static enum sidestep_status remove_all(struct removal *r, uint32_t flags,
                                       struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    for (size_t i = 0; i < 2 && status == SIDESTEP_OK; i++) {
        struct sidestep_gc_report *of = &r->of[i];
        if (r->places[i] == NULL)
            continue;
        status = r->remove(r->cli, r->places[i], flags, of, err);
        if (status == SIDESTEP_ENOTFOUND && i == 0 && r->places[1] != NULL) {
            cli_levels_note(r->cli, &r->levels, true);
            r->places[0] = NULL;
            status = SIDESTEP_OK;
        }
        add_texts(&r->all.removed, &r->all.removed_count, of->removed, of->removed_count);
        add_texts(&r->all.kept, &r->all.kept_count, of->kept, of->kept_count);
        r->all.bytes += of->bytes;
    }
    return status;
}

static void release(struct removal *r)
{
    for (size_t i = 0; i < 2; i++)
        sidestep_gc_report_release(&r->of[i]);
    free((void *)r->all.removed);
    free((void *)r->all.kept);
    r->all = (struct sidestep_gc_report){0};
}

/* Print what would be removed, and read the answer.  If there is nothing to remove, do not ask. */
static bool ask(const struct sidestep_gc_report *report)
{
    char answer[16] = "";

    if (report->removed_count == 0)
        return true;
    print_lines(stderr, "would remove", report->removed, report->removed_count);
    fprintf(stderr, "Remove %s? [y/N] ", report->removed_count == 1 ? "it" : "them");
    fflush(stderr);
    return fgets(answer, sizeof(answer), stdin) != NULL &&
           (strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0);
}

/* Before anything is removed: find out what would be, if somebody is to be asked, or if one of two
 * places may fail. */
static enum sidestep_status prepare(struct removal *r, struct sidestep_error *err)
{
    bool asks = cli_removal_needs_confirmation(r->cli) && cli_removal_is_interactive();

    if (cli_has_option(r->cli, CLI_OPTION_DRY_RUN) || (!asks && r->places[1] == NULL))
        return SIDESTEP_OK;
    enum sidestep_status status = remove_all(r, SIDESTEP_GC_DRY_RUN, err);
    if (status == SIDESTEP_OK && asks && !ask(&r->all))
        status =
            cli_error_set(err, SIDESTEP_EABORTED, "%s: nothing was removed", r->cli->command->name);
    release(r);
    return status;
}

int cli_removal_run(const struct cli *cli, cli_removal_function *remove)
{
    uint32_t flags = cli_has_option(cli, CLI_OPTION_DRY_RUN) ? SIDESTEP_GC_DRY_RUN : 0;
    struct removal r = {.cli = cli, .remove = remove, .places = {cli->operands[0]}};
    struct sidestep_error err = {0};
    enum sidestep_status status = find_mirror(&r, &err);

    if (status == SIDESTEP_OK)
        status = prepare(&r, &err);
    if (status == SIDESTEP_OK)
        status = remove_all(&r, flags, &err);
    if (status == SIDESTEP_OK || r.all.removed_count + r.all.kept_count != 0) /* a part was done */
        print_report(cli, &r.all);
    release(&r);
    cli_levels_release(&r.levels);
    return status == SIDESTEP_OK ? 0 : cli_output_error(cli, &err);
}
