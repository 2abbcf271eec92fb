/* SPDX-License-Identifier: BSD-3-Clause */
/* lineage.h -- which checkpoints no resume takes by itself, though they are whole: what a run has
 * left behind by going back to an older one, what another run made, and what bears another's name.
 */
#ifndef CATALOG_LINEAGE_H
#define CATALOG_LINEAGE_H

#include "catalog/annotations.h"

/*
 * Going back marks what is newer as abandoned; but a mark can be lost, and cannot be put on what
 * could not be read at that time.  So, besides: of one run and one way to name, what an older
 * incarnation made at a step that a later one has passed through is of a line that has ended,
 * unless it was gone on from by name (MARKS_ADOPTED).  ${entries} are sorted by step; sets their
 * is_abandoned.
 */
void lines_find_ended(struct sidestep_listed *entries, size_t count, const struct marks *marks);

struct lines_rule {
    const char *run_id; /* whose are taken; NULL: any run's */
    bool any_name;      /* also what was saved under another name */
};
#define LINES_WHY_BYTES 128u
/* False: a resume may take it; else ${why} goes on after its name. */
bool lines_passes_over(const struct lines_rule *rule, const struct marks *marks,
                       const struct sidestep_listed *entry, char why[LINES_WHY_BYTES]);

#endif
