/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * levels.h -- the two levels of a series: the root that it saves to, and its mirror.
 *
 * For the option --mirror. A mirror that cannot be read is an error, and never an empty mirror.
 */
#ifndef CLI_LEVELS_H
#define CLI_LEVELS_H

#include "cli.h"

struct cli_level_row {
    const struct sidestep_listed *entry; /* the root's, if both levels have this save */
    const char *level;                   /* "near", "mirror" or "both"; NULL: without --mirror */
};

struct cli_levels {
    const char *root;
    char *mirror;     /* NULL: without --mirror */
    bool is_outdated; /* a later incarnation of the run went on elsewhere with this mirror */
    struct sidestep_list near, far;
    struct cli_level_row *rows; /* of both, by step; what both have is there once */
    size_t count;
};

/** cli_levels_check_options(cli): 0; or, after a message, the exit status: one mirror was named for
 * several roots. */
int cli_levels_check_options(const struct cli *cli);
/**
 * cli_levels_find(cli, root, levels, err): find the mirror: the argument of --mirror, or the one
 * that ${root} remembers.  It must be the mirror of the run there.  Call cli_levels_release() in
 * any case.
 */
enum sidestep_status cli_levels_find(const struct cli *cli, const char *root,
                                     struct cli_levels *levels, struct sidestep_error *err);
/** cli_levels_read(cli, root, levels, err): the same, and list both; without --mirror, only list
 * ${root}.  With it, a ${root} that is not there has nothing, and standard error says so. */
enum sidestep_status cli_levels_read(const struct cli *cli, const char *root,
                                     struct cli_levels *levels, struct sidestep_error *err);
/** cli_levels_note(cli, levels, is_lost): say on standard error that the root is outdated, or that
 * there is none. */
void cli_levels_note(const struct cli *cli, const struct cli_levels *levels, bool is_lost);
void cli_levels_release(struct cli_levels *levels);

#endif
