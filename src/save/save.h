/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save.h -- one save: from the call to a committed checkpoint.
 *
 * The order: the ranks agree (save.c, save_plan_all.c), also on who writes what all of them have
 * (replicas.h); a snapshot is taken (snapshot_policy.h decides how); the call returns.  In the
 * background, save_runner.c drives the pipeline (pipeline.h: copy, hash, compress, write), seals
 * the shards, and commits (commit/). save_handle.c has the states of a save, waiting for it, and
 * progress.  turn.h orders several saves of one engine, and slot.h has their memory.
 *
 * What comes in: a path, a state dict, options.
 * What goes out: a handle (struct sidestep_save) whose states only move forward: STAGING, STAGED,
 * RELEASED, WRITTEN, then COMMITTED, ABORTED or UNKNOWN.
 *
 * Ownership: tensors stay the caller's; their memory must stay mapped until RELEASED.  saver.h is
 * what an engine keeps from one save to the next: pool, image, plan, and measurements.  A handle
 * has references: the caller's, the list's (turn.h), and that of the save after it.
 *
 * Threads: the thread that calls (collective); one runner per save; the engine's stagers and
 * writers.  What they share is in ->shared, under its lock.
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

/* A copy_reason: tensors on devices pass through the pool, so protected memory may not occupy its
 * slots. */
#define SAVE_REASON_SMALL_POOL "pool_bytes is smaller than the state"

/* The series that a save is part of; NULL for single saves. */
struct save_series {
    const char *run_id;
    uint64_t incarnation;
    const struct name_template *naming;
    const struct commit_guard *guard;
    bool incremental;                 /* share unchanged files with the previous checkpoint */
    const struct commit_group *group; /* NULL: all ranks see one root */
};

struct sidestep_save {
    struct sidestep_engine *engine;
    struct saver *saver;            /* ${engine->saver} */
    struct save_slot *slot;         /* pool and image; other saves use it once this one has ended */
    struct sidestep_save *previous; /* a reference, until the previous runner has ended; or NULL */
    struct commit commit;
    uint32_t *group_ranks; /* of ${commit.group}; or NULL */
    struct pipeline pipeline;
    struct compressor *compressor; /* NULL: items are stored uncompressed */
    const char *codec_name;        /* the descriptor of its codec, as footers have it */
    struct sidestep_save_options options;
    bool incremental;                      /* see incremental.h */
    bool is_noted OWNED_BY_THREAD(CALLER); /* in saver->whole or saver->torn */
    pthread_t runner;
    void (*run)(struct sidestep_save *save); /* what ${runner} does in its turn */
    bool has_runner;                         /* ${runner} has to be joined */
    bool has_taught OWNED_BY_THREAD(CALLER); /* later saves have learned from it */
    bool teaches;             /* the snapshot policy may learn from how it was staged */
    uint64_t touch_threshold; /* after so many faults, its runner touches the pool at the end ... */
    bool warmed_pool;         /* ... and has touched all of it */
    bool has_memory_turn;     /* see slot.h */
    atomic_bool cancelled;
    bool checks_fences;  /* SIDESTEP_FENCE_DEBUG: see save_end_fence_check() */
    uint64_t body_bytes; /* of the image */
    uint64_t staged_ns;  /* when it was STAGED, by the engine's clock */

    struct {
        struct lock lock LOCK_KIND(SAVE);
        struct lock_condition changed;
        unsigned references GUARDED_BY(&lock);
        bool may_run GUARDED_BY(&lock);      /* the runner may start ... */
        bool must_stop GUARDED_BY(&lock);    /* ... or must end at once */
        bool runner_ended GUARDED_BY(&lock); /* the runner has ended */
        bool is_polling GUARDED_BY(&lock);   /* a thread is asking storage for the outcome */
        bool is_urgent GUARDED_BY(&lock);    /* somebody waits, until turn_end_hurry() or the end */
        bool is_reported GUARDED_BY(&lock);  /* its end was reported to a caller */
        enum sidestep_save_state state GUARDED_BY(&lock);
        struct sidestep_error err GUARDED_BY(&lock); /* set once ABORTED or UNKNOWN */
        struct sidestep_save_info info GUARDED_BY(&lock);
    } shared;
};

/* ---- save.c ---- */

/* Start a save: run it until the snapshot is taken.  Collective. */
enum sidestep_status save_start_all(struct sidestep_engine *engine, const char *path,
                                    const struct sidestep_state_dict *state,
                                    const struct sidestep_save_options *options,
                                    const struct save_series *series, bool blocking,
                                    struct sidestep_save **save, struct sidestep_error *err);
