/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c -- `sidestep doctor`: prints what this machine allows, and how to allow more. */
#include "cli.h"
#include "escape.h"
#include "json.h"
#include "output.h"
#include "table.h"

#include <string.h>

static void print_json(const struct cli *cli, const char *directory,
                       const struct sidestep_doctor_report *report)
{
    struct cli_json json = cli_json_begin(cli->out);

    cli_json_text(&json, "directory", directory);
    cli_json_open(&json, "findings", '[');
    for (size_t i = 0; i < report->count; i++) {
        const struct sidestep_finding *finding = sidestep_doctor_report_finding(report, i);

        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "name", finding->name);
        cli_json_text(&json, "state", finding->state_name);
        cli_json_text(&json, "text", finding->text);
        cli_json_text(&json, "fix", finding->fix);
        cli_json_close(&json, '}');
    }
    cli_json_close(&json, ']');
    cli_json_end(&json);
}

static const char *style_of(enum sidestep_allowed state)
{
    switch (state) {
    case SIDESTEP_ALLOWED_NO:
        return CLI_STYLE_RED;
    case SIDESTEP_ALLOWED_PARTLY:
        return CLI_STYLE_YELLOW;
    case SIDESTEP_ALLOWED_YES:
        return CLI_STYLE_GREEN;
    case SIDESTEP_ALLOWED_FACT:
        break;
    }
    return CLI_STYLE_DIM;
}

/* "no      io_uring          refused ...", and "fix: ..." on the next line. */
static void print_finding(const struct cli *cli, const struct sidestep_finding *finding)
{
    char state[16];

    snprintf(state, sizeof(state), "%-6s",
             finding->state == SIDESTEP_ALLOWED_FACT ? "-" : finding->state_name);
    cli_table_style(cli->out, cli->color ? style_of(finding->state) : NULL, state);
    fprintf(cli->out, "  %-16s  ", finding->name);
    cli_escape_write(cli->out, finding->text, strlen(finding->text));
    fputc('\n', cli->out);
    if (finding->fix != NULL)
        fprintf(cli->out, "%26sfix: %s\n", "", finding->fix);
}

int cli_doctor_run(const struct cli *cli)
{
    const char *directory = cli->operand_count > 0 ? cli->operands[0] : ".";
    struct sidestep_doctor_report report = {0};
    struct sidestep_error err = {0};

    if (sidestep_doctor(directory, &report, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    if (cli_has_option(cli, CLI_OPTION_JSON))
        print_json(cli, directory, &report);
    for (size_t i = 0; !cli_has_option(cli, CLI_OPTION_JSON) && i < report.count; i++)
        print_finding(cli, sidestep_doctor_report_finding(&report, i));
    sidestep_doctor_report_release(&report);
    return 0;
}
