/* SPDX-License-Identifier: BSD-3-Clause */
/* prune.c -- `sidestep prune`: deletes checkpoints that no option keeps. */
#include "arguments.h"
#include "levels.h"
#include "output.h"
#include "removal.h"

/* Returns 0; or, after a message, the exit status. */
static int parse_retention(const struct cli *cli, struct sidestep_retention *keep)
{
    uint64_t last = 0, every = 0, best = 0;
    int wrong = cli_arguments_number(cli, CLI_OPTION_KEEP_LAST, 0, UINT32_MAX, &last);

    if (wrong == 0)
        wrong = cli_arguments_number(cli, CLI_OPTION_KEEP_EVERY, 0, UINT64_MAX, &every);
    if (wrong == 0)
        wrong = cli_arguments_number(cli, CLI_OPTION_KEEP_BEST, 0, UINT32_MAX, &best);
    *keep = (struct sidestep_retention){
        .struct_size = sizeof(*keep),
        .flags = cli_has_option(cli, CLI_OPTION_MAX) ? SIDESTEP_RETENTION_MAX : 0,
        .keep_last = (uint32_t)last,
        .keep_every = every,
        .keep_best = (uint32_t)best,
        .metric = cli->options[CLI_OPTION_METRIC],
    };
    return wrong;
}

static enum sidestep_status prune(const struct cli *cli, const char *place, uint32_t flags,
                                  struct sidestep_gc_report *report, struct sidestep_error *err)
{
    struct sidestep_retention keep;

    (void)parse_retention(cli, &keep); /* checked before */
    return sidestep_prune(place, &keep, flags, report, err);
}

/* Fail because there is no terminal to ask on.  If the root cannot be listed, report that first. */
static int fail_unconfirmed(const struct cli *cli)
{
    struct cli_levels levels;
    struct sidestep_error err = {0};
    bool is_read = cli_levels_read(cli, cli->operands[0], &levels, &err) == SIDESTEP_OK;

    cli_levels_release(&levels);
    if (!is_read)
        return cli_output_error(cli, &err);
    return cli_output_usage(cli, "prune: give --yes or --dry-run, because nobody can be asked");
}

int cli_prune_run(const struct cli *cli)
{
    struct sidestep_retention keep;
    int wrong = parse_retention(cli, &keep);

    if (wrong != 0)
        return wrong;
    if (!cli_has_option(cli, CLI_OPTION_KEEP_LAST))
        return cli_output_usage(cli, "prune: --keep-last must be given");
    if (keep.keep_best != 0 && keep.metric == NULL)
        return cli_output_usage(cli, "prune: --keep-best needs --metric");
    if (cli_removal_needs_confirmation(cli) && !cli_removal_is_interactive())
        return fail_unconfirmed(cli);
    return cli_removal_run(cli, prune);
}
