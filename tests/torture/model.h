/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h -- the crash-state explorer: runs the real commit and recovery code on a simulated disk
 * or bucket and a simulated clock, with all ranks as coroutines of one thread.
 *
 *   model_world.c      coroutines, the scheduler, the clock: one run of a workload
 *   model_store.c      the operations of the simulated disk, with faults and missing steps
 *   model_program.c    the processes: ranks that save, owners of a series, a user
 *   model_shard.c      shards of a few bytes that depend on save and rank
 *   model_files.c      small files, of a workload that has them
 *   model_ledger.c     records what was reported to whom, and checks a disk against it
 *   model_plan.c       plans the disturbances of a run by its number
 *   model_explore.c    after every step: kill all, cut the power, recover, check
 *   model_bucket.c     the same for a bucket: after every request, kill all, let late requests
 *                      arrive, let time pass, recover, check
 *   model_workload.c   the table of workloads
 *   model_mutant.c     the table of mutants: steps to leave out, which must be detected
 *   crash_model.c      the main program
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
    uint32_t began, ended; /* ticks; 0: not yet */
    uint32_t looked;       /* order of its look at what it replaces; 0: not yet */
    uint32_t publishing;   /* order of the start of its publish; 0: not yet */
    bool committed;        /* reported as committed to some process */
    bool reported;         /* reported as committed to the process that saved it */
    bool uncertain;        /* committed, but only after a sync of names failed silently */
    bool aborted;          /* reported as aborted to some process */
    bool doomed;           /* a deletion has started */
    bool gone;             /* reported as deleted to some process */
    bool fenced;           /* a later incarnation has chosen a checkpoint without seeing it */
    bool seen;             /* an incarnation has seen it when it chose */
    uint64_t incarnation;  /* that saved it; 0: none, or one that has ended */
    bool has_kept;         /* each rank has a second shard, with the data of ... */
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
    /* In a bucket, a commit may arrive after a later incarnation has chosen. Then it is not
     * reported to the process that saved it, and a later resume may choose it. */
    bool commits_late;
    uint32_t tick;
    uint32_t order;      /* counts looks and starts of publishing of all saves */
    uint32_t tainted_at; /* tick of ${is_tainted} */
    bool is_tainted;     /* a sync of names failed, and later ones return OK without effect */
};
struct model_save *ledger_new_save(struct ledger *ledger, const char *name, uint32_t ranks);
void ledger_tell(struct ledger *ledger, struct model_save *save, enum commit_outcome outcome);
/* Record that rank 0 has finished the save. */
void ledger_end(struct ledger *ledger, struct model_save *save);
uint64_t ledger_hash(const struct ledger *ledger);

struct problem {
    char text[1200];
};
/* Set ${*save} to the number of the complete save that a reader finds under ${name}, or to
 * MODEL_NOTHING. False: the reader finds something that must not be there. */
bool ledger_look(struct store *store, const struct ledger *ledger, const char *name, int *save,
                 struct problem *problem);
/* Do all checkpoints and files agree with the reports? ${powered}: the power was never lost. */
bool ledger_judge(struct sim *sim, const struct ledger *ledger, bool powered,
                  struct problem *problem);
/* The same for checkpoints in any store. ${one_wins}: of two concurrent saves, only one may be
 * reported as committed. */
bool ledger_judge_store(struct store *store, const struct ledger *ledger, bool powered,
                        bool one_wins, struct problem *problem);
/* Does the disk contain only checkpoints, files of users, and files of the series? Do small files
 * have their own names, and no others? */
bool ledger_judge_leftovers(struct sim *sim, const struct ledger *ledger, struct problem *problem);

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

/* ---- small files */

#define MODEL_EXTRAS 3
#define MODEL_EXTRA_BYTES 64
struct model_extra {
    struct extra_file file; /* of which the name is ${name} */
    char name[16];
    char text[MODEL_EXTRA_BYTES];
};
/* The files of ${rank}, by their numbers. Returns how many: 0 if the workload has none. */
size_t files_list(const uint8_t id[SAVE_ID_BYTES], uint32_t rank,
                  struct model_extra extras[MODEL_EXTRAS]);
/* Write the files of this rank. ${shortens}: each without its last byte. */
enum sidestep_status files_write(struct commit *commit, const uint8_t id[SAVE_ID_BYTES],
                                 bool shortens, struct sidestep_error *err);
