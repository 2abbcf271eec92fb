/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h -- the crash-state explorer: runs the real commit and recovery code on a simulated disk
 * or bucket, all ranks as coroutines of one thread, on a simulated clock.
 *
 *   model_world.c      coroutines, the scheduler, the clock: one run of a workload
 *   model_store.c      the simulated disk's operations, with faults and missing steps
 *   model_program.c    the processes: ranks that save, owners of a series, a user
 *   model_shard.c      shards of a few bytes that tell saves and ranks apart
 *   model_ledger.c     what was reported to whom, and whether a disk keeps it
 *   model_explore.c    after every step: kill all, cut the power, recover, check
 *   model_bucket.c     the same in a bucket: after every request, kill all, let late requests
 *                      arrive, let time pass, recover, check
 *   model_workload.c   the table of workloads
 *   model_mutant.c     the table of missing steps, each of which must be noticed
 *   crash_model.c      the program
 */
#ifndef TORTURE_MODEL_H
#define TORTURE_MODEL_H

#include <ucontext.h>

#include "base/clock.h"
#include "commit/commit.h"
#include "support/object_sim.h"
#include "support/prng.h"
#include "support/store_sim.h"

#define MODEL_PARENT "/p"
#define MODEL_BUCKET "runs"
#define MODEL_PARENT_URL "s3://" MODEL_BUCKET "/p"
#define MODEL_TARGET "t"
#define MODEL_MAX_TASKS 5
#define MODEL_MAX_SAVES 8
#define MODEL_MAX_FILES 3
#define MODEL_MAX_TRACE 8192
#define MODEL_TIMEOUT_MS 150

/* Clients of the disk. Tasks are 0, 1, 2 ...; a recovery is MODEL_RECOVERY minus its depth. */
enum { MODEL_RECOVERY = 14, MODEL_SETUP = 15 };

/* ---- what was reported */

enum { MODEL_NOTHING = -1 };

struct model_save {
    uint8_t id[SAVE_ID_BYTES];
    char name[16]; /* below MODEL_PARENT */
    uint32_t ranks;
    uint32_t began, ended;          /* ticks; 0: not yet */
    uint32_t looked;                /* when it looked up what it would replace; 0: not yet */
    uint32_t publishing;            /* when it began to publish; counted like ${looked} */
    bool committed;                 /* a process was told so */
    bool reported;                  /* the process that saved it was told so */
    bool uncertain;                 /* committed, but only after a sync of names failed silently */
    bool aborted;                   /* a process was told so */
    bool doomed;                    /* it is being deleted */
    bool gone;                      /* a process was told that it is deleted */
    bool fenced;                    /* a later incarnation has chosen without it */
    bool seen;                      /* it was there when one chose */
    uint64_t incarnation;           /* that saved it; 0: none, or one that has ended */
    bool has_kept;                  /* each rank has a second shard, with the data of ... */
    uint8_t kept_id[SAVE_ID_BYTES]; /* ... this save */
};
/* A file that is not ours. */
struct model_file {
    char dir[24];
    char name[16];
    bool durable;
};
struct ledger {
    struct model_save saves[MODEL_MAX_SAVES];
    struct model_file files[MODEL_MAX_FILES];
    uint32_t save_count, file_count;
    uint64_t chosen_by; /* the latest incarnation that has chosen */
    /* In a bucket: a commit may arrive after a later incarnation has chosen. Then the process that
     * saved it is not told that it is committed; a resume after that may choose it. */
    bool commits_late;
    uint32_t tick;
    uint32_t order; /* counts saves that have looked, or begun to publish */
    uint32_t tainted_at;
    bool is_tainted; /* a sync of names failed, and later ones return OK without effect */
};
struct model_save *ledger_new_save(struct ledger *ledger, const char *name, uint32_t ranks);
void ledger_tell(struct ledger *ledger, struct model_save *save, enum commit_outcome outcome);
/* Rank 0 (C) has finished it. */
void ledger_end(struct ledger *ledger, struct model_save *save);
uint64_t ledger_hash(const struct ledger *ledger);

struct problem {
    char text[1200];
};
/* Which save does a reader find whole under ${name} (${*save}: its number, or MODEL_NOTHING)?
 * false: something that it must not find. */
