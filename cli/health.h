/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * health.h -- looks at a root, and says what is not as it should be.
 *
 * Everything comes from storage at each look, and nothing from the memory of a process: so it is
 * right after any restart, and runs where no job runs.  It reads no tensors unless asked to.
 */
#ifndef CLI_HEALTH_H
#define CLI_HEALTH_H

#include "cli.h"

#include <stdint.h>

#define CLI_HEALTH_MAX_FINDINGS 16
#define CLI_HEALTH_MAX_LOOKS (2 * CLI_MAX_GIVEN_OPERANDS)

/** The values are the exit statuses of monitoring plug-ins. */
enum cli_health { CLI_HEALTH_OK, CLI_HEALTH_WARNING, CLI_HEALTH_CRITICAL, CLI_HEALTH_UNKNOWN };

struct cli_health_finding {
    enum cli_health level;
    char text[512];
};

/** What to demand of a root. */
struct cli_health_limits {
    int64_t max_age;   /* seconds; of the newest checkpoint; 0: any */
    uint64_t min_kept; /* checkpoints from which a resume may choose */
    enum { CLI_HEALTH_STRUCTURE, CLI_HEALTH_NEWEST, CLI_HEALTH_SAMPLE, CLI_HEALTH_ALL } verify;
};

/** One look at one root.  Numbers are those of what could be read. */
struct cli_health_look {
    const char *root;               /* as it was given */
    const char *level;              /* "near" or "mirror"; NULL: without --mirror */
    const char *place;              /* what was looked at: ${root} or its mirror */
    char *mirror;                   /* NULL, or ${place} */
    bool is_up;                     /* ${place} could be listed ... */
    struct sidestep_error unlisted; /* ... or why not */
    bool has_parts;                 /* the newest is a part of a checkpoint, of this node */
    int64_t now;                    /* seconds since 1970 */
    char *newest;                   /* the checkpoint that a resume takes; NULL: none, or unknown */
    int64_t step;                   /* of it; -1: unknown */
    int64_t saved_at;
    uint64_t newest_bytes;
    uint64_t kept;                          /* checkpoints that are whole */
    uint64_t bytes;                         /* of all entries that are ours or checkpoints */
    uint64_t counts[SIDESTEP_PRESENCE_END]; /* by enum sidestep_presence */
    bool has_space;
    uint64_t free_bytes;       /* of the file system */
    struct sidestep_list list; /* what is there */
    size_t finding_count;      /* worst first; the worst is also that of the root */
    struct cli_health_finding findings[CLI_HEALTH_MAX_FINDINGS];
};

/** cli_health_look_all(cli, limits, looks): look at each operand, and with --mirror at its mirror
 * behind it: CLI_HEALTH_MAX_LOOKS at most.  Returns how many looks that are.  Free each with
 * cli_health_release(). */
size_t cli_health_look_all(const struct cli *cli, const struct cli_health_limits *limits,
                           struct cli_health_look *looks);
void cli_health_release(struct cli_health_look *look);

/** cli_health_of(look): the worst of its findings; OK if there is none. */
enum cli_health cli_health_of(const struct cli_health_look *look);
/** cli_health_worse(a, b): the worse of two.  Critical is worse than unknown: somebody must get
 * up.  Unknown is worse than a warning: it may hide anything. */
enum cli_health cli_health_worse(enum cli_health a, enum cli_health b);
/** "OK", "WARNING", "CRITICAL", "UNKNOWN". */
const char *cli_health_name(enum cli_health level);

#endif