/* List the files in ${footer}, which then uses the two arrays. */
size_t files_put(const uint8_t id[SAVE_ID_BYTES], uint32_t rank, struct footer *footer,
                 struct model_extra extras[MODEL_EXTRAS], struct extra_file files[MODEL_EXTRAS]);
/* With a mutant: rank 0 forgets the list. */
void files_forget(struct commit_contents *contents);
/* Does the reader find the files of ${save}, and no others? */
bool files_check(struct reader *reader, const struct model_save *save, struct sidestep_error *err);
/* Does only a small file, or a directory of one, have this name? */
bool files_is_name(const char *name);
/* Is it the name of a file that is not dropped because a lower rank has one of the same name? */
bool files_is_kept(const struct file_name *name);
/* In the directory of ${save}: have its files their own names, and is none of another save left? */
bool files_judge_names(const struct sim *sim, const struct ledger *ledger,
                       const struct model_save *save, struct problem *problem);

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
    bool vote_failed;      /* its vote met a fault */
    bool made_marker;      /* it made the pending marker that it handled last */
    uint64_t locked_inode; /* of the marker that it has just locked; 0: none */
};
void model_enter(enum phase phase);

enum fault_kind {
    FAULT_NONE,
    FAULT_BEFORE, /* the operation fails, and has no effect */
    FAULT_AFTER,  /* it takes effect, and reports an error */
    FAULT_LOST,   /* a sync fails, and later ones return OK without effect */
};

/* Which step of the protocol a mutant leaves out. */
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
    MUTANT_TAKEN_BACK, /* a vote that reported an error */
    MUTANT_RETRY_SYNC,
    MUTANT_EARLY_REMOVE, /* what is replaced is removed before the votes */
    MUTANT_LATE_FILES,   /* small files are written after the vote */
    MUTANT_UNLISTED,     /* ... are not listed: nth 1: in the footer; 2: in the manifest */
    MUTANT_ANY_SIZE,     /* ... have the size that is expected */
    MUTANT_NO_NAMES,     /* ... do not get their names in a new directory */
    MUTANT_NO_LINKS,     /* ... nor in one that was there */
    MUTANT_KEEP_NAMES,   /* ... keep them when they are replaced or deleted */
    MUTANT_KEEP_EXTRA,   /* ... are not removed if a lower rank's is taken */
    MUTANT_REQUEST,      /* the request ${request}, as "put pending" */
    MUTANT_POINT,        /* what the fault point ${request} skips */
};
struct mutant {
    const char *name;
    enum mutant_kind kind;
    enum phase phase;
    unsigned nth;              /* from 1; 0: all */
    enum file_name_kind names; /* MUTANT_FILE_SYNC: of these files */
    int rank;                  /* -1: all */
    const char *workload;      /* that must detect it */
    const char *spare;         /* why it need not be detected; NULL: it must be */
    const char *request;       /* in a bucket; NULL: none */
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
    bool has_files;     /* the saves of the workload have small files */
    bool is_sent;       /* the files were saved elsewhere: the processes vote in the ranks' place */
    bool has_parts;     /* each save is a part, of a checkpoint whose other parts are elsewhere */
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
    /* Called before the run; all that it makes becomes durable. */
    void (*setup)(struct world *world);
    /* Adds the tasks. */
    void (*start)(struct world *world);
};
#define WORKLOAD_SERIES 1u
#define WORKLOAD_NO_RECOVERY_SAVE 2u /* check, but do not save in a recovery */
#define WORKLOAD_NO_FAULTS 4u
#define WORKLOAD_COMMITS 8u /* without disturbances, all saves must commit */
#define WORKLOAD_MAKES_PARENT 16u
#define WORKLOAD_NO_CRASHES 32u /* check only during the run; each run counts as a state */
#define WORKLOAD_BUCKET 64u
#define WORKLOAD_FILES 256u
#define WORKLOAD_PARTS 512u
#define WORKLOAD_SENT 1024u
#define WORKLOAD_TORN 128u /* check only that no checkpoint is torn: two saves may both commit */
extern const struct workload model_workloads[];
extern const size_t model_workload_count;

