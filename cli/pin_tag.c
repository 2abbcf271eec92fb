/* SPDX-License-Identifier: BSD-3-Clause */
/* pin_tag.c -- `sidestep pin`, `sidestep unpin` and `sidestep tag`: change annotations. */
#include "cli.h"
#include "json.h"
#include "output.h"

/* Print the new state with --json; otherwise nothing. */
static int finish(const struct cli *cli, const char *tag, const char *what, bool on)
{
    if (!cli_has_option(cli, CLI_OPTION_JSON))
        return 0;
    struct cli_json json = cli_json_begin(cli->out);
    cli_json_text(&json, "path", cli->operands[0]);
    if (tag != NULL)
        cli_json_text(&json, "tag", tag);
    cli_json_bool(&json, what, on);
    cli_json_end(&json);
    return 0;
}

static int set_pin(const struct cli *cli, bool on)
{
    struct sidestep_error err = {0};

    if (sidestep_pin(cli->operands[0], on, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    return finish(cli, NULL, "pinned", on);
}

int cli_pin_run(const struct cli *cli)
{
    return set_pin(cli, true);
}

int cli_unpin_run(const struct cli *cli)
{
    return set_pin(cli, false);
}

int cli_tag_run(const struct cli *cli)
{
    bool on = !cli_has_option(cli, CLI_OPTION_REMOVE);
    struct sidestep_error err = {0};

    if (sidestep_tag(cli->operands[0], cli->operands[1], on, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    return finish(cli, cli->operands[1], "tagged", on);
}
