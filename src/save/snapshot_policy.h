/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * snapshot_policy.h -- how saves of an engine hold the state still: what the user wants, what the
 * machine allows, and what the last saves showed.
 */
#ifndef SAVE_SNAPSHOT_POLICY_H
#define SAVE_SNAPSHOT_POLICY_H

#include <jansson.h>

#include "snapshot/snapshot.h"

#define SNAPSHOT_POLICY_REASON_BYTES 128u /* as in struct sidestep_save_info */

struct snapshot_policy {
    /* Constant. */
    enum sidestep_snapshot wanted;
    enum sidestep_copy_ahead copy_ahead;
    bool user_mode_only;
    /* Of the thread that calls collective functions. */
    bool opened; /* or refused */
    struct cow *cow;
    struct sidestep_error refused;
    bool learnt;             /* from the last save by cow, or there was none */
    unsigned copies;         /* saves to be made by copy before cow is tried again */
    unsigned patience;       /* how many it were the last time */
    uint64_t protect_ns;     /* what the call of the last save by cow took for it */
    uint64_t lost_ns;        /* that, and what the trainer waited for afterwards */
    uint64_t copy_ns;        /* what copying as much would have taken */
    uint64_t copy_ns_a_gib;  /* as measured, or 0 */
    bool tried;              /* a save by cow was made: what follows means something */
    bool ahead;              /* the copiers of the last one did not wait */
    unsigned aheads;         /* saves whose copiers will not wait before that is tried again */
    unsigned ahead_patience; /* how many it were the last time */
    unsigned calm;           /* so many saves in a row whose copiers were not needed */
};

/* Open what cow needs, if it is wanted.  What fails is remembered as the reason. */
void snapshot_policy_open(struct snapshot_policy *hold);
void snapshot_policy_close(struct snapshot_policy *hold);
/* May the next save be held?  It is copied if not. */
bool snapshot_policy_can_use_cow(struct snapshot_policy *hold);
/* What to hold ${image} with, prepared for a pool of ${pool_bytes}; NULL: copy.  ${reason}: why all
 * or some is copied, or "". */
struct cow *snapshot_policy_choose(struct snapshot_policy *hold, const struct image *image,
                                   uint64_t pool_bytes, char reason[SNAPSHOT_POLICY_REASON_BYTES]);
/* That save could not be held after all: why. */
void snapshot_policy_note_cow_failure(struct snapshot_policy *hold,
                                      char reason[SNAPSHOT_POLICY_REASON_BYTES]);
/* That save was protected in so long; a save by copy copied ${bytes} in so long. */
void snapshot_policy_record_protect(struct snapshot_policy *hold, uint64_t ns);
void snapshot_policy_record_copy(struct snapshot_policy *hold, uint64_t bytes, uint64_t ns);
/* Have the last saves shown that the trainer needs no memory for copies? */
bool snapshot_policy_can_trim_pool(const struct snapshot_policy *hold);
/* After how many faults the copiers of the save begin that snapshot_policy_choose() was called for.
 */
uint64_t snapshot_policy_choose_copy_threshold(struct snapshot_policy *hold);
/* Instead: they begin at once, so nothing is learnt of how they wait. */
void snapshot_policy_force_copy_ahead(struct snapshot_policy *hold);
void snapshot_policy_report_stats(const struct cow_stats *stats, struct sidestep_save_info *info);
/* What an event says of it, into ${fields}; nothing if memory is short. */
void snapshot_policy_report_event(const struct sidestep_save_info *info, json_t *fields);

#endif
