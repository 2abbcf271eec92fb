/* SPDX-License-Identifier: BSD-3-Clause */
/* collect_shards.h -- part of step 4 of the protocol (commit.h): reads and checks every shard. */
#ifndef COMMIT_COLLECT_SHARDS_H
#define COMMIT_COLLECT_SHARDS_H

#include "commit/commit.h"

/* Read the footers of all shards of all ranks, check their ids, and fill the rows of the manifest,
 * the metadata and the shared files of ${contents}. Several threads read, because storage that is
 * far away takes milliseconds for each file. Rank 0 never has the footers of more than a few ranks
 * in memory. */
enum sidestep_status collect_shards(struct commit *commit, struct commit_contents *contents,
                                    struct sidestep_error *err);

#endif