/* The second shard of the last checkpoint, which the next save of a series shares. */
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
    int32_t cheats;           /* rank that writes a shard of another save; -1: none */
    int32_t strays;           /* rank that saves with another layout than agreed; -1: none */
    uint32_t shortens;        /* rank of which small files lose a byte; 0: none */
    uint32_t learns_after_ms; /* delay before ranks other than 0 ask for the outcome */
    uint32_t freezes_ms;      /* pause of rank 0 before it commits */
    bool has_series;
    bool no_replace;
    struct model_save *replaces; /* rank 0 deletes it when all have voted; NULL: none */
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
/* Run one rank of a save from beginning to end; returns the outcome that it learned. */
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
    bool is_paused; /* until the other tasks have ended */
    bool is_done;
};

/*
 * The disturbances of a run. They happen at critical operations: those that change or sync names. A
 * task runs until it sleeps, unless the plan switches tasks.
 */
struct plan {
    unsigned stays; /* switch tasks at random, once in this many operations; 0: never */
    unsigned
        pauses[2];    /* critical operations before which the task waits for all others; 0: none */
    unsigned kill_at; /* critical operation, or rename, after which tasks are killed; 0: never */
    bool kills_after_rename; /* ${kill_at} counts renames */
    unsigned kill_mask;      /* bit mask of tasks to kill */
    unsigned fault_at;       /* operation that meets ${fault} */
    enum fault_kind fault;
    int fault_errno; /* what FAULT_AFTER reports */
    /* ${fault_at} counts writes, and the task that meets the fault waits for all others before it
     * goes on. */
    bool pauses_at_fault;
};

/* Operations so far. */
struct counts {
    unsigned faults;    /* that could have failed */
    unsigned writes;    /* ... and change something */
    unsigned criticals; /* that change or sync names */
};

struct world {
    struct clock clock; /* first */
    uint64_t now_ms;
    const struct workload *workload;
    struct sim *sim;
    struct object_bucket *bucket;          /* instead of ${sim}; NULL: a disk */
    struct store *stores[SIM_MAX_CLIENTS]; /* of the bucket, by client */
    uint64_t bucket_ms;                    /* ${now_ms} when the bucket's clock was last set */
    struct ledger ledger;
    struct saving savings[MODEL_MAX_TASKS];
    size_t saving_count;
    struct task tasks[MODEL_MAX_TASKS];
    size_t task_count;
    struct task *current;
    ucontext_t scheduler;
    struct plan plan;
    struct prng prng;
    unsigned step; /* operations so far */
    struct counts counts;
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
/* Set the clock of ${world}, also for code outside of its tasks. */
void world_start_clock(struct world *world);
struct task *world_add(struct world *world, void (*main)(struct task *task), struct saving *saving,
                       uint32_t rank);
struct saving *world_add_saving(struct world *world, const char *name, uint32_t ranks);
struct store *world_store(struct task *task);
/* The store for what is saved before the run. */
struct store *world_setup_store(struct world *world);
/* Other tasks may run now, before ${op}. */
void world_before_op(void *context, int client, const char *op, const char *name);
/* For model_store.c: which fault should this operation have? */
enum fault_kind world_take_fault(struct sim *sim, const char *op);
/* For model_store.c, after an operation that meets FAULT_AFTER: which errno does it report? */
int world_fail_after(void);

/* ---- exploring */

struct explore {
    uint64_t *seen; /* open addressing; 0: free */
    size_t seen_capacity, seen_count;
    uint64_t limit;  /* on the number of states */
    uint64_t states; /* distinct states, each recovered and checked */
    uint64_t images; /* states that a crash left, distinct or not */
    uint64_t steps;  /* of protocol and recovery, after which a crash was explored */
    uint64_t runs;
    struct counts plain; /* in the undisturbed run of this workload */
    bool is_thorough;    /* check all states of a step, not a sample */
    bool failed;
    struct problem problem;
    bool quiet;
};
void explore_init(struct explore *x);
void explore_release(struct explore *x);
/* Do run ${run} of ${workload}; the number determines schedule, kills, faults and samples. False: a
 * violation was found and printed. */
bool explore_run(struct explore *x, const struct workload *workload, uint64_t run);
/* For model_bucket.c: is the state with this hash a new one? */
bool explore_is_new(struct explore *x, uint64_t hash);
/* In model_plan.c: plan the disturbances of ${run}. */
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
