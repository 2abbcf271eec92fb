/* SPDX-License-Identifier: BSD-3-Clause */
/* lineage.h -- decides which whole checkpoints a resume skips.
 *
 * These are checkpoints that a run left behind when it went back to an older one, checkpoints of
 * another run, and checkpoints that were saved under another name. */
#ifndef CATALOG_LINEAGE_H
#define CATALOG_LINEAGE_H

#include "catalog/annotations.h"
#include "sidestep/sidestep_tools.h"

/*
 * Set is_abandoned of ${entries}, which are sorted by step.
 *
 * A resume from an older checkpoint annotates the newer ones as abandoned. But an annotation can be
 * lost, and a checkpoint that could not be read at that time has none. So this also compares
 * incarnations, among checkpoints of one run and one naming. If a later incarnation has saved at a
 * lower step, the checkpoint of the older incarnation is abandoned. The exception is one that a run
 * resumed from by name (ANNOTATION_ADOPTED).
 */
void lineage_mark_abandoned(struct sidestep_listed *entries, size_t count,
                            const struct annotations *annotations);

struct lineage_filter {
    const char *run_id; /* accept only this run; NULL: any run */
    bool any_name;      /* accept also checkpoints saved under another name */
};
#define LINEAGE_REASON_BYTES 128u
/* Must a resume skip the entry? If so, ${why} is text that follows its name. */
bool lineage_should_skip(const struct lineage_filter *rule, const struct annotations *annotations,
                         const struct sidestep_listed *entry, char why[LINEAGE_REASON_BYTES]);

#endif
