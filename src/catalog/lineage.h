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
 * unless it was gone on from by name (ANNOTATION_ADOPTED).  ${entries} are sorted by step; sets
 * their is_abandoned.
 */
void lineage_mark_abandoned(struct sidestep_listed *entries, size_t count,
                            const struct annotations *marks);

struct lineage_filter {
    const char *run_id; /* whose are taken; NULL: any run's */
    bool any_name;      /* also what was saved under another name */
};
#define LINEAGE_REASON_BYTES 128u
/* False: a resume may take it; else ${why} goes on after its name. */
bool lineage_should_skip(const struct lineage_filter *rule, const struct annotations *marks,
                         const struct sidestep_listed *entry, char why[LINEAGE_REASON_BYTES]);

#endif
