/* SPDX-License-Identifier: BSD-3-Clause */
/* prune.c -- `sidestep prune`: deletes checkpoints that no option keeps. */
#include "arguments.h"
#include "output.h"
#include "removal.h"

/* False: option ${*wrong} is not a number. */
static bool take_policy(const struct cli *cli, struct sidestep_retention *keep, const char **wrong)
{
    const struct {
        enum cli_option_id id;
        uint64_t max;
        const char *name;
    } numbers[] = {{CLI_OPTION_KEEP_LAST, UINT32_MAX, "keep-last"},
                   {CLI_OPTION_KEEP_EVERY, UINT64_MAX, "keep-every"},
                   {CLI_OPTION_KEEP_BEST, UINT32_MAX, "keep-best"}};
    uint64_t values[3] = {0};

    for (int i = 0; i < 3; i++) {
        *wrong = numbers[i].name;
        if (!cli_arguments_number(cli, numbers[i].id, 0, numbers[i].max, &values[i]))
            return false;
    }
    *keep = (struct sidestep_retention){
        .struct_size = sizeof(*keep),
        .flags = cli_has_option(cli, CLI_OPTION_MAX) ? SIDESTEP_RETENTION_MAX : 0,
        .keep_last = (uint32_t)values[0],
        .keep_every = values[1],
        .keep_best = (uint32_t)values[2],
        .metric = cli->options[CLI_OPTION_METRIC],
    };
    return true;
}

static enum sidestep_status prune(const struct cli *cli, uint32_t flags,
                                  struct sidestep_gc_report *report, struct sidestep_error *err)
{
    struct sidestep_retention keep;
    const char *wrong;

    (void)take_policy(cli, &keep, &wrong); /* checked before */
    return sidestep_prune(cli->operands[0], &keep, flags, report, err);
}

int cli_prune_run(const struct cli *cli)
{
    struct sidestep_retention keep;
    const char *wrong;

    if (!cli_has_option(cli, CLI_OPTION_KEEP_LAST))
        return cli_output_usage(cli, "prune: --keep-last must be given");
    if (!take_policy(cli, &keep, &wrong))
        return cli_output_usage(cli, "prune: --%s: not a number", wrong);
    if (keep.keep_best != 0 && keep.metric == NULL)
        return cli_output_usage(cli, "prune: --keep-best needs --metric");
    if (cli_removal_needs_confirmation(cli) && !cli_removal_is_interactive())
        return cli_output_usage(cli, "prune: give --yes or --dry-run, because nobody can be asked");
    return cli_removal_run(cli, prune);
}
