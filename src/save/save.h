/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save.h -- one save: from the call to a checkpoint that exists.
 *
 * The order: the ranks agree (save.c, save_plan_all.c); a snapshot is taken (snapshot_policy.h
 * decides how); the call returns.  In the background, save_runner.c drives the pipeline
 * (pipeline.h: copy, hash, compress, write), seals the shards, and commits (commit/).
 * save_handle.c is what others see of it: states, waiting, progress.  save_queue.h orders several
 * saves of one engine.
 *
 * What comes in: a path, a state dict, options.
 * What goes out: a handle (struct sidestep_save) whose states only move forward: STARTED, STAGED,
 * RELEASED, then COMMITTED, ABORTED or UNKNOWN.
 *
 * Ownership: tensors stay the caller's; their memory must stay mapped until RELEASED.  saver.h is
 * what an engine keeps from one save to the next: pool, image, plan, and what it has learnt.  A
 * handle has references: the caller's, the queue's, the runner's.
 *
 * Threads: the thread that calls (collective); one runner per save; the engine's stagers and
 * writers. What they share lies in ->shared, under its lock.
 */
#ifndef SAVE_SAVE_H
#define SAVE_SAVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "commit/commit.h"
#include "engine/engine.h"
#include "save/compressor.h"
#include "save/pipeline.h"
#include "save/saver.h"

/* What a save is part of; NULL for one-off saves. */
struct save_series {
    const char *run_id;
    uint64_t incarnation;
    const struct name_template *naming;
    const struct commit_guard *guard;
    bool incremental; /* what does not change is shared with the checkpoint before */
};

struct sidestep_save {
    struct sidestep_engine *engine;
    struct save_slot *slot;       /* pool and image; others' once it has ended */
    struct sidestep_save *before; /* our reference, until its runner has ended; or NULL */
    struct commit commit;
    struct pipeline pipeline;
    struct compressor *press; /* NULL: items are written as they are */
    const char *transform;    /* of those that it encodes */
    struct sidestep_save_options options;
    bool incremental;
    pthread_t runner;
    bool has_runner; /* to be joined */
    bool counted;    /* C: the commit code is done with */
    bool has_taught; /* its pace was learnt, or there is none */
    bool has_turn;
    atomic_bool cancelled;
    bool doubted;        /* promises are looked at before it is STAGED: SIDESTEP_FENCE_DEBUG */
    uint64_t body_bytes; /* of the image */
    uint64_t staged_ns;  /* when it was STAGED, by the engine's clock */

    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned references;
        bool go;       /* the runner may start ... */
        bool cancel;   /* ... or must end at once */
        bool ran;      /* the runner has ended */
        bool learning; /* a thread is asking storage */
        bool hurried;  /* it counts as waited for until the runner has ended */
        bool asked;    /* somebody was told how it ended */
        enum sidestep_save_state state;
        struct sidestep_error err; /* once ABORTED or UNKNOWN */
        struct sidestep_save_info info;
    } shared;
};

/* ---- save.c ---- */

/* A whole save up to STAGED.  Collective. */
enum sidestep_status save_start_all(struct sidestep_engine *engine, const char *path,
                                    const struct sidestep_state_dict *state,
                                    const struct sidestep_save_options *options,
                                    const struct save_series *series, bool blocking,
                                    struct sidestep_save **save, struct sidestep_error *err);
/* Wait for it, spread C's verdict, release.  Collective. */
enum sidestep_status save_finish_all(struct sidestep_save **save, struct sidestep_save_info *info,
                                     struct sidestep_error *err);
/* By which codec this rank's items are encoded, as its options say: ->press, NULL if by none. */
enum sidestep_status save_choose_codec(struct sidestep_save *save, struct sidestep_error *err);
/* Plan together, because some rank's layout has changed.  Collective. */
enum sidestep_status save_plan_all(struct sidestep_engine *engine,
                                   const struct sidestep_state_dict *state,
                                   struct sidestep_error *err);

