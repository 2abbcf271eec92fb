/* SPDX-License-Identifier: BSD-3-Clause */
/* candidates.h -- which entries of a listing retention decides about, and what it must know of
 * them. */
#ifndef SELECTION_CANDIDATES_H
#define SELECTION_CANDIDATES_H

#include "selection/prune.h"

struct candidates {
    struct sidestep_listed *entries; /* copies, by step, oldest first */
    struct retention_item *items;    /* one for each */
    size_t count;
    const struct sidestep_listed *
        *others; /* of the listing: retention does not decide about them */
    size_t other_count;
};

/* Find the candidates of ${list}, which they point into.  Of ${p} it uses the policy, the naming,
 * the run and is_settled().  retention_plan() then decides. */
enum sidestep_status candidates_find(const struct prune *p, const struct sidestep_list *list,
                                     struct candidates *candidates, struct sidestep_error *err);
void candidates_release(struct candidates *candidates);

/* Why one of the others stays; NULL: it is no checkpoint, or its remains, which gc removes. */
const struct retention_reason *candidates_why_other(const struct prune *p,
                                                    const struct sidestep_listed *entry);

#endif
