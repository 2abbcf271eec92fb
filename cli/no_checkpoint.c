/* SPDX-License-Identifier: BSD-3-Clause */
/* no_checkpoint.c -- says that there is no checkpoint in a root: see no_checkpoint.h. */
#include "no_checkpoint.h"

#include "output.h"

#include <limits.h>
#include <unistd.h>

static bool is_checkpoint(const char *root)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/.metadata", root);

    return length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0;
}

void cli_no_checkpoint_note(const struct cli *cli, const char *root, const char *more)
{
    if (is_checkpoint(root))
        cli_output_note(cli, "'%s' is a checkpoint itself: 'sidestep show' says what is in it",
                        root);
    else
        cli_output_note(cli, "'%s': there is no checkpoint yet%s", root, more);
}
