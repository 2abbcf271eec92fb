/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * turn.h -- the turns of an engine's saves: which save waits for which, and how each one ended.
 *
 * One save is written at a time.  The others (struct sidestep_save_options, ${queue}) are staged by
 * copy, each into a slot of its own (slot.h), and written in the order of the calls.  So
 * checkpoints are committed in that order, and a save that fails does not stop those after it.
 *
 * On the thread of the caller, a save waits for what must end before it starts (turn_wait()),
 * looks at what became of earlier ones (turn_look()), learns from the agreement what rank 0 has
 * seen (turn_learn()), and takes its place (turn_take()).  Its runner, a thread, begins when the
 * caller lets it (turn_begin()) and the save before it has ended.  turn_wait() and turn_join()
 * hurry an earlier save: it is then written without regard for the trainer.
 *
 * All ranks have the same list of saves.  A save is added when all ranks have agreed on it.  It
 * leaves when they have agreed on another one, and rank 0 has told how it ended.
 *
 * Threads: the list belongs to the thread that calls.  What a save shares with its runner is under
 * the lock of the save.
 */
#ifndef SAVE_TURN_H
#define SAVE_TURN_H

#include "base/base.h"

#define TURN_MAX_SAVES (SIDESTEP_MAX_QUEUE + 1u)

struct sidestep_engine;
struct sidestep_save;

struct turns {
    struct sidestep_save *saves[TURN_MAX_SAVES]; /* references; the newest comes first */
    unsigned count;
};

/* What one look at the list shows.  Zeroed: nothing. */
struct turn_news {
    uint64_t verdicts; /* rank 0: how the saves ended */
    uint64_t reported; /* place of the failed save that this call reports, from 1; 0: none */
};

/* ---- the list, on the thread that calls ---- */

/* The newest save of the list; NULL: the list is empty. */
struct sidestep_save *turn_newest(const struct turns *turns) ON_THREAD(CALLER);
bool turn_contains(const struct turns *turns, const struct sidestep_save *save) ON_THREAD(CALLER);
/* How many saves of the list are under way.  They come first in it, because saves end in order. */
unsigned turn_count(const struct turns *turns) ON_THREAD(CALLER);
/* Wait until at most ${limit} saves are under way, and none to ${path} (NULL: to any).  EBUSY
 * instead, with SIDESTEP_SAVE_NOWAIT.  Adds to the time that ${save}, which is not in the list,
 * has waited. */
enum sidestep_status turn_wait(struct sidestep_save *save, unsigned limit, const char *path,
                               struct sidestep_error *err) ON_THREAD(CALLER);
/* Look at the saves of the list that have ended.  Fails with the error of one that was not reported
 * yet, once: a failed save fails one call on all ranks, and not one call per rank. */
enum sidestep_status turn_look(struct turns *turns, struct turn_news *news,
                               struct sidestep_error *err) ON_THREAD(CALLER);
/* Where saves are made of parts (else a no-op), instead of rank 0's verdicts: set ${news} to how
 * all parts ended. A save is COMMITTED if all of its parts are. Collective. */
enum sidestep_status turn_agree_parts_all(struct sidestep_engine *engine, struct turn_news *news,
                                          struct sidestep_error *err) ON_THREAD(CALLER);
/* Record what rank 0 has seen, and what any rank reports. */
void turn_learn(struct turns *turns, const struct turn_news *news) ON_THREAD(CALLER);
/* Add ${save}, which all ranks have started.  Those that had ended when rank 0 looked leave. */
void turn_take(struct sidestep_save *save, const struct turn_news *news) ON_THREAD(CALLER);
/* Wait until no save is under way. */
void turn_wait_idle(const struct turns *turns) ON_THREAD(CALLER);
/* At the end, on all ranks: the coordinator tells how its last saves ended, and removes outcome
 * files. */
enum sidestep_status turn_drain_all(struct sidestep_engine *engine, struct sidestep_error *err)
    ON_THREAD(CALLER);
/* Forget all saves. */
void turn_release(struct turns *turns) ON_THREAD(CALLER);

/* ---- one save ---- */

/* Start the runner of ${save}.  It waits, and then calls ${run}. */
enum sidestep_status turn_start(struct sidestep_save *save, void (*run)(struct sidestep_save *save),
                                struct sidestep_error *err);
/* On the runner's thread: the save has ended, so nobody waits for it.  Optional work follows, until
 * somebody waits for the thread. */
void turn_end_hurry(struct sidestep_save *save);
/* Let it begin when the save before it has ended, or, with ${cancel}, end at once.  Later calls are
 * no-ops. */
void turn_begin(struct sidestep_save *save, bool cancel);
/* Has the runner ended?  Also true if there is none. */
bool turn_has_ended(struct sidestep_save *save);
/* Wait until it has ended, without hurrying it.  Any thread. */
void turn_await(struct sidestep_save *save);
/* Hurry it, wait until it has ended, and join it. */
void turn_join(struct sidestep_save *save);
/* Wait for a save, send the coordinator's verdict to all ranks, release it.  Collective. */
enum sidestep_status turn_finish_all(struct sidestep_save **save, struct sidestep_save_info *info,
                                     struct sidestep_error *err);

#endif
