/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sight_groups.h -- finds out which ranks see the same directory.
 *
 * Each rank makes a file in its directory, under a name that nobody knew before, and then looks for
 * those of lower ranks. The lowest one that it sees is the lead of its group. Names are those of
 * outcome files, which sweeps remove if a kill comes between.
 */
#ifndef ENGINE_SIGHT_GROUPS_H
#define ENGINE_SIGHT_GROUPS_H

#include "comm/comm.h"
#include "commit/commit.h"
#include "store/store.h"

struct sight_groups {
    uint32_t *leads; /* per rank: the lead of its group; allocated */
    uint32_t *ranks; /* of this rank's group, ascending; allocated */
    struct commit_group mine;
};
void sight_groups_release(struct sight_groups *groups);

/* ${dir}: this rank's. If all ranks see one directory, groups->mine has no ranks. EDISAGREE: the
 * ranks of a group do not see each other. Release ${groups} in any case. */
enum sidestep_status sight_group_all(struct comm *comm, struct store_dir *dir,
                                     struct sight_groups *groups, struct sidestep_error *err);

#endif
