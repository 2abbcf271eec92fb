/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sight.h -- do all ranks see what rank 0 made?
 *
 * A path may lead to a disk of its own on each host. Then the votes of some ranks would never come,
 * or each host would keep a part of a checkpoint. So each rank looks for what rank 0 has just made,
 * under a name that nobody knew before, and the ranks tell each other.
 */
#ifndef ENGINE_SIGHT_H
#define ENGINE_SIGHT_H

#include "comm/comm.h"

/* How long a rank looks before it says no. What it does meanwhile ends what a host may have kept in
 * its cache (commit/refresh_names.h). */
#define SIGHT_WAIT_NS UINT64_C(5000000000)

/* All ranks: does this one see it? EDISAGREE on all ranks if one does not; the message says which
 * ranks and hosts do, which do not, and what to do. One all-reduce if all see it. ${path} is what
 * the caller named. */
enum sidestep_status sight_agree_all(struct comm *comm, bool sees, const char *path,
                                     struct sidestep_error *err);

#endif
