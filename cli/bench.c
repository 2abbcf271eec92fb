/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c -- `sidestep bench`: parses arguments, and predicts the cost of saves. */
#include "bench.h"

#include "arguments.h"
#include "json.h"
#include "output.h"
#include "baseline_io.h"
#include "parse_units.h"
#include "table.h"
#include "format_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES ((uint64_t)1 << 30)
#define MIN_BYTES ((uint64_t)16 << 20)
#define DEFAULT_RUNS 3
#define DEFAULT_MTBF "24h"

/* The predicted cost of saves and failures, and the best interval between saves. */
struct prediction {
    uint64_t state_bytes;
    double stall, background, load, mtbf; /* seconds */
    const char *mtbf_text;
    double interval;      /* of training between two saves */
    double saving;        /* fraction of all time that saves cost */
    double lost;          /* fraction that failures cost: repeated work and loads */
    double lost_per_fail; /* seconds, on average */
};

static const struct {
    const char *name, *text;
    enum cli_bench_metric reference; /* that RATIO compares with; itself: no RATIO */
} rows[CLI_BENCH_COUNT] = {
    [CLI_BENCH_COPY] = {"memory_copy", "memory: copy by one thread", CLI_BENCH_COPY},
    [CLI_BENCH_WRITE] = {"disk_write", "disk: write and fsync, 4 MiB at a time", CLI_BENCH_WRITE},
    [CLI_BENCH_READ] = {"disk_read", "disk: read, 4 MiB at a time", CLI_BENCH_READ},
    [CLI_BENCH_STALL] = {"save_stall", "save: training is stopped", CLI_BENCH_COPY},
    [CLI_BENCH_SAVE] = {"save_background", "save: in the background, committed", CLI_BENCH_WRITE},
    [CLI_BENCH_LOAD] = {"load", "load: cold, every byte verified", CLI_BENCH_READ},
};

static const char *mtbf_text(const struct cli *cli)
{
    return cli_has_option(cli, CLI_OPTION_MTBF) ? cli->options[CLI_OPTION_MTBF] : DEFAULT_MTBF;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const struct cli_bench *bench, enum cli_bench_metric what)
{
    uint64_t n = bench->runs;
    const double *s = bench->seconds[what]; /* sorted */

    return n % 2 != 0 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static void print_table(const struct cli_bench *bench)
{
    static const struct cli_column columns[] = {
        {"WHAT", false}, {"TIME", true}, {"BEST", true},
        {"WORST", true}, {"RATE", true}, {"RATIO", true},
    };
    struct cli_table table;
    char text[CLI_FORMAT_UNITS_BYTES + 8];

    cli_table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (int what = 0; what < CLI_BENCH_COUNT; what++) {
        enum cli_bench_metric reference = rows[what].reference;
        if (!cli_bench_has(bench, what))
            continue;
        double middle = median(bench, what);
        double times[] = {middle, bench->seconds[what][0], bench->seconds[what][bench->runs - 1]};

        cli_table_add(&table, NULL, rows[what].text);
        for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
            snprintf(text, sizeof(text), "%.3f s", times[i]);
            cli_table_add(&table, NULL, text);
        }
        cli_format_units_size(text, (uint64_t)((double)bench->bytes / middle));
        strcat(text, "/s");
        cli_table_add(&table, NULL, text);
        bool has_ratio = (int)reference != what && cli_bench_has(bench, reference);
        snprintf(text, sizeof(text), "%.2f", has_ratio ? median(bench, reference) / middle : 0);
        cli_table_add(&table, NULL, has_ratio ? text : "");
    }
    cli_table_print(&table, bench->cli->out, bench->cli->color);
}

static struct prediction predict(const struct cli_bench *bench, uint64_t state_bytes, double mtbf)
{
    double times = (double)state_bytes / (double)bench->bytes;
    struct prediction p = {
        .state_bytes = state_bytes,
        .stall = median(bench, CLI_BENCH_STALL) * times,
        .background = median(bench, CLI_BENCH_SAVE) * times,
        .load = median(bench, CLI_BENCH_LOAD) * times,
        .mtbf = mtbf,
        .mtbf_text = mtbf_text(bench->cli),
    };

    /* Young's interval, as a series computes it.  A save begins when the one before has ended.  A
     * failure also loses the save that is in the background. */
    p.interval = fmax(fmin(sqrt(2 * p.stall * mtbf), mtbf), p.background);
    p.saving = p.stall / (p.interval + p.stall);
    p.lost_per_fail = p.interval / 2 + p.stall + p.background + p.load;
    p.lost = fmin(p.lost_per_fail / mtbf, 1);
    return p;
}

