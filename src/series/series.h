/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series.h -- the checkpoints of one run: when to save, where to resume, what to keep.
 *
 * A series belongs to a root.  It takes the root's lease (catalog/lease.h), so that only one run
 * saves there; a run that was taken over cannot commit any more.  schedule.h says when a save is
 * due. Resuming chooses the newest valid checkpoint (selection/) and loads it (load/).  After each
 * commit, rank 0 deletes what retention lets go, on a thread of its own.
 *
 * What comes in: an engine, a root, a policy; then steps, metrics and tags.
 * What goes out: saves and loads of engines, and annotations beside the checkpoints.
 *
 * Ownership: the program owns the handle; the engine keeps a list of those that are open and
 * closes them with itself.
 *
 * Threads: collective functions run on the caller's thread.  The pruner is a thread of rank 0;
 * what it shares lies in ->shared, under its lock.
 */
#ifndef SERIES_SERIES_H
#define SERIES_SERIES_H

#include "catalog/catalog.h"
#include "commit/commit.h"
#include "series/schedule.h"
#include "save/save.h"
#include "selection/selection.h"

#define SERIES_REJECTED_BYTES 2048u

/* What is to be known of a save: metrics as the text of a mark (NULL: none), and tags. */
struct series_annotations {
    char name[FILE_NAME_BYTES]; /* of the checkpoint; "": of none */
    char *metrics;
    struct name_list tags;
};

/* A save that is under way, or the newest that was. */
struct series_pending_save {
    struct series_annotations notes;  /* no name: unused */
    const struct sidestep_save *save; /* NULL: it has not started; only compared */
    bool is_settled;                  /* it has ended, and how is known: what is there is durable */
};

struct sidestep_series {
    struct sidestep_engine *engine; /* our reference */
    struct sidestep_series *next;   /* of the engine's list */
    bool is_shut;                   /* the engine was closed: only the handle is left */

    /* Constant after opening. */
    char root[COMMIT_PATH_BYTES];
    struct name_template naming;
    char run_id[SAVE_ID_HEX]; /* rank 0's, on all ranks */
    uint64_t incarnation;
    uint32_t flags;
    uint32_t max_restarts;
    struct retention retention;
    struct lease lease; /* rank 0 */
    struct commit_guard guard;

    /* The thread's that calls. */
    struct schedule due;
    struct sidestep_save *saves[SAVE_QUEUE_MAX + 1]; /* our references; the newest first.  Changed
                                                        under ${shared.lock} */
    unsigned save_count;
    uint64_t queued;                    /* saves that started while another was under way */
    bool has_resumed;                   /* from any checkpoint, since it was opened */
    bool has_progressed;                /* something was committed since the first resume */
    char resumed_name[FILE_NAME_BYTES]; /* rank 0: what was loaded, until something was committed */
    struct series_annotations coming;   /* rank 0: of a save that has not started */

    /* Rank 0's thread that prunes (series_prune.c); none where nothing is to be deleted. */
    bool has_pruner;
    pthread_t pruner;
    pthread_mutex_t prune_lock; /* held while somebody prunes */
    struct gc_report *went;     /* under prune_lock: what was deleted since somebody asked */

    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct sidestep_save *awaited[SAVE_QUEUE_MAX + 1]; /* the pruner's references to saves
                                                              that it will await, in order */
        unsigned awaited_count;
        bool stop;
        bool has_committed;    /* a save of this incarnation */
        bool has_settled;      /* and what an earlier one left is cleared, or is being cleared */
        bool has_unknown;      /* an outcome is UNKNOWN: nothing is deleted */
        uint64_t newest_bytes; /* of the newest whole one that was saved or resumed; 0: none */
        struct series_pending_save saving[SAVE_QUEUE_MAX + 1];
        char deleting[FILE_NAME_BYTES]; /* what is being deleted: no save of that name starts */
    } shared;
};

/* ---- series_state.c ---- */

