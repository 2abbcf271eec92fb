/* SPDX-License-Identifier: BSD-3-Clause */
/* convert.c -- `sidestep convert`: calls sidestep_convert(), and prints its report. */
#include "arguments.h"
#include "verify_path.h"
#include "json.h"
#include "output.h"
#include "progress.h"
#include "parse_units.h"
#include "format_units.h"

#include <malloc.h>
#include <string.h>

#define MAX_THREADS 64
#define MAX_RANKS 64
#define LARGE_BYTES (1 << 20)

static const char *const formats[] = {
    [SIDESTEP_FORMAT_AUTO] = "",
    [SIDESTEP_FORMAT_DCP] = "dcp",
    [SIDESTEP_FORMAT_SAFETENSORS] = "safetensors",
    [SIDESTEP_FORMAT_TORCH] = "torch",
    [SIDESTEP_FORMAT_NPZ] = "npz",
};

/* The arguments that the options point into. */
struct lists {
    const char *include[CLI_MAX_REPEATED];
    const char *exclude[CLI_MAX_REPEATED];
    const char *rename[CLI_MAX_REPEATED];
};

static void set_words(const struct cli *cli, struct sidestep_convert_options *o)
{
    const char *to = cli->options[CLI_OPTION_TO], *objects = cli->options[CLI_OPTION_OBJECTS];

    for (size_t i = 0; to != NULL && i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i], to) == 0)
            o->to = (enum sidestep_format)i;
    if (objects != NULL && strcmp(objects, "skip") == 0)
        o->objects = SIDESTEP_OBJECTS_SKIP;
    o->mapping = cli->options[CLI_OPTION_MAPPING];
    o->compress = cli->options[CLI_OPTION_COMPRESS];
    o->flags = (cli_has_option(cli, CLI_OPTION_FORCE) ? SIDESTEP_CONVERT_REPLACE : 0) |
               (cli_has_option(cli, CLI_OPTION_MODEL_ONLY) ? SIDESTEP_CONVERT_MODEL_ONLY : 0) |
               (cli_has_option(cli, CLI_OPTION_DRY_RUN) ? SIDESTEP_CONVERT_DRY_RUN : 0) |
               (cli_has_option(cli, CLI_OPTION_PARTIAL) ? SIDESTEP_CONVERT_PARTIAL : 0);
}

/* Returns 0; or, after a message, the exit status. */
static int parse_numbers(const struct cli *cli, struct sidestep_convert_options *o)
{
    uint64_t threads = 0, ranks = 0;
    int wrong = cli_arguments_number(cli, CLI_OPTION_THREADS, 1, MAX_THREADS, &threads);

    if (wrong == 0)
        wrong = cli_arguments_number(cli, CLI_OPTION_RANKS, 1, MAX_RANKS, &ranks);
    if (wrong != 0)
        return wrong;
    o->threads = (uint32_t)threads;
    o->ranks = (uint32_t)ranks;
    if (cli_has_option(cli, CLI_OPTION_MAX_SHARD_SIZE) &&
        !cli_parse_units_size(cli->options[CLI_OPTION_MAX_SHARD_SIZE], &o->max_shard_bytes))
        return cli_output_usage(cli, "convert: --max-shard-size: '%s' is not a size, like 5GB",
                                cli->options[CLI_OPTION_MAX_SHARD_SIZE]);
    if (cli_has_option(cli, CLI_OPTION_DTYPE)) {
        o->dtype = sidestep_dtype_from_name(cli->options[CLI_OPTION_DTYPE]);
        if (o->dtype == SIDESTEP_DTYPE_NONE)
            return cli_output_usage(cli, "convert: --dtype: '%s' is not a dtype, like bfloat16",
                                    cli->options[CLI_OPTION_DTYPE]);
    }
    return 0;
}