/* Choose the codec of this rank's items by the options, and set ->compressor (NULL: none). */
enum sidestep_status save_choose_codec(struct sidestep_save *save, struct sidestep_error *err)
    ON_THREAD(CALLER);
/* Make a new plan.  The entries of ${state} with replicated[i], which are the same tensors on all
 * ranks, count as declared REPLICATED; NULL: none.  Collective. */
enum sidestep_status save_plan_all(struct sidestep_engine *engine,
                                   const struct sidestep_state_dict *state, const bool *replicated,
                                   struct sidestep_error *err) ON_THREAD(CALLER);

/* At the first save to a place: check that all ranks see what rank 0 has made there.  EDISAGREE: a
 * rank does not.  Collective. */
enum sidestep_status save_check_sight_all(struct sidestep_save *save, struct sidestep_error *err)
    ON_THREAD(CALLER);

/* ---- save_identity.c ---- */

/* Make the id of a save: of a series, all ranks that coordinate make the same. */
enum sidestep_status save_make_id(const struct sidestep_save *save,
                                  const struct save_series *series, uint8_t id[SAVE_ID_BYTES],
                                  struct sidestep_error *err) ON_THREAD(CALLER);
/* If the series has a directory for each node, ${save} is a part, of the group of
 * this rank, which is copied, because the save may outlive the series. */
enum sidestep_status save_set_group(struct sidestep_save *save, const struct save_series *series,
                                    struct sidestep_error *err) ON_THREAD(CALLER);

/* ---- save_files_all.c ---- */

/* Compare the small files of all ranks, where each node has a directory for itself: else the commit
 * does. EDISAGREE: two ranks have different files of one name. Collective. */
enum sidestep_status save_agree_files_all(const struct sidestep_save *save,
                                          struct sidestep_error *err) ON_THREAD(CALLER);

/* ---- save_offload.c: saves of tensors on devices ---- */

/* Is any tensor of ${state} in the memory of a device? */
bool save_has_device_tensors(struct sidestep_engine *engine,
                             const struct sidestep_state_dict *state);
/* Begin to copy the tensors on devices.  True: the rest is done in the background, and the call may
 * return.  False (also on failure): call pipeline_stage(), which copies them too. */
bool save_offload(struct sidestep_save *save, bool blocking, uint64_t began_ns) ON_THREAD(CALLER);

/* Call when all is staged and written: fail if a fenced tensor was written to before its fence.
 * No-op unless ->checks_fences. */
enum sidestep_status save_end_fence_check(struct sidestep_save *save, struct sidestep_error *err);

/* ---- save_handle.c: the states of a save, waiting, errors ---- */

enum sidestep_status save_new(struct sidestep_engine *engine, struct sidestep_save **save,
                              struct sidestep_error *err);
void save_retain(struct sidestep_save *save);
void save_release(struct sidestep_save *save);
/* Move forward to ${state}; moves backwards are ignored.  ${err}: why, for ABORTED and UNKNOWN. */
void save_advance(struct sidestep_save *save, enum sidestep_save_state state,
                  const struct sidestep_error *err);
enum sidestep_save_state save_get_state(struct sidestep_save *save);
/* SIDESTEP_SAVE_* flags so far. */
uint32_t save_get_flags(struct sidestep_save *save);
bool save_state_is_final(enum sidestep_save_state state);
/* Emit the event of a save that all ranks have agreed on. */
void save_emit_started(struct sidestep_save *save);
/* Return the error of a failed save that was not reported yet, once; OK otherwise. */
enum sidestep_status save_take_unreported_error(struct sidestep_save *save,
                                                struct sidestep_error *err);
/* Count the failure of ${save} as reported, even if this rank does not know of it yet. */
void save_mark_reported(struct sidestep_save *save);

/* ---- save_runner.c: what happens in the background ---- */

/* Write, vote, and on rank 0 commit. */
void save_run(struct sidestep_save *save);

/* save_teach.c: let later saves learn from what this one took.  Call when the runner has ended.
 * Later calls are no-ops. */
void save_teach(struct sidestep_save *save) ON_THREAD(CALLER);

/* save_space.c: this rank's save failed with ${why}.  If space was short, add how much its shards
 * needed and how much was free.  Rank 0 also adds how much older checkpoints use. */
void save_explain_space(struct sidestep_save *save, struct sidestep_error *why);

#endif
