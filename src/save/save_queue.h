/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_queue.h -- the saves of an engine that are under way.  One is written at a time; those
 * behind it (struct sidestep_save_options, ${queue}) are staged by copy, each into a pool of its
 * own, and written in the order of the calls.  So checkpoints come to exist in that order, and one
 * that fails does not keep those behind it from it.
 *
 * All ranks have the same list: a save is added to it once all have agreed on it, and leaves it
 * when they have agreed on another one and rank 0 has told how it ended.
 */
#ifndef SAVE_SAVE_QUEUE_H
#define SAVE_SAVE_QUEUE_H

#include "snapshot/snapshot.h"

#define SAVE_QUEUE_MAX (SIDESTEP_MAX_QUEUE + 1u)
/* After so many saves that did not need it, the memory of a place in the queue goes. */
#define SAVE_QUEUE_IDLE_SAVES 8u

struct sidestep_engine;
struct sidestep_save;

/* What a save has of its own until it has ended. */
struct save_slot {
    struct pool pool;
    struct image image;
    uint64_t plan_number; /* of the plan that the image was built for */
    uint64_t used;        /* the engine's count of saves when one used it last */
};

struct save_queue {
    struct save_slot slots[SAVE_QUEUE_MAX];
    struct sidestep_save *saves[SAVE_QUEUE_MAX]; /* our references; the newest comes first */
    unsigned count;
};

/* The latest save that all ranks have started; NULL: none, or all is settled. */
struct sidestep_save *save_queue_newest(const struct sidestep_engine *engine);
/* Is ${save} in the list? */
bool save_queue_contains(const struct sidestep_engine *engine, const struct sidestep_save *save);
/* The latest one, if it has not ended. */
struct sidestep_save *save_queue_newest_unfinished(const struct sidestep_engine *engine);
void save_queue_wait_idle(struct sidestep_engine *engine);
/* Until no more than ${allowed} saves are under way, none of them to ${path} (NULL: to any), and
 * ${save} has a slot.  EBUSY instead of waiting, if ${nowait}. */
enum sidestep_status save_queue_acquire_slot(struct sidestep_engine *engine,
                                             struct sidestep_save *save, unsigned allowed,
                                             bool nowait, struct sidestep_error *err);
/* The same, of the saves to the same path as ${save}. */
enum sidestep_status save_queue_wait_for_path(struct sidestep_engine *engine,
                                              struct sidestep_save *save, bool nowait,
                                              struct sidestep_error *err);
/* A pool of ${bytes} for ${slot}: that of another one that has ended, or another one, if the
 * engine's cap has room; else after waiting for others to end. */
enum sidestep_status save_queue_reserve_pool(struct sidestep_engine *engine,
                                             struct sidestep_save *save, uint64_t bytes,
                                             bool at_once, bool pin, struct sidestep_error *err);
/* The error of a save that has failed and that nobody was told of, once; OK otherwise.  ${place}
 * (NULL allowed): 1 + where it is in the list. */
enum sidestep_status save_queue_take_unreported_error(struct sidestep_engine *engine,
                                                      uint64_t *place, struct sidestep_error *err);
/* All ranks were told of the failure of the save at ${place} (0: of none), those too that did not
 * know of it yet: it refuses one call, not one on each rank. */
void save_queue_mark_reported(struct sidestep_engine *engine, uint64_t place);

/* Rank 0's word on all of the list; and what the others make of it. */
uint64_t save_queue_pack_verdicts(const struct sidestep_engine *engine);
void save_queue_apply_verdicts(struct sidestep_engine *engine, uint64_t verdicts);
/* All ranks know ${verdicts}: those that have ended leave. */
void save_queue_remove_ended(struct sidestep_engine *engine, uint64_t verdicts);
/* All ranks have started ${save}.  It is written when the one before it has ended. */
void save_queue_add(struct sidestep_engine *engine, struct sidestep_save *save);
/* At the end, on all ranks: C tells what became of its last saves, and forgets outcome files. */
enum sidestep_status save_queue_drain_all(struct sidestep_engine *engine,
                                          struct sidestep_error *err);
void save_queue_release(struct sidestep_engine *engine);

#endif
