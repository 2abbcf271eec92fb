/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.h -- struct sidestep_engine and struct sidestep_save from the inside. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/workers.h"
#include "comm/comm.h"
#include "commit/commit.h"
#include "save/queue_depth.h"
#include "engine/events.h"
#include "save/snapshot_policy.h"
#include "save/incremental.h"
#include "engine/throttle.h"
#include "save/compression_policy.h"
#include "save/pipeline.h"
#include "save/compressor.h"
#include "save/save_queue.h"
#include "plan/save_plan.h"
#include "snapshot/devices.h"
#include "snapshot/image.h"
#include "snapshot/offload.h"
#include "snapshot/pool.h"
#include "store/store.h"

#define ENGINE_DEFAULT_TIMEOUT_MS 600000u
#define ENGINE_MAX_THREADS 64u
/* Where the user does not say: threads that write, and requests in flight.  Of 4, 8 and 16 none was
 * better on the disks that were measured; those of large arrays want more than one. */
#define ENGINE_WRITERS 4u
#define ENGINE_RING_WRITERS 2u /* they only hash */
#define ENGINE_RING_DEPTH 8u

struct sidestep_engine {
    /* The caller's, and one for each save and series: these may be given back after the engine, of
     * which they then still find what is constant. */
    atomic_uint references;

    /* Constant after sidestep_engine_open(). */
    pid_t pid;
    struct comm comm;
    struct store *store;
    struct store *own_store; /* made of options.store, or NULL */
    struct clock *clock;
    uint32_t flags;
    struct store_queue_kind io;
    struct neighbour neighbour;
    sem_t *turn;       /* NULL, or: see save_memory_turn.c; set before the first save */
    uint64_t pool_cap; /* 0: as large as needed */
    uint64_t timeout_ms;
    struct workers *stagers;
    struct workers *writers; /* as many as encode ... */
    unsigned write_threads;  /* ... of whom, with the caller, so many write what is not encoded */
    struct events events;

    /* Touched only by the thread that calls collective functions, and, while a save is being
     * written, read by its runner. */
    struct save_queue queue;      /* of saves that are under way */
    struct press_room press_room; /* of saves that encode */
    struct hold hold;
    struct pace pace;
    struct depth depth; /* of requests through io_uring that write */
    struct devices devices;
    struct offload offload;
    uint64_t layout_digest; /* of the state that the plan was made for; 0: no plan */
    struct save_plan plan;
    uint64_t plan_number; /* counts them */
    struct keep keep;     /* of incremental saves */
    uint64_t save_counter;
    struct sidestep_series *series; /* a list of those that are open */
};

/* What a save is part of; NULL for one-off saves. */
struct save_series {
    const char *run_id;
    uint64_t incarnation;
    const struct naming *naming;
    const struct commit_guard *guard;
    bool incremental; /* what does not change is shared with the checkpoint before */
};

struct sidestep_save {
    struct sidestep_engine *engine;
    struct save_slot *slot;       /* pool and image; others' once it has ended */
    struct sidestep_save *before; /* our reference, until its runner has ended; or NULL */
    struct commit commit;
    struct pipeline pipeline;
    struct press *press;   /* NULL: items are written as they are */
    const char *transform; /* of those that it encodes */
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

/* options.failure of a save or load: the caller's reason not to take part, as our own error. */
enum sidestep_status engine_failure(const struct sidestep_error *failure,
                                    struct sidestep_error *err);
/* EFORKED in a child of the process that opened the engine. */
enum sidestep_status engine_check(const struct sidestep_engine *engine, struct sidestep_error *err);

void engine_retain(struct sidestep_engine *engine);
void engine_release(struct sidestep_engine *engine);

/* ---- series.c ---- */

/* The engine closes: give back all but the handle.  Returns the next one of the engine's list. */
struct sidestep_series *series_shut(struct sidestep_series *series);

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

/* ---- save_offload.c: saves of tensors on devices ---- */

/* ${pool}, of at least ${bytes}, whose pages ${workers} touch, see pool_reserve(); ${pin}: tensors
 * on devices go through it. */
enum sidestep_status engine_reserve_pool(struct sidestep_engine *engine, struct pool *pool,
                                         uint64_t bytes, struct workers *workers, bool pin,
                                         struct sidestep_error *err);
/* Is any tensor of ${state} in the memory of a device? */
bool engine_is_away(struct sidestep_engine *engine, const struct sidestep_state_dict *state);
/* Begin to copy what is on devices.  True: the rest is done in the background, and the call may
 * return; else (also if it failed) pipeline_stage() brings them too. */
bool save_offload(struct sidestep_save *save, bool blocking, uint64_t began_ns);

/* All is staged and written: was what had to wait for a fence left alone?  No-op unless ->doubted.
 */
enum sidestep_status save_check_promised(struct sidestep_save *save, struct sidestep_error *err);

/* ---- save_memory_turn.c: engines of one process that share memory ---- */

/* Before this save stages anything, and when it is written, or has failed and nobody stages any
 * more: gives back the memory that the engine has for saves.  No-ops where engine->turn is NULL. */
void save_take_turn(struct sidestep_save *save);
void save_give_turn(struct sidestep_save *save);

/* ---- save_handle.c: the life of a save as others see it ---- */

enum sidestep_status save_new(struct sidestep_engine *engine, struct sidestep_save **save,
                              struct sidestep_error *err);
void save_retain(struct sidestep_save *save);
void save_release(struct sidestep_save *save);
/* Move forward to ${state}; moves backwards are ignored.  ${err}: why, for ABORTED and UNKNOWN. */
void save_advance(struct sidestep_save *save, enum sidestep_save_state state,
                  const struct sidestep_error *err);
enum sidestep_save_state save_state(struct sidestep_save *save);
/* SIDESTEP_SAVE_*, so far. */
uint32_t save_flags(struct sidestep_save *save);
bool save_has_ended(enum sidestep_save_state state);
/* The event of a save that all ranks have agreed on. */
void save_emit_started(struct sidestep_save *save);
/* Let the runner go, or end at once. */
void save_release_runner(struct sidestep_save *save, bool cancel);
/* Wait until the runner has ended, and join it. */
void save_join(struct sidestep_save *save);
/* What C has told about an earlier save: settles one that is still undecided. */
void save_settle(struct sidestep_save *save, enum sidestep_save_state verdict);
/* The error of a save that has failed and that nobody was told of, once; OK otherwise. */
enum sidestep_status save_take_sticky(struct sidestep_save *save, struct sidestep_error *err);
/* Its failure, known here or not yet, is told. */
void save_set_told(struct sidestep_save *save);
/* At the end, on all ranks: C tells what became of its last saves, and forgets outcome files. */
enum sidestep_status save_settle_all(struct sidestep_engine *engine, struct sidestep_error *err);

/* ---- save_runner.c: what happens in the background ---- */

void *save_runner_main(void *save);
/* It has ended: what it shows of how fast the disk is.  Once. */
void save_learn_pace(struct sidestep_save *save);

#endif
