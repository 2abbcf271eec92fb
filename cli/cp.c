/* SPDX-License-Identifier: BSD-3-Clause */
/* cp.c -- `sidestep cp`: calls sidestep_copy(), and prints what was copied. */
#include "arguments.h"
#include "format_units.h"
#include "json.h"
#include "output.h"
#include "progress.h"
#include "verify_path.h"

#define MAX_THREADS 64

static void print_json(const struct cli *cli, const struct sidestep_copy_report *report)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_text(&json, "source", cli->operands[0]);
    cli_json_text(&json, "destination", cli->operands[1]);
    cli_json_text(&json, "save_id", report->save_id[0] != '\0' ? report->save_id : NULL);
    cli_json_known(&json, "step", report->step >= 0, report->step);
    cli_json_uint(&json, "files", report->file_count);
    cli_json_uint(&json, "bytes", report->bytes);
    cli_json_uint(&json, "copied_files", report->copied_count);
    cli_json_uint(&json, "copied_bytes", report->copied_bytes);
    cli_json_end(&json);
}

static void print_text(const struct cli *cli, const struct sidestep_copy_report *report)
{
    char size[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, report->copied_bytes);
    fprintf(cli->out, "copied %llu of %llu files, %s\n", (unsigned long long)report->copied_count,
            (unsigned long long)report->file_count, size);
    if (report->copied_count < report->file_count)
        cli_output_note(cli, "the others were already there and whole");
}

/* May the copy have left files that the next one need not copy again? */
static bool is_interrupted(enum sidestep_status status)
{
    return status == SIDESTEP_ECANCELLED || status == SIDESTEP_EIO || status == SIDESTEP_ETIMEDOUT;
}

int cli_cp_run(const struct cli *cli)
{
    struct sidestep_copy_options options = SIDESTEP_COPY_OPTIONS_INIT;
    struct sidestep_copy_report report;
    struct sidestep_error err = {0};
    struct cli_progress progress;
    uint64_t threads = 0;
    int wrong = cli_arguments_number(cli, CLI_OPTION_THREADS, 1, MAX_THREADS, &threads);

    if (wrong != 0)
        return wrong;
    options.threads = (uint32_t)threads;
    options.flags = cli_has_option(cli, CLI_OPTION_REPLACE) ? SIDESTEP_COPY_REPLACE : 0;
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = cli_interrupt_flag();
    cli_interrupt_watch();
    cli_progress_begin(&progress, cli, cli->operands[1]);
    enum sidestep_status status =
        sidestep_copy(cli->operands[0], cli->operands[1], &options, &report, &err);
    cli_progress_end(&progress);
    if (is_interrupted(status))
        cli_output_note(cli, "the same command goes on from here; 'sidestep gc' removes what was "
                             "copied so far");
    if (status != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, &report);
    else
        print_text(cli, &report);
    return 0;
}
