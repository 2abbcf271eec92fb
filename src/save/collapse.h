/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collapse.h -- puts the tensors of a save on huge pages when it is done.
 *
 * Protecting takes twenty times as long on pages of 4 KiB as on huge ones.  Most programs get small
 * pages: transparent huge pages are for memory that asks for them (the default "madvise"), and a
 * fork(2), for workers of a data loader, splits those that a program has.
 *
 * So if protecting has taken long, the runner collapses the pages of the tensors to huge pages,
 * after its last step and while nobody waits for a save.  It leaves alone:
 *
 *      where the system or the program wants none    "never", MADV_NOHUGEPAGE, PR_SET_THP_DISABLE
 *      pages of which some were never touched, or     a huge page would take memory
 *          are shared with a child, or merged
 *      while all processors are busy                  the trainer would pay more than it gets back
 */
#ifndef SAVE_COLLAPSE_H
#define SAVE_COLLAPSE_H

#include "base/base.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"

struct collapse {
    uint64_t bytes;   /* that are on huge pages now, and were not before */
    uint64_t took_ns; /* without the pauses */
};

/* Did protecting take so long, in the save of ${info}, that huge pages must be missing, and is a
 * processor idle? */
bool collapse_is_due(const struct sidestep_save_info *info);
/* Collapse the ranges that ${cow} protected last.  Nothing may be protected now, and ${cow} must
 * not be prepared for another save.  Ends early when somebody waits for a save, or when ${throttle}
 * is paused.  Pages that cannot be collapsed stay as they are. */
void collapse_run(const struct cow *cow, struct throttle *throttle, struct clock *clock,
                  struct collapse *out);

#endif
