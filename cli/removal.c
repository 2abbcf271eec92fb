/* SPDX-License-Identifier: BSD-3-Clause */
/* removal.c -- asks and removes, for gc and prune; see removal.h. */
#include "removal.h"

#include "commands.h"
#include "escape.h"
#include "json.h"
#include "no_checkpoint.h"
#include "output.h"
#include "format_units.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

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

/* Print what would be removed, and read the answer.  If there is nothing to remove, do not ask. */
static enum sidestep_status ask(const struct cli *cli, cli_removal_function *remove, bool *go,
                                struct sidestep_error *err)
{
    struct sidestep_gc_report report = {0};
    enum sidestep_status status;
    char answer[16] = "";

    status = remove(cli, SIDESTEP_GC_DRY_RUN, &report, err);
    if (status != SIDESTEP_OK)
        return status;
    *go = report.removed_count == 0;
    if (!*go) {
        print_lines(stderr, "would remove", report.removed, report.removed_count);
        fprintf(stderr, "Remove %s? [y/N] ", report.removed_count == 1 ? "it" : "them");
        fflush(stderr);
        *go = fgets(answer, sizeof(answer), stdin) != NULL &&
              (strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0);
    }
    sidestep_gc_report_release(&report);
    return SIDESTEP_OK;
}

int cli_removal_run(const struct cli *cli, cli_removal_function *remove)
{
    uint32_t flags = cli_has_option(cli, CLI_OPTION_DRY_RUN) ? SIDESTEP_GC_DRY_RUN : 0;
    struct sidestep_gc_report report = {0};
    struct sidestep_error err = {0};
    bool go = true;

    if (cli_removal_needs_confirmation(cli) && cli_removal_is_interactive() &&
        ask(cli, remove, &go, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (!go) {
        cli_error_set(&err, SIDESTEP_EABORTED, "%s: nothing was removed", cli->command->name);
        return cli_output_error(cli, &err);
    }
    bool is_done = remove(cli, flags, &report, &err) == SIDESTEP_OK;
    if (is_done || report.owner != NULL) /* a part of it was done */
        print_report(cli, &report);
    sidestep_gc_report_release(&report);
    return is_done ? 0 : cli_output_error(cli, &err);
}
