/* SPDX-License-Identifier: BSD-3-Clause */
/* gc.c -- `sidestep gc`: removes leftovers. */
#include "removal.h"

static enum sidestep_status collect(const struct cli *cli, const char *place, uint32_t flags,
                                    struct sidestep_gc_report *report, struct sidestep_error *err)
{
    (void)cli;
    return sidestep_gc(place, flags, report, err);
}

int cli_gc_run(const struct cli *cli)
{
    return cli_removal_run(cli, collect);
}
