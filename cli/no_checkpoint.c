/* SPDX-License-Identifier: BSD-3-Clause */
/* no_checkpoint.c -- notes that there is no checkpoint in a root; see no_checkpoint.h. */
#include "no_checkpoint.h"

#include "output.h"

/* Does it have a .metadata? Its content is not read. */
static bool is_checkpoint(const char *root)
{
    struct sidestep_error err;
    void *bytes = NULL;
    size_t length;
    enum sidestep_status status = sidestep_read_file(root, ".metadata", 0, &bytes, &length, &err);

    sidestep_bytes_free(&bytes);
    return status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT;
}

void cli_no_checkpoint_note(const struct cli *cli, const char *root, const char *more)
{
    if (is_checkpoint(root))
        cli_output_note(cli, "'%s' is a checkpoint itself: 'sidestep show' says what is in it",
                        root);
    else
        cli_output_note(cli, "'%s': there is no checkpoint yet%s", root, more);
}
