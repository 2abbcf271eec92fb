/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h -- the crash-state explorer: the real commit and recovery code on a simulated disk, all
 * ranks as coroutines of one thread, on a simulated clock.
 *
 *   model_world.c      coroutines, the scheduler, the clock: one run of a workload
 *   model_store.c      the simulated disk's operations with a fault or a missing step put in
 *   model_program.c    what processes do: ranks that save, owners of a series, a user
 *   model_shard.c      shards of a few bytes that can be told apart
 *   model_ledger.c     what was promised to whom, and whether a disk keeps it
 *   model_explore.c    every step: kill all, cut the power, recover, look
 *   model_workload.c   the table of workloads
 *   model_mutant.c     the table of missing steps, each of which must be noticed
 *   crash_model.c      the program
 */
#ifndef TORTURE_MODEL_H
#define TORTURE_MODEL_H

#include <ucontext.h>

#include "base/clock.h"
#include "commit/commit.h"
#include "support/prng.h"
#include "support/store_sim.h"

#define MODEL_PARENT "/p"
#define MODEL_TARGET "t"
#define MODEL_MAX_TASKS 5
#define MODEL_MAX_SAVES 8
#define MODEL_MAX_FILES 3
#define MODEL_MAX_RANKS 3
#define MODEL_MAX_TRACE 8192
#define MODEL_TIMEOUT_MS 150

/* Clients of the disk.  Tasks are 0, 1, 2 ...; a recovery has MODEL_RECOVERY minus its depth. */
enum { MODEL_RECOVERY = 14, MODEL_SETUP = 15 };

/* ---- what was promised */

enum { MODEL_NOTHING = -1 };

struct model_save {
    uint8_t id[SAVE_ID_BYTES];
    char name[16]; /* below MODEL_PARENT */
    uint32_t ranks;
    uint32_t began, ended;          /* ticks; 0: not yet */
    uint32_t looked;                /* when it knew what it would replace; 0: not yet */
    uint32_t publishing;            /* when it began to; of the same count as ${looked} */
    bool committed;                 /* somebody was told so */
    bool uncertain;                 /* but only after a sync of names had lied */
    bool aborted;                   /* somebody was told so */
    bool doomed;                    /* it is being deleted */
    bool gone;                      /* somebody was told that it is deleted */
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
    uint32_t tick;
    uint32_t order; /* counts saves that have looked, or begun to publish */
    uint32_t tainted_at;
    bool is_tainted; /* a sync of names failed, and later ones say OK and do nothing */
};
struct model_save *ledger_new_save(struct ledger *ledger, const char *name, uint32_t ranks);
void ledger_tell(struct ledger *ledger, struct model_save *save, enum commit_outcome outcome);
/* C has nothing more to do with it. */
void ledger_end(struct ledger *ledger, struct model_save *save);
uint64_t ledger_hash(const struct ledger *ledger);

struct problem {
    char text[1200];
};
/* Which save a reader finds whole under ${name} (${*save}: its number, or MODEL_NOTHING); false:
 * something that it must not find. */
bool ledger_look(struct store *store, const struct ledger *ledger, const char *name, int *save,
                 struct problem *problem);
/* All checkpoints and files are as promised; ${powered}: the power was never lost. */
bool ledger_judge(struct sim *sim, const struct ledger *ledger, bool powered,
                  struct problem *problem);
/* Nothing is there but checkpoints, files of users, and the series' own. */
bool ledger_judge_leftovers(struct sim *sim, struct problem *problem);

/* ---- shards */

/* Shard ${number} of ${count}. */
enum sidestep_status shard_write(struct commit *commit, struct store_file *file,
                                 const uint8_t id[SAVE_ID_BYTES], uint32_t number, uint32_t count,
                                 struct sidestep_error *err);
/* The same, with other data in the place of those that are expected. */
enum sidestep_status shard_write_stray(struct commit *commit, struct store_file *file,
                                       const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err);
struct reader;
bool shard_check_all(struct reader *reader, const struct model_save *save, struct problem *problem);
#define MODEL_LAYOUT_DIGEST 0x5157455354455021u

/* ---- who does what, and in which part of the protocol */

