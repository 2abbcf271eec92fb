/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * huge_page_recovery.h -- huge pages that were lost, put together again between saves.
 *
 * A fork(2) of the program (workers of a data loader) leaves its huge pages shared with the child;
 * the next write to each then splits it, for good, and protecting the state takes twenty times as
 * long.  So where protecting has taken long, those tensors that lie in memory for which huge pages
 * were asked (MADV_HUGEPAGE: by sidestep_state_dict_huge_pages(), or an allocator) are collapsed,
 * by the thread of the save, after its last step and before anybody waits for it again.
 */
#ifndef SAVE_HUGE_PAGE_RECOVERY_H
#define SAVE_HUGE_PAGE_RECOVERY_H

#include "base/base.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"

struct huge_page_recovery {
    uint64_t bytes;   /* put on huge pages again */
    uint64_t took_ns; /* without the pauses between them */
};

/* Did protecting ${held_bytes} take so long that huge pages must be missing? */
bool huge_page_recovery_is_needed(uint64_t held_bytes, uint64_t took_ns);
/* What ${cow} held last; nothing is armed, and it is not prepared for another save.  Ends early
 * when somebody waits for ${neighbour}, or has it paused.  What cannot be had is left as it is. */
void huge_page_recovery_run(const struct cow *cow, struct throttle *neighbour, struct clock *clock,
                            struct huge_page_recovery *out);

#endif
