/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_queue.h -- the saves of an engine that are under way.
 *
 * One is written at a time.  The others (struct sidestep_save_options, ${queue}) are staged by
 * copy, each into a pool of its own, and written in the order of the calls.  So checkpoints are
 * committed in that order, and a save that fails does not stop those after it.
 *
 * All ranks have the same list.  A save is added when all ranks have agreed on it.  It leaves when
 * they have agreed on another one and rank 0 has reported how it ended.
 */
#ifndef SAVE_SAVE_QUEUE_H
#define SAVE_SAVE_QUEUE_H

#include "snapshot/snapshot.h"

#define SAVE_QUEUE_MAX (SIDESTEP_MAX_QUEUE + 1u)
/* A slot's memory is freed after this many saves that did not use it. */
#define SAVE_QUEUE_IDLE_SAVES 8u

struct sidestep_engine;
struct sidestep_save;

/* The memory that one save uses until it has ended. */
struct save_slot {
    struct pool pool;
    struct image image;
    uint64_t plan_number; /* of the plan that the image was built for */
    uint64_t used;        /* the engine's save counter at the last use */
};

struct save_queue {
    struct save_slot slots[SAVE_QUEUE_MAX];
    struct sidestep_save *saves[SAVE_QUEUE_MAX]; /* references; the newest comes first */
    unsigned count;
};

/* The newest save of the list; NULL: the list is empty. */
struct sidestep_save *save_queue_newest(const struct sidestep_engine *engine) ON_THREAD(CALLER);
/* Is ${save} in the list? */
bool save_queue_contains(const struct sidestep_engine *engine, const struct sidestep_save *save)
    ON_THREAD(CALLER);
/* The newest save of the list, if its runner has not ended; otherwise NULL. */
struct sidestep_save *save_queue_newest_unfinished(const struct sidestep_engine *engine)
    ON_THREAD(CALLER);
void save_queue_wait_idle(struct sidestep_engine *engine) ON_THREAD(CALLER);
/* Wait until at most ${limit} saves are under way, and take a slot for ${save}.  If ${nowait},
 * fail with EBUSY instead of waiting. */
enum sidestep_status save_queue_acquire_slot(struct sidestep_engine *engine,
                                             struct sidestep_save *save, unsigned limit,
                                             bool nowait, struct sidestep_error *err)
    ON_THREAD(CALLER);
/* Wait in the same way for saves to the same path as ${save}. */
enum sidestep_status save_queue_wait_for_path(struct sidestep_engine *engine,
                                              struct sidestep_save *save, bool nowait,
                                              struct sidestep_error *err) ON_THREAD(CALLER);
/* Give ${slot} a pool of ${bytes}: that of another slot whose save has ended, or a new one if the
 * engine's cap allows it.  Otherwise wait for other saves to end first. */
enum sidestep_status save_queue_reserve_pool(struct sidestep_engine *engine,
                                             struct sidestep_save *save, uint64_t bytes,
                                             bool at_once, bool pin, struct sidestep_error *err)
    ON_THREAD(CALLER);
/* Return the error of a failed save that was not reported yet, once; OK otherwise.  ${place} (NULL
 * allowed): its place in the list, counted from 1. */
enum sidestep_status save_queue_take_unreported_error(struct sidestep_engine *engine,
                                                      uint64_t *place, struct sidestep_error *err)
    ON_THREAD(CALLER);
/* Mark the failure of the save at ${place} (0: none) as reported, also if this rank does not know
 * of it: a failed save fails one call on all ranks, and not one call per rank. */
void save_queue_mark_reported(struct sidestep_engine *engine, uint64_t place) ON_THREAD(CALLER);

/* Pack rank 0's states of all saves in the list, and apply them on the other ranks. */
uint64_t save_queue_pack_verdicts(const struct sidestep_engine *engine) ON_THREAD(CALLER);
void save_queue_apply_verdicts(struct sidestep_engine *engine, uint64_t verdicts) ON_THREAD(CALLER);
/* Remove the saves that have ended by ${verdicts}, which all ranks know. */
void save_queue_remove_ended(struct sidestep_engine *engine, uint64_t verdicts) ON_THREAD(CALLER);
/* Add ${save}, which all ranks have started.  It is written when the save before it has ended. */
void save_queue_add(struct sidestep_engine *engine, struct sidestep_save *save) ON_THREAD(CALLER);
/* At the end, on all ranks: the coordinator reports how its last saves ended, and removes outcome
 * files. */
enum sidestep_status save_queue_drain_all(struct sidestep_engine *engine,
                                          struct sidestep_error *err) ON_THREAD(CALLER);
void save_queue_release(struct sidestep_engine *engine) ON_THREAD(CALLER);

#endif