bool ledger_look(struct store *store, const struct ledger *ledger, const char *name, int *save,
                 struct problem *problem);
/* Are all checkpoints and files as reported? ${powered}: the power was never lost. */
bool ledger_judge(struct sim *sim, const struct ledger *ledger, bool powered,
                  struct problem *problem);
/* The same for the checkpoints of any store, which lost nothing. ${one_wins}: of two saves at once,
 * only one may be committed. */
bool ledger_judge_store(struct store *store, const struct ledger *ledger, bool powered,
                        bool one_wins, struct problem *problem);
/* Are there only checkpoints, files of users, and files of the series? */
bool ledger_judge_leftovers(struct sim *sim, struct problem *problem);

/* ---- shards */

/* Write shard ${number} of ${count}. */
enum sidestep_status shard_write(struct commit *commit, struct store_file *file,
                                 const uint8_t id[SAVE_ID_BYTES], uint32_t number, uint32_t count,
                                 struct sidestep_error *err);
/* The same, with other data than expected. */
enum sidestep_status shard_write_stray(struct commit *commit, struct store_file *file,
                                       const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err);
struct reader;
bool shard_check_all(struct reader *reader, const struct model_save *save, struct problem *problem);
#define MODEL_LAYOUT_DIGEST 0x5157455354455021u

/* ---- tasks, and the phases of the protocol */

enum phase {
    PHASE_OTHER,
    PHASE_BEGIN,
    PHASE_SHARD,
    PHASE_VOTE,
    PHASE_COLLECT,
    PHASE_PUBLISH,
    PHASE_ABORT,
    PHASE_LEARN,
    PHASE_LEASE,
    PHASE_FENCE,
    PHASE_CHOOSE,
    PHASE_DELETE,
};
struct actor {
    bool recovers; /* it is a recovery, not part of the run */
    enum phase phase;
    unsigned parent_syncs, dir_syncs; /* so far in this phase */
    uint32_t rank;
    bool is_dead;
    /* The pending marker that it handled last: did it make it, and which inode has it just locked
     * (0: none)? */
    bool made_marker;
    uint64_t locked_inode;
};
void model_enter(enum phase phase);

enum fault_kind {
    FAULT_NONE,
    FAULT_BEFORE, /* the operation fails, and has no effect */
    FAULT_AFTER,  /* it takes effect, and reports an error */
    FAULT_LOST,   /* a sync fails, and later ones return OK without effect */
};

/* A step that is left out. */
enum mutant_kind {
    MUTANT_NONE,
    MUTANT_FILE_SYNC,
    MUTANT_DIR_SYNC,
    MUTANT_PARENT_SYNC,
    MUTANT_HIDE_MARKER,
    MUTANT_PLAIN_RENAME,
    MUTANT_UNCHECKED_SHARDS,
    MUTANT_ANY_LAYOUT,
    MUTANT_ANY_ID,
    MUTANT_NO_GUARD,
    MUTANT_METADATA_LAST,
    MUTANT_NO_LOCK,
    MUTANT_ANY_PREVIOUS,
    MUTANT_HIDE_OLD,
    MUTANT_ANY_FILE, /* nth 1: a marker that the actor made; 2: one that it found */
    MUTANT_EARLY_VOTE,
    MUTANT_RETRY_SYNC,
    MUTANT_REQUEST, /* ${request} is not made: "put pending" */
    MUTANT_POINT,   /* fault point ${request} */
};
struct mutant {
    const char *name;
    enum mutant_kind kind;
    enum phase phase;
    unsigned nth;              /* from 1; 0: all */
    enum file_name_kind names; /* MUTANT_FILE_SYNC: of these files */
    int rank;                  /* -1: all */
    const char *workload;      /* in which it must be noticed */
    const char *spare; /* why it need not be noticed: the step is a second defence; NULL: it must */
    const char *request; /* in a bucket; NULL: none */
};
extern const struct mutant model_mutants[];
extern const size_t model_mutant_count;

struct trace_entry {
    int client;
    const char *op;
    char name[SIM_NAME_BYTES];
};