enum phase {
    PHASE_OTHER,
    PHASE_BEGIN,
    PHASE_SHARD,
    PHASE_VOTE,
    PHASE_COUNT,
    PHASE_PUBLISH,
    PHASE_ABORT,
    PHASE_LEARN,
    PHASE_LEASE,
    PHASE_FENCE,
    PHASE_CHOOSE,
    PHASE_DELETE,
};
struct actor {
    bool recovers; /* it is not part of the run */
    enum phase phase;
    unsigned parent_syncs, dir_syncs; /* in this phase */
    uint32_t rank;
    bool is_dead;
    /* The mark that it handled last: did it make it, and which inode has it just locked (0: none)?
     */
    bool made_mark;
    uint64_t locked_inode;
};
void model_enter(enum phase phase);

enum fault_kind {
    FAULT_NONE,
    FAULT_BEFORE, /* fails, and has no effect */
    FAULT_AFTER,  /* takes effect, and reports an error */
    FAULT_LOST,   /* a sync that fails, after which the next ones say OK and do nothing */
};

/* A step that is left out. */
enum mutant_kind {
    MUTANT_NONE,
    MUTANT_FILE_SYNC,
    MUTANT_DIR_SYNC,
    MUTANT_PARENT_SYNC,
    MUTANT_HIDE_MARK,
    MUTANT_PLAIN_RENAME,
    MUTANT_BLIND_COUNT,
    MUTANT_ANY_LAYOUT,
    MUTANT_ANY_ID,
    MUTANT_NO_GUARD,
    MUTANT_METADATA_LAST,
    MUTANT_NO_LOCK,
    MUTANT_ANY_PREVIOUS,
    MUTANT_HIDE_OLD,
    MUTANT_ANY_FILE, /* nth 1: a mark that the actor made; 2: one that it found */
    MUTANT_EARLY_YES,
    MUTANT_RETRY_SYNC,
};
struct mutant {
    const char *name;
    enum mutant_kind kind;
    enum phase phase;
    unsigned nth;              /* from 1; 0: all */
    enum file_name_kind names; /* MUTANT_FILE_SYNC: of what */
    int rank;                  /* -1: all */
    const char *workload;      /* in which it must be noticed */
    const char *spare;         /* why it need not be: defence in depth; NULL: it must */
};
extern const struct mutant model_mutants[];
extern const size_t model_mutant_count;

struct trace_entry {
    int client;
    const char *op;
    char name[SIM_NAME_BYTES];
};

/* One thread, one model. */
struct model {
    struct actor *actor;
    const struct mutant *mutant; /* NULL: the protocol as it is */
    struct trace_entry trace[MODEL_MAX_TRACE];
    size_t trace_count;
    uint64_t random; /* what the operating system's random numbers are made from */
};
extern struct model model;

void model_trace(int client, const char *op, const char *name);
/* From now on ${sim} is used through model_store.c. */
void model_store_attach(struct sim *sim);
bool model_store_is_change(const char *op);

/* ---- one run */

struct task;
struct world;
struct workload {
    const char *name;
    unsigned flags;     /* of the disk, SIM_... */
    unsigned traits;    /* WORKLOAD_... */
    const char *target; /* what a one-off recovery saves to */
    uint32_t ranks;
    /* Before the run; all of it is durable then. */
    void (*setup)(struct world *world);
    /* Add the tasks. */
    void (*start)(struct world *world);
};
#define WORKLOAD_SERIES 1u
#define WORKLOAD_NO_RECOVERY_SAVE 2u /* judge, but save nothing more */
#define WORKLOAD_NO_FAULTS 4u
#define WORKLOAD_COMMITS 8u /* undisturbed, all saves must commit */
#define WORKLOAD_MAKES_PARENT 16u
#define WORKLOAD_NO_CRASHES 32u /* only what is seen while it runs; each run counts as a state */
extern const struct workload model_workloads[];
extern const size_t model_workload_count;

/* What a series of one rank has kept: the second shard of the checkpoint before, which the next one
 * shares. */
struct sharing {
    const struct model_save *last; /* NULL: none */
    struct commit_shared shared;
};

