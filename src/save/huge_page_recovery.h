/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * huge_page_recovery.h -- restores huge pages of tensors that a fork() has split.
 *
 * A fork(2) of the program (workers of a data loader) shares its huge pages with the child.  The
 * next write to each page then splits it permanently, and protecting the state takes twenty times
 * as long.
 *
 * So if protecting has taken long, the runner collapses the pages of the tensors to huge pages
 * again, after its last step and while nobody waits for a save.  It only touches memory for which
 * huge pages were requested (MADV_HUGEPAGE: by sidestep_state_dict_huge_pages(), or by an
 * allocator).
 */
#ifndef SAVE_HUGE_PAGE_RECOVERY_H
#define SAVE_HUGE_PAGE_RECOVERY_H

#include "base/base.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"

struct huge_page_recovery {
    uint64_t bytes;   /* that are on huge pages again */
    uint64_t took_ns; /* without the pauses */
};

/* Did protecting ${held_bytes} take so long that huge pages must be missing? */
bool huge_page_recovery_is_needed(uint64_t held_bytes, uint64_t took_ns);
/* Collapse the ranges that ${cow} protected last.  Nothing may be protected now, and ${cow} must
 * not be prepared for another save.  Ends early when somebody waits for a save, or when ${throttle}
 * is paused.  Pages that cannot be collapsed stay as they are. */
void huge_page_recovery_run(const struct cow *cow, struct throttle *throttle, struct clock *clock,
                            struct huge_page_recovery *out);

#endif