/* The state of the model; one thread uses it. */
struct model {
    struct actor *actor;
    const struct mutant *mutant; /* NULL: the protocol is complete */
    struct trace_entry trace[MODEL_MAX_TRACE];
    size_t trace_count;
    uint64_t random;    /* the seed of the operating system's random numbers */
    const char *parent; /* of all checkpoints */
};
extern struct model model;

void model_trace(int client, const char *op, const char *name);
/* Make all operations on ${sim} go through model_store.c. */
void model_store_attach(struct sim *sim);
bool model_store_is_change(const char *op);

/* ---- one run */

struct task;
struct world;
struct workload {
    const char *name;
    unsigned flags;     /* of the disk, SIM_..., or of the bucket, OBJECT_SIM_... */
    unsigned traits;    /* WORKLOAD_... */
    const char *target; /* the target of the save in a recovery */
    uint32_t ranks;
    /* Runs before the run; all that it makes is durable then. */
    void (*setup)(struct world *world);
    /* Adds the tasks. */
    void (*start)(struct world *world);
};
#define WORKLOAD_SERIES 1u
#define WORKLOAD_NO_RECOVERY_SAVE 2u /* check, but do not save in a recovery */
#define WORKLOAD_NO_FAULTS 4u
#define WORKLOAD_COMMITS 8u /* undisturbed, all saves must commit */
#define WORKLOAD_MAKES_PARENT 16u
#define WORKLOAD_NO_CRASHES 32u /* check only during the run; each run counts as a state */
#define WORKLOAD_BUCKET 64u
#define WORKLOAD_TORN 128u /* two saves may replace each other, but none may be torn */
extern const struct workload model_workloads[];
extern const size_t model_workload_count;

/* What a series of one rank shares: the second shard of the checkpoint before. */
struct sharing {
    const struct model_save *last; /* NULL: none */
    struct commit_shared shared;
};

/* A save by several tasks, and what they agreed on. */
struct saving {
    struct world *world;
    struct ledger *ledger;
    struct model_save *save;
    int32_t votes_no;         /* rank that votes no; -1: none */
    int32_t cheats;           /* rank that leaves a shard of another save; -1: none */
    int32_t strays;           /* rank that saves with another layout than agreed; -1: none */
    uint32_t learns_after_ms; /* all ranks but rank 0 ask so late for the outcome */
    uint32_t freezes_ms;      /* rank 0 stops for so long right before it commits */
    bool has_series;
    bool no_replace;
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
    const struct commit_guard *guard;
    struct sharing *sharing; /* NULL: each rank has one shard */
    /* Set by rank 0. */
    bool agreed, given_up;
    bool in_place;
    uint64_t previous;
    enum commit_outcome outcome; /* of rank 0 */
};
/* Run one rank of a save, from begin to end; returns the outcome that it was told. */
enum commit_outcome program_save(struct saving *saving, uint32_t rank, struct store *store,
                                 struct clock *clock);
struct lease;
/* Open the series and choose the newest save (or MODEL_NOTHING). False: that failed. */
bool program_open_series(struct lease *lease, struct store *store, struct ledger *ledger,
                         int *chosen, struct sidestep_error *err);
/* Save in this incarnation. */
enum commit_outcome program_series_save(struct world *world, struct ledger *ledger,
                                        struct lease *lease, struct store *store,
                                        struct clock *clock, const char *name,
                                        struct sharing *sharing);
bool program_series_delete(struct ledger *ledger, struct lease *lease, struct store *store,
                           struct model_save *save);
/* Delete a checkpoint in a bucket. */
bool program_delete(struct ledger *ledger, struct store *store, struct model_save *save);
/* Sweep NAME as a save does before it begins. */
void program_sweep_target(struct store *store);
/* Run `sidestep gc`. */
bool program_collect(struct store *store, struct sidestep_error *err);
void program_make_dir(struct ledger *ledger, struct store *store, const char *dir,
                      const char *file);

struct task {
    struct world *world;
    struct actor actor;
    int client;
    void (*main)(struct task *task);
    struct saving *saving; /* set if it is a rank */
    ucontext_t context;
    void *stack;
    uint64_t wake_ms;
    const char *at; /* the next operation */
    bool is_paused; /* until the others have ended */
    bool is_done;
};