/* EFORKED, or EINVAL if its engine was closed. */
enum sidestep_status series_check(const struct sidestep_series *series, struct sidestep_error *err);
/* One to ${name} (NULL: any) that has not ended; or NULL. */
struct sidestep_save *series_find_in_flight(const struct sidestep_series *series, const char *name);
/* What became of earlier saves.  Only rank 0's answer is used; any thread. */
void series_record_outcome(struct sidestep_series *series, struct sidestep_save *save);
void series_record_outcome_locked(struct sidestep_series *series, struct sidestep_save *save);
/* The same of all; and with the first commit of this incarnation, the marks may go that a killed
 * one left in what it had committed. */
void series_record_outcomes(struct sidestep_series *series);
/* Is space to be foreseen at all? */
bool series_should_check_space(const struct sidestep_series *series);
/* Rank 0, any thread: so much the newest one takes, and so the next one will. */
void series_record_bytes(struct sidestep_series *series, uint64_t bytes);

/* ---- series_choose.c ---- */

/* Rank 0: the newest member that passes ${mode}; ${rejected} says what was passed over, and why. */
enum sidestep_status series_choose(struct sidestep_series *series, enum sidestep_verify_mode mode,
                                   uint64_t *step, char rejected[SERIES_REJECTED_BYTES],
                                   struct sidestep_error *err);
/* Rank 0: a member of this step. */
enum sidestep_status series_find_step(struct sidestep_series *series, uint64_t step,
                                      struct sidestep_error *err);
/* Rank 0, where space is to be foreseen: what does the newest take that a resume would try? */
enum sidestep_status series_estimate_space(struct sidestep_series *series,
                                           struct sidestep_error *err);
/* Rank 0: the run goes on from ${step}.  Durable when it returns OK. */
enum sidestep_status series_record_resume(struct sidestep_series *series, uint64_t step,
                                          struct sidestep_error *err);
/* Rank 0: is what lies under ${name} of a line that has ended, and may a save replace it? */
bool series_can_replace(struct sidestep_series *series, const char *name);
/* Rank 0, of a name that may not be replaced: EEXISTS if it holds a checkpoint, with what to do. */
enum sidestep_status series_check_free(struct sidestep_series *series, const char *name,
                                       struct sidestep_error *err);
/* Rank 0: it came to something: no restart from there has failed. */
void series_reset_restarts(struct sidestep_series *series);

/* ---- series_annotations.c ---- */

/* Rank 0: a save of ${name} is about to start, and what was noted of it goes with it; what was
 * noted of another one is forgotten.  From now on nothing is deleted because of what is seen under
 * this name, until the save has ended.  If it does not start: what was noted is of a coming one
 * again.  Else it is ${save}; and once that is done with, nothing is kept for it. */
void series_pending_add(struct sidestep_series *series, const char *name);
void series_pending_cancel(struct sidestep_series *series, const char *name);
void series_pending_attach(struct sidestep_series *series, const char *name,
                           const struct sidestep_save *save);
void series_pending_remove(struct sidestep_series *series, const struct sidestep_save *save);
/* Rank 0, locked: is a save of ${name} under way, or its outcome unknown? */
bool series_is_pending(const struct sidestep_series *series, const char *name);
/* Rank 0, by the save's guard: write it down.  What cannot be is told as an event: a checkpoint is
 * worth more than a note. */
void series_write_annotations(struct sidestep_series *series, const struct commit *commit);
void series_free_annotations(struct sidestep_series *series);

/* ---- series_prune.c ---- */

enum sidestep_status series_start_pruner(struct sidestep_series *series,
                                         struct sidestep_error *err);
/* Let it await ${save}, and delete when that is committed. */
void series_notify_pruner(struct sidestep_series *series, struct sidestep_save *save);
/* Wait until all is deleted that can be, and end the thread. */
void series_stop_pruner(struct sidestep_series *series);
/* Rank 0: may this incarnation delete anything now?  ELOCKED, and why not. */
enum sidestep_status series_check_can_delete(struct sidestep_series *series,
                                             struct sidestep_error *err);
/* Rank 0: is there space for another one?  Makes some, if it may. */
enum sidestep_status series_check_space(struct sidestep_series *series, struct sidestep_error *err);

/* The engine closes: give back all but the handle.  Returns the next one of the engine's list. */
struct sidestep_series *series_shut_down(struct sidestep_series *series);

#endif