static void print_prediction(FILE *out, const struct prediction *p)
{
    char size[CLI_FORMAT_UNITS_BYTES];

    cli_format_units_size(size, p->state_bytes);
    fprintf(out,
            "\nA save of %s by one process: training is stopped for %.3f s, and %.2f s in the "
            "background.\nA load takes %.2f s.\n",
            size, p->stall, p->background, p->load);
    fprintf(out,
            "With a failure every %s: save every %.0f s of training. Saves then take %.3f %% of "
            "the time, and\na failure costs %.0f s, %.3f %% of the time.\n",
            p->mtbf_text, p->interval, p->saving * 100, p->lost_per_fail, p->lost * 100);
}

static void print_json(const struct cli_bench *bench, const struct prediction *p)
{
    struct cli_json json = cli_json_begin(bench->cli->out);

    cli_json_text(&json, "directory", bench->directory);
    cli_json_uint(&json, "bytes", bench->bytes);
    if (bench->in_bucket)
        cli_json_null(&json, "direct_io");
    else
        cli_json_bool(&json, "direct_io", bench->direct);
    cli_json_open(&json, "seconds", '{');
    for (int what = 0; what < CLI_BENCH_COUNT; what++) {
        if (!cli_bench_has(bench, what))
            continue;
        cli_json_open(&json, rows[what].name, '[');
        for (uint64_t run = 0; run < bench->runs; run++)
            cli_json_real(&json, NULL, bench->seconds[what][run]);
        cli_json_close(&json, ']');
    }
    cli_json_close(&json, '}');
    cli_json_open(&json, "prediction", '{');
    cli_json_uint(&json, "state_bytes", p->state_bytes);
    cli_json_real(&json, "stall_seconds", p->stall);
    cli_json_real(&json, "background_seconds", p->background);
    cli_json_real(&json, "load_seconds", p->load);
    cli_json_real(&json, "mtbf_seconds", p->mtbf);
    cli_json_real(&json, "interval_seconds", p->interval);
    cli_json_real(&json, "saving_share", p->saving);
    cli_json_real(&json, "failure_seconds", p->lost_per_fail);
    cli_json_real(&json, "failure_share", p->lost);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

/* Set ${*bytes} to the size that an option gives, if it was given. */
static bool parse_size(const struct cli *cli, enum cli_option_id id, uint64_t *bytes)
{
    return !cli_has_option(cli, id) || cli_parse_units_size(cli->options[id], bytes);
}

/* Returns 0, or the exit status of a mistake in the arguments. */
static int parse_arguments(struct cli_bench *bench, uint64_t *state_bytes, double *mtbf)
{
    const struct cli *cli = bench->cli;
    uint64_t runs = DEFAULT_RUNS;

    if (!parse_size(cli, CLI_OPTION_SIZE, &bench->bytes) || bench->bytes < MIN_BYTES)
        return cli_output_usage(cli, "bench: --size: '%s' is not a size of at least 16 MiB",
                                cli->options[CLI_OPTION_SIZE]);
    bench->bytes -= bench->bytes % CLI_BASELINE_IO_BYTES;
    *state_bytes = bench->bytes;
    if (!parse_size(cli, CLI_OPTION_STATE, state_bytes))
        return cli_output_usage(cli, "bench: --state: '%s' is not a size, like 80GiB",
                                cli->options[CLI_OPTION_STATE]);
    if (!cli_parse_units_time(mtbf_text(cli), mtbf))
        return cli_output_usage(cli, "bench: --mtbf: '%s' is not a time, like 6h or 2d",
                                cli->options[CLI_OPTION_MTBF]);
    int wrong = cli_arguments_number(cli, CLI_OPTION_RUNS, 1, CLI_BENCH_MAX_RUNS, &runs);
    bench->runs = runs;
    return wrong;
}

int cli_bench_run(const struct cli *cli)
{
    struct cli_bench bench = {
        .cli = cli,
        .directory = cli->operand_count > 0 ? cli->operands[0] : ".",
        .bytes = DEFAULT_BYTES,
    };
    struct sidestep_error err = {0};
    double mtbf = 0;
    uint64_t state_bytes;
    int status = parse_arguments(&bench, &state_bytes, &mtbf);

    bench.in_bucket = strncmp(bench.directory, "s3://", strlen("s3://")) == 0;
    if (status != 0)
        return status;
    if (sidestep_check_path(bench.directory, &err) != SIDESTEP_OK ||
        cli_bench_measure(&bench, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    for (int what = 0; what < CLI_BENCH_COUNT; what++)
        qsort(bench.seconds[what], bench.runs, sizeof(double), compare_numbers);
    struct prediction prediction = predict(&bench, state_bytes, mtbf);
    if (cli_has_option(cli, CLI_OPTION_JSON)) {
        print_json(&bench, &prediction);
        return 0;
    }
    print_table(&bench);
    if (!bench.in_bucket && !bench.direct)
        cli_output_note(cli, "'%s' refuses O_DIRECT: the disk was measured through the page cache",
                        bench.directory);
    print_prediction(cli->out, &prediction);
    return 0;
}