static void print_json(const struct cli *cli, const struct sidestep_convert_report *report)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_text(&json, "source", cli->operands[0]);
    cli_json_text(&json, "destination", cli->operands[1]);
    cli_json_text(&json, "from", report->from);
    cli_json_text(&json, "to", report->to);
    cli_json_bool(&json, "dry_run", cli_has_option(cli, CLI_OPTION_DRY_RUN));
    cli_json_uint(&json, "tensors", report->tensor_count);
    cli_json_uint(&json, "objects", report->object_count);
    cli_json_uint(&json, "tensor_bytes", report->tensor_bytes);
    cli_json_uint(&json, "bytes_read", report->bytes_read);
    cli_json_texts(&json, "files", report->files, report->file_count);
    cli_json_texts(&json, "left_out", report->left_out, report->left_out_count);
    cli_json_texts(&json, "overflows", report->overflows, report->overflow_count);
    cli_json_texts(&json, "narrowed", report->narrowed, report->narrowed_count);
    cli_json_texts(&json, "lost", report->lost, report->lost_count);
    cli_json_end(&json);
}

static void print_text(const struct cli *cli, const struct sidestep_convert_report *report)
{
    char size[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, report->tensor_bytes);
    fprintf(cli->out, "%s%s to %s: %zu tensor%s, %zu object%s, %s\n",
            cli_has_option(cli, CLI_OPTION_DRY_RUN) ? "would convert " : "", report->from,
            report->to, report->tensor_count, report->tensor_count != 1 ? "s" : "",
            report->object_count, report->object_count != 1 ? "s" : "", size);
    for (size_t i = 0; i < report->left_out_count; i++)
        cli_output_note(cli, "left out: object '%s'", report->left_out[i]);
    if (report->narrowed_count != 0)
        cli_output_note(cli, "narrower dtype: %zu tensor%s, the first is %s",
                        report->narrowed_count, report->narrowed_count != 1 ? "s" : "",
                        report->narrowed[0]);
    for (size_t i = 0; i < report->overflow_count; i++)
        cli_output_warning(cli, "overflowed: %s", report->overflows[i]);
    for (size_t i = 0; i < report->lost_count; i++)
        cli_output_warning(cli, "lost: %s", report->lost[i]);
}

/* Ranks have threads of their own, and glibc keeps freed memory for the thread that freed it.  To
 * bound memory, return large blocks to the system as soon as they are freed. */
static void bound_memory(void)
{
#ifdef M_MMAP_THRESHOLD
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
#endif
}

int cli_convert_run(const struct cli *cli)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_convert_report report = {0};
    struct sidestep_error err = {0};
    struct cli_progress progress;
    struct lists lists;
    int wrong = parse_numbers(cli, &options);

    if (wrong != 0)
        return wrong;
    bound_memory();
    set_words(cli, &options);
    options.include = lists.include;
    options.include_count = cli_option_values(cli, CLI_OPTION_INCLUDE, lists.include);
    options.exclude = lists.exclude;
    options.exclude_count = cli_option_values(cli, CLI_OPTION_EXCLUDE, lists.exclude);
    options.rename = lists.rename;
    options.rename_count = cli_option_values(cli, CLI_OPTION_RENAME, lists.rename);
    options.on_progress = cli_progress_update;
    options.context = &progress;
    options.cancel = cli_interrupt_flag();
    cli_interrupt_watch();
    cli_progress_begin(&progress, cli, cli->operands[1]);
    enum sidestep_status status =
        sidestep_convert(cli->operands[0], cli->operands[1], &options, &report, &err);
    cli_progress_end(&progress);
    if (status == SIDESTEP_EEXISTS && !cli_has_option(cli, CLI_OPTION_FORCE))
        cli_error_append(&err, "; --force replaces what a conversion has made");
    if (status != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, &report);
    else
        print_text(cli, &report);
    /* If memory was short, there is no report, and what was lost is not known. */
    bool is_known = !cli_has_option(cli, CLI_OPTION_PARTIAL) || report.from != NULL;
    status = is_known ? report.lost_status : SIDESTEP_ECORRUPT;
    sidestep_convert_report_release(&report);
    return sidestep_status_exit(status);
}