/* ---- save_pool.c: pools of memory that devices may have pinned ---- */

/* ${pool}, of at least ${bytes}, whose pages ${workers} touch, see pool_reserve(); ${pin}: tensors
 * on devices go through it. */
enum sidestep_status save_pool_reserve(struct sidestep_engine *engine, struct pool *pool,
                                       uint64_t bytes, struct workers *workers, bool pin,
                                       struct sidestep_error *err);
/* Give ${pool} back to the system; it is unpinned first. */
void save_pool_release(struct sidestep_engine *engine, struct pool *pool);

/* ---- save_offload.c: saves of tensors on devices ---- */

/* Is any tensor of ${state} in the memory of a device? */
bool save_has_device_tensors(struct sidestep_engine *engine,
                             const struct sidestep_state_dict *state);
/* Begin to copy what is on devices.  True: the rest is done in the background, and the call may
 * return; else (also if it failed) pipeline_stage() brings them too. */
bool save_offload(struct sidestep_save *save, bool blocking, uint64_t began_ns);

/* All is staged and written: was what had to wait for a fence left alone?  No-op unless ->doubted.
 */
enum sidestep_status save_end_fence_check(struct sidestep_save *save, struct sidestep_error *err);

/* ---- save_memory_turn.c: engines of one process that share memory ---- */

/* Before this save stages anything, and when it is written, or has failed and nobody stages any
 * more: gives back the memory that the engine has for saves.  No-ops where engine->turn is NULL. */
void save_memory_turn_begin(struct sidestep_save *save);
void save_memory_turn_end(struct sidestep_save *save);

/* ---- save_handle.c: the life of a save as others see it ---- */

enum sidestep_status save_new(struct sidestep_engine *engine, struct sidestep_save **save,
                              struct sidestep_error *err);
void save_retain(struct sidestep_save *save);
void save_release(struct sidestep_save *save);
/* Move forward to ${state}; moves backwards are ignored.  ${err}: why, for ABORTED and UNKNOWN. */
void save_advance(struct sidestep_save *save, enum sidestep_save_state state,
                  const struct sidestep_error *err);
enum sidestep_save_state save_get_state(struct sidestep_save *save);
/* SIDESTEP_SAVE_*, so far. */
uint32_t save_get_flags(struct sidestep_save *save);
bool save_state_is_final(enum sidestep_save_state state);
/* The event of a save that all ranks have agreed on. */
void save_emit_started(struct sidestep_save *save);
/* Let the runner go, or end at once. */
void save_unblock_runner(struct sidestep_save *save, bool cancel);
/* Has its runner ended?  Also true if it has none. */
bool save_runner_has_ended(struct sidestep_save *save);
/* Wait until the runner has ended, and join it. */
void save_join_runner(struct sidestep_save *save);
/* What C has told about an earlier save: settles one that is still undecided. */
void save_apply_verdict(struct sidestep_save *save, enum sidestep_save_state verdict);
/* The error of a save that has failed and that nobody was told of, once; OK otherwise. */
enum sidestep_status save_take_unreported_error(struct sidestep_save *save,
                                                struct sidestep_error *err);
/* Its failure, known here or not yet, is told. */
void save_mark_reported(struct sidestep_save *save);

/* ---- save_runner.c: what happens in the background ---- */

void *save_runner_main(void *save);

/* ---- save_feedback.c: what a save shows of how fast the disk is ---- */

/* The runner calls this once all is written: it updates the choice of the queue depth.  One runner
 * writes at a time, and no other thread reads that choice. */
void save_record_queue_depth(struct sidestep_save *save);
/* Once its runner has ended: update the choice whether to compress.  Later calls are no-ops. */
void save_update_compression_policy(struct sidestep_save *save);

/* save_space.c: the save of this rank failed with ${why}.  If space was short, say how much its
 * shards needed and how much was free.  Rank 0 also says what older checkpoints take. */
void save_explain_space(struct sidestep_save *save, struct sidestep_error *why);

#endif