/*
 * Disturbances of a run, at critical operations: those that change or sync names. Unless the plan
 * says otherwise, a task runs until it sleeps.
 */
struct plan {
    unsigned stays;     /* switch tasks at random, once in so many operations; 0: never */
    unsigned pauses[2]; /* before this critical operation (0: none) its task waits for all others */
    unsigned kill_at;   /* after this critical operation, or rename; 0: never */
    bool kills_after_rename;
    unsigned kill_mask; /* bit mask of tasks */
    unsigned fault_at;  /* operation */
    enum fault_kind fault;
};

struct world {
    struct clock clock; /* first */
    uint64_t now_ms;
    const struct workload *workload;
    struct sim *sim;
    struct object_bucket *bucket;          /* instead of ${sim}; NULL: a disk */
    struct store *stores[SIM_MAX_CLIENTS]; /* of the bucket, by client */
    uint64_t bucket_ms;                    /* ${now_ms} when the bucket was told the time */
    struct ledger ledger;
    struct saving savings[MODEL_MAX_TASKS];
    size_t saving_count;
    struct task tasks[MODEL_MAX_TASKS];
    size_t task_count;
    struct task *current;
    ucontext_t scheduler;
    struct plan plan;
    struct prng prng;
    unsigned step;      /* operations so far */
    unsigned faults;    /* operations that could have failed so far */
    unsigned criticals; /* operations that change or sync names so far */
    unsigned renames;
    bool was_killed;
    bool told;                    /* something was reported since the last change */
    const struct problem *broken; /* found by a task */
    /* Called between two operations if something has changed; false: end the run. */
    bool (*after_change)(struct world *world);
    void *context;
};
/* Run all tasks to their end. The disk or bucket is set up. */
void world_run(struct world *world);
/* The clock of ${world}, for what runs outside of its tasks. */
void world_start_clock(struct world *world);
struct task *world_add(struct world *world, void (*main)(struct task *task), struct saving *saving,
                       uint32_t rank);
struct saving *world_add_saving(struct world *world, const char *name, uint32_t ranks);
struct store *world_store(struct task *task);
/* For what is there before the run. */
struct store *world_setup_store(struct world *world);
/* Other tasks may run now, before ${op}. */
void world_before_op(void *context, int client, const char *op, const char *name);
/* For model_store.c: which fault should this operation have? */
enum fault_kind world_take_fault(struct sim *sim, const char *op);

/* ---- exploring */

struct explore {
    uint64_t *seen; /* open addressing; 0: free */
    size_t seen_capacity, seen_count;
    uint64_t limit;  /* on the number of states */
    uint64_t states; /* distinct ones, each recovered and checked */
    uint64_t images; /* checked, distinct or not */
    uint64_t steps;  /* of protocol and recovery, after which states were taken */
    uint64_t runs;
    unsigned plain_faults, plain_criticals; /* numbers in the undisturbed run of this workload */
    bool is_thorough;                       /* check all states of a step, not a sample */
    bool failed;
    struct problem problem;
    bool quiet;
};
void explore_init(struct explore *x);
void explore_release(struct explore *x);
/* Do run number ${run} of ${workload}, which determines schedule, kills, faults and samples. False:
 * a promise was broken; it was reported. */
bool explore_run(struct explore *x, const struct workload *workload, uint64_t run);
/* For model_bucket.c: is the state with this hash a new one? */
bool explore_is_new(struct explore *x, uint64_t hash);
/* For model_bucket.c: plan the disturbances of ${run}. */
void explore_plan(const struct explore *x, struct world *world, uint64_t run);
/* Recover as a user would: the next save, or the next resume and save, must work. */
bool explore_recover(const struct workload *workload, struct ledger *ledger, struct store *store,
                     struct clock *clock, struct problem *problem);

/* ---- model_bucket.c */

/* The store of client ${client} of a bucket. */
struct store *bucket_store(struct world *world, int client);
bool bucket_run(struct explore *x, const struct workload *workload, uint64_t run);
object_hook bucket_before_request;

#endif
