/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check.c -- `sidestep check`: one line and one exit status about roots, as monitoring plug-ins
 * give them (the Monitoring Plugins Development Guidelines, "Plugin Output" and "Plugin Return
 * Codes").
 */
#include "arguments.h"
#include "escape.h"
#include "format_units.h"
#include "health.h"
#include "json.h"
#include "levels.h"
#include "output.h"
#include "parse_units.h"
#include "verify_path.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_AGE_SECONDS (10.0 * 366 * 86400)

static void json_look(struct cli_json *json, const struct cli_health_look *look)
{
    char when[CLI_FORMAT_UNITS_BYTES];
    bool has_time = look->saved_at >= 0 && cli_format_units_time(when, look->saved_at);

    cli_json_open(json, NULL, '{');
    cli_json_text(json, "root", look->root);
    if (look->level != NULL) {
        cli_json_text(json, "level", look->level);
        cli_json_text(json, "place", look->place);
    }
    cli_json_text(json, "status", cli_health_name(cli_health_of(look)));
    cli_json_text(json, "newest", look->newest);
    cli_json_known(json, "step", look->step >= 0, look->step);
    cli_json_text(json, "saved_at", has_time ? when : NULL);
    cli_json_known(json, "age_seconds", look->saved_at >= 0, look->now - look->saved_at);
    cli_json_uint(json, "kept", look->kept);
    cli_json_uint(json, "bytes", look->bytes);
    cli_json_known(json, "free_bytes", look->has_space, (int64_t)look->free_bytes);
    cli_json_open(json, "findings", '[');
    for (size_t i = 0; i < look->finding_count; i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "status", cli_health_name(look->findings[i].level));
        cli_json_text(json, "message", look->findings[i].text);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    cli_json_close(json, '}');
}

static void print_json(const struct cli *cli, const struct cli_health_look *looks, size_t count,
                       enum cli_health worst)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_text(&json, "status", cli_health_name(worst));
    cli_json_open(&json, "roots", '[');
    for (size_t i = 0; i < count; i++)
        json_look(&json, &looks[i]);
    cli_json_close(&json, ']');
    cli_json_end(&json);
}

/* Text of one line: a "|" would begin the performance data. */
static void write_text(FILE *out, const char *text)
{
    char *shown = cli_escape_text(text);

    for (const char *at = shown; *at != '\0'; at++)
        fputc(*at == '|' ? '/' : *at, out);
    free(shown);
}

static void print_look(FILE *out, const struct cli_health_look *look)
{
    char age[CLI_FORMAT_UNITS_BYTES];

    if (look->level != NULL)
        fprintf(out, "%s ", look->level);
    write_text(out, look->place);
    fputs(": ", out);
    for (size_t i = 0; i < look->finding_count; i++) {
        fputs(i != 0 ? "; " : "", out);
        write_text(out, look->findings[i].text);
    }
    if (look->finding_count != 0)
        return;
    if (look->newest == NULL) {
        fputs("no checkpoint is demanded", out);
        return;
    }
    if (look->step >= 0)
        fprintf(out, "step %" PRId64, look->step);
    else
        write_text(out, look->newest);
    if (look->has_parts)
        fputs(" (the part of this node)", out);
    if (look->saved_at >= 0) {
        cli_format_units_age(age, look->now - look->saved_at);
        fprintf(out, " of %s ago", age);
    }
    fprintf(out, ", %" PRIu64 " kept", look->kept);
}

/* The label of one value: in single quotes, without what ends or splits it. */
static void print_label(const struct cli *cli, const struct cli_health_look *look, const char *what)
{
    fputs(" '", cli->out);
    if (look->level != NULL)
        fprintf(cli->out, "%s ", look->level);
    for (const char *at = look->root; cli->operand_count > 1 && *at != '\0'; at++)
        fputc(*at == '\'' || *at == '=' || *at == '|' || (unsigned char)*at < 0x20 ? '_' : *at,
              cli->out);
    fprintf(cli->out, "%s%s'=", cli->operand_count > 1 ? " " : "", what);
}

static void print_values(const struct cli *cli, const struct cli_health_look *look,
                         const struct cli_health_limits *limits)
{
    print_label(cli, look, "age");
    if (look->saved_at >= 0)
        fprintf(cli->out, "%" PRId64 "s", look->now - look->saved_at);
    else
        fputs("U", cli->out);
    if (limits->max_age != 0)
        fprintf(cli->out, ";;%" PRId64, limits->max_age);
    print_label(cli, look, "kept");
    fprintf(cli->out, "%" PRIu64, look->kept);
    print_label(cli, look, "bytes");
    fprintf(cli->out, "%" PRIu64 "B", look->bytes);
}

static void print_line(const struct cli *cli, const struct cli_health_look *looks, size_t count,
                       const struct cli_health_limits *limits, enum cli_health worst)
{
    static const enum cli_health worst_first[] = {CLI_HEALTH_CRITICAL, CLI_HEALTH_UNKNOWN,
                                                  CLI_HEALTH_WARNING, CLI_HEALTH_OK};
    bool is_first = true;

    fprintf(cli->out, "SIDESTEP %s - ", cli_health_name(worst));
    for (size_t level = 0; level < sizeof(worst_first) / sizeof(worst_first[0]); level++)
        for (size_t i = 0; i < count; i++) {
            if (cli_health_of(&looks[i]) != worst_first[level])
                continue;
            fputs(is_first ? "" : "; ", cli->out);
            is_first = false;
            print_look(cli->out, &looks[i]);
        }
    fputs(" |", cli->out);
    for (size_t i = 0; i < count; i++)
        print_values(cli, &looks[i], limits);
    fputc('\n', cli->out);
}

static int parse_limits(const struct cli *cli, struct cli_health_limits *limits)
{
    static const char *const words[] = {"structure", "newest", "sample", "all"};
    double seconds;
    size_t mode = 0;

    *limits = (struct cli_health_limits){.min_kept = 1};
    if (cli_has_option(cli, CLI_OPTION_MAX_AGE)) {
        if (!cli_parse_units_time(cli->options[CLI_OPTION_MAX_AGE], &seconds) || seconds < 1 ||
            seconds > MAX_AGE_SECONDS)
            return cli_output_usage(cli, "check: --max-age: not a time from 1s to 10 years");
        limits->max_age = (int64_t)seconds;
    }
    while (cli_has_option(cli, CLI_OPTION_VERIFY) && mode < 4 &&
           strcmp(words[mode], cli->options[CLI_OPTION_VERIFY]) != 0)
        mode++;
    if (mode == 4)
        return cli_output_usage(cli, "check: --verify: structure, newest, sample or all");
    limits->verify = (int)mode;
    return cli_arguments_number(cli, CLI_OPTION_MIN_KEPT, 1, 1000000, &limits->min_kept);
}

int cli_check_run(const struct cli *cli)
{
    static struct cli_health_look looks[CLI_HEALTH_MAX_LOOKS];
    struct cli_health_limits limits;
    enum cli_health worst = CLI_HEALTH_OK;

    if (parse_limits(cli, &limits) != 0 || cli_levels_check_options(cli) != 0)
        return CLI_EXIT_STATUS_UNKNOWN;
    cli_interrupt_watch();
    size_t count = cli_health_look_all(cli, &limits, looks);
    for (size_t i = 0; i < count; i++)
        worst = cli_health_worse(worst, cli_health_of(&looks[i]));
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, looks, count, worst);
    else
        print_line(cli, looks, count, &limits, worst);
    for (size_t i = 0; i < count; i++)
        cli_health_release(&looks[i]);
    return (int)worst;
}