/* A save by several tasks, and what they agreed upon. */
struct saving {
    struct world *world;
    struct ledger *ledger;
    struct model_save *save;
    int32_t votes_no;         /* rank; -1: none */
    int32_t cheats;           /* rank that leaves a shard of another save; -1: none */
    int32_t strays;           /* rank that saves by another layout than was agreed upon; -1: none */
    uint32_t learns_after_ms; /* all ranks but C ask that late what became of it */
    bool has_series;
    bool no_replace;
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
    const struct commit_guard *guard;
    struct sharing *sharing; /* NULL: each rank has one shard */
    /* C's word. */
    bool agreed, given_up;
    bool in_place;
    uint64_t previous;
    enum commit_outcome outcome; /* C's */
};
/* The whole life of one rank in a save; returns what it was told. */
enum commit_outcome program_save(struct saving *saving, uint32_t rank, struct store *store,
                                 struct clock *clock);
struct lease;
/* Take the lease, fence, choose: which save is the newest (or MODEL_NOTHING).  False: it failed. */
bool program_open_series(struct lease *lease, struct store *store, struct ledger *ledger,
                         int *chosen, struct sidestep_error *err);
/* A save of this incarnation. */
enum commit_outcome program_series_save(struct world *world, struct ledger *ledger,
                                        struct lease *lease, struct store *store,
                                        struct clock *clock, const char *name,
                                        struct sharing *sharing);
bool program_series_delete(struct ledger *ledger, struct lease *lease, struct store *store,
                           struct model_save *save);
/* What a save does to NAME before it begins. */
void program_sweep_target(struct store *store);
/* `sidestep gc` */
bool program_collect(struct store *store, struct sidestep_error *err);
void program_make_dir(struct ledger *ledger, struct store *store, const char *dir,
                      const char *file);

struct task {
    struct world *world;
    struct actor actor;
    int client;
    void (*main)(struct task *task);
    struct saving *saving; /* if it is a rank */
    ucontext_t context;
    void *stack;
    uint64_t wake_ms;
    const char *at; /* the operation that it is about to do */
    bool is_paused; /* until the others have ended */
    bool is_done;
};

/*
 * A run is disturbed at critical operations: those that change or sync names.  Where not said
 * otherwise, a task runs until it sleeps.
 */
struct plan {
    unsigned stays;     /* tasks change at random, once in so many operations; 0: they do not */
    unsigned pauses[2]; /* before this critical operation (0: none) its task waits for all others */
    unsigned kill_at;   /* after this critical operation, or rename; 0: never */
    bool kills_after_rename;
    unsigned kill_mask; /* tasks */
    unsigned fault_at;  /* operation */
    enum fault_kind fault;
};

struct world {
    struct clock clock; /* first */
    uint64_t now_ms;
    const struct workload *workload;
    struct sim *sim;
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
    bool told;                    /* somebody was told something since the last change */
    const struct problem *broken; /* what a task saw */
    /* Called between two operations if something has changed; false: end the run. */
    bool (*after_change)(struct world *world);
    void *context;
};
/* All tasks, to their end.  ${sim} is world->sim, and set up. */
void world_run(struct world *world);
struct task *world_add(struct world *world, void (*main)(struct task *task), struct saving *saving,
                       uint32_t rank);
struct saving *world_add_saving(struct world *world, const char *name, uint32_t ranks);
struct store *world_store(struct task *task);
/* For model_store.c: what is to happen to this operation? */
enum fault_kind world_take_fault(struct sim *sim, const char *op);

/* ---- exploring */

struct explore {
    uint64_t *seen; /* open addressing; 0: free */
    size_t seen_capacity, seen_count;
    uint64_t limit;  /* of states */
    uint64_t states; /* distinct, each recovered from and checked */
    uint64_t images; /* looked at, distinct or not */
    uint64_t steps;  /* of protocol and recovery, at which states were taken */
    uint64_t runs;
    unsigned plain_faults, plain_criticals; /* of the undisturbed run of this workload */
    bool is_thorough;                       /* all states of a step, not some */
    bool failed;
    struct problem problem;
    bool quiet;
};
void explore_init(struct explore *x);
void explore_release(struct explore *x);
/* Run number ${run} of ${workload}: it decides schedule, kills, faults, samples.  False: a promise
 * was broken; it was reported. */
bool explore_run(struct explore *x, const struct workload *workload, uint64_t run);

#endif
