/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kept.h -- says of each entry of a listing why the retention of its run keeps it.
 *
 * A run records its policy in the state of its series (root/lease.h).  What a prune of the run
 * would decide now is decided by the same function.  The prune also looks at what a listing does
 * not show: who is reading, what a mirror lacks, and whether what is to stay verifies.
 */
#ifndef SELECTION_KEPT_H
#define SELECTION_KEPT_H

#include "root/root.h"
#include "selection/prune.h"

/* What a run records: the policy, and the names that it concerns. */
void kept_format_record(const struct retention *retention, const struct name_template *naming,
                        char text[LEASE_KEEPS_BYTES]);

/* Set kept and kept_because of all entries of ${list}.  ${is_flawed} (may be NULL): is it known to
 * be damaged, although the listing did not find that out? */
enum sidestep_status kept_mark(struct sidestep_list *list,
                               bool (*is_flawed)(const void *context,
                                                 const struct sidestep_listed *entry),
                               const void *context, struct sidestep_error *err);

#endif
