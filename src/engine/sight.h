/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sight.h -- checks that all ranks see what rank 0 has just made on storage, and counts the ranks
 * of a host.
 *
 * A path may lead to a disk of its own on each host. Then the votes of some ranks would never come,
 * or each host would keep a part of a checkpoint. So each rank looks for what rank 0 has just made,
 * under a name that nobody knew before, and the ranks tell each other.
 */
#ifndef ENGINE_SIGHT_H
#define ENGINE_SIGHT_H

#include "comm/comm.h"

/* Time for which a rank looks before it gives up. Meanwhile it makes the host forget names that it
 * may have cached (commit/refresh_names.h). */
#define SIGHT_WAIT_NS UINT64_C(5000000000)

/* ${sees}: this rank sees it. EDISAGREE on all ranks if one does not; the message says which ranks
 * and hosts do, which do not, and what to do. It takes one all-reduce if all see it. ${path}, which
 * the caller named, is for the message. */
enum sidestep_status sight_agree_all(struct comm *comm, bool sees, const char *path,
                                     struct sidestep_error *err);

/* The number of ranks on this rank's host, this one included.  Hosts are told apart by their names.
 * It takes two all-reduces. */
enum sidestep_status sight_count_here_all(struct comm *comm, uint32_t *count,
                                          struct sidestep_error *err);

#endif
