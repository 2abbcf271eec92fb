/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sight.h -- checks that all ranks see what rank 0 has just made on storage, and finds out which
 * ranks are on one host.
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

/* The hosts of the ranks.  They are told apart by their names. */
struct sight_hosts {
    uint32_t ranks_here; /* on this rank's host, this one included */
    uint32_t count;
    uint32_t *of_rank; /* rank 0, of several: the number of each rank's host, below ${count} */
};
void sight_hosts_release(struct sight_hosts *hosts);
/* It takes two all-reduces. */
enum sidestep_status sight_find_hosts_all(struct comm *comm, struct sight_hosts *hosts,
                                          struct sidestep_error *err);

#endif
