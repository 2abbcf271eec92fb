/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * snapshot_policy.h -- decides how the saves of an engine take a snapshot.
 *
 * It combines what the user requests, what the machine allows, and what the last saves measured.
 *
 * By itself (SIDESTEP_SNAPSHOT_AUTO) it compares what a save costs the trainer by copy-on-write,
 * and by a copy in the call:
 *
 *      cow    the call + what the trainer's writes lost by waits + its share of the background
 *      copy   the call                                           + its share of the background
 *
 * A save by copy-on-write needs more processor time in the background, because that reads memory
 * which is in no cache, through the kernel.  This costs a trainer nothing while a processor is
 * idle: then the threads of the background, which have the lowest priority, do not wait for one.
 *
 * A copy needs a pool as large as the state.  So cow comes first, and stays where the difference is
 * small or where memory is short.
 *
 * The first touch of memory is slow.  So a save touches the pool at its end if the next one may be
 * a copy, or if writes had to wait, because then the next one copies ahead.  What writes lost in a
 * cold pool, or before copiers began, says nothing about the next save.
 */
#ifndef SAVE_SNAPSHOT_POLICY_H
#define SAVE_SNAPSHOT_POLICY_H

#include <jansson.h>

#include "snapshot/snapshot.h"

#define SNAPSHOT_POLICY_REASON_BYTES 128u /* as in struct sidestep_save_info */

struct snapshot_policy {
    /* Constant. */
    enum sidestep_snapshot requested;
    enum sidestep_copy_ahead copy_ahead;
    bool user_mode_only;
    unsigned ranks_here; /* of the job on this host, which save at the same time */
    /* Used only by the thread that calls collective functions. */
    bool opened; /* cow was opened, or is unavailable */
    struct cow *cow;
    struct sidestep_error unavailable_reason;
    unsigned copy_saves_left;         /* saves by copy before cow is tried again */
    unsigned last_backoff;            /* where that count last started */
    bool pool_is_warm;                /* a copy finds the pool touched */
    bool touched_pool;                /* ... because a save has touched it for copies */
    bool wants_pool;                  /* this save is by cow, and the next one may be a copy */
    uint64_t cow_cost_ns;             /* what the last save by cow cost the trainer */
    uint64_t copy_cost_ns;            /* what copying the same bytes would have cost */
    uint64_t copy_ns_per_gib;         /* the call, measured; 0: not yet */
    uint64_t copy_cpu_ns_per_gib;     /* the background, measured with that */
    bool has_cow_save;                /* a save by cow was made: the fields below are valid */
    bool copied_ahead;                /* the copiers of the last save began at once */
    unsigned copy_ahead_saves_left;   /* saves whose copiers begin at once */
    unsigned last_copy_ahead_backoff; /* where that count last started */
    unsigned saves_without_faults;    /* consecutive saves by cow that needed no copiers */
};

/* Open ->cow, unless copies are requested.  If that fails, keep the error as the reason. */
void snapshot_policy_open(struct snapshot_policy *policy) ON_THREAD(CALLER);
/* May the next save use cow? */
bool snapshot_policy_can_use_cow(struct snapshot_policy *policy) ON_THREAD(CALLER);
/* Learn from a save that has ended, with ${info}.  ${warmed_pool}: it has touched the whole pool.
 */
void snapshot_policy_learn(struct snapshot_policy *policy, const struct sidestep_save_info *info,
                           bool warmed_pool) ON_THREAD(CALLER);
/*
 * Return the cow to protect ${image} with, prepared for a pool of ${pool_bytes}; NULL: copy.
 * ${reason}: why all or some is copied, or "".
 */
struct cow *snapshot_policy_choose(struct snapshot_policy *policy, const struct image *image,
                                   uint64_t pool_bytes, char reason[SNAPSHOT_POLICY_REASON_BYTES])
    ON_THREAD(CALLER);
/* Record that protecting has failed for that save, and set ${reason}. */
void snapshot_policy_note_cow_failure(struct snapshot_policy *policy,
                                      char reason[SNAPSHOT_POLICY_REASON_BYTES]) ON_THREAD(CALLER);
/* Did the last saves show that later ones need no pool memory for copies? */
bool snapshot_policy_can_trim_pool(const struct snapshot_policy *policy) ON_THREAD(CALLER);
/* After how many page faults the copiers begin.  Call after snapshot_policy_choose(). */
uint64_t snapshot_policy_choose_copy_threshold(struct snapshot_policy *policy) ON_THREAD(CALLER);
/* After how many page faults the save touches the whole pool at its end; UINT64_MAX: never.  Call
 * after snapshot_policy_choose(). */
uint64_t snapshot_policy_choose_touch_threshold(const struct snapshot_policy *policy)
    ON_THREAD(CALLER);
/* Does as much memory stay free as the pool takes?  Any thread may call it. */
bool snapshot_policy_may_touch_pool(const struct snapshot_policy *policy, uint64_t pool_bytes);
/* Did the trainer beside the save of ${info} keep all processors busy? */
bool snapshot_policy_was_busy(const struct sidestep_save_info *info);
void snapshot_policy_report_stats(const struct cow_stats *stats, struct sidestep_save_info *info);
/* Add the statistics of an event to ${fields}.  Adds nothing if memory is short. */
void snapshot_policy_report_event(const struct sidestep_save_info *info, json_t *fields);

#endif
