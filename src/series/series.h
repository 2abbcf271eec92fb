/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series.h -- the checkpoints of one run: when to save, where to resume, what to keep.
 *
 * A series belongs to a root.  It takes the root's lease (root/lease.h), so that only one run
 * saves there; a run that was taken over cannot commit any more.  schedule.h says when a save is
 * due.  Resuming chooses the newest valid checkpoint (selection/) and loads it (load/).  After each
 * commit, rank 0 deletes what retention does not keep, on a thread of its own.
 *
 * What comes in: an engine, a root, a policy; then steps, metrics and tags.
 * What goes out: saves and loads of engines, and annotations beside the checkpoints.
 *
 * Ownership: the program owns the handle.  The engine lists the open series, and closes them when
 * it is closed.
 *
 * Threads: collective functions run on the caller's thread.  The pruner is a thread of rank 0.
 * What it shares is in ->shared, under its lock.
 */
#ifndef SERIES_SERIES_H
#define SERIES_SERIES_H

#include "catalog/catalog.h"
#include "commit/commit.h"
#include "engine/engine.h"
#include "mirror/mirror.h"
#include "root/root.h"
#include "series/schedule.h"
#include "save/save.h"
#include "selection/selection.h"

#define SERIES_REJECTED_BYTES 2048u

/* Annotations for a save: metrics as the text of the annotation file (NULL: none), and tags. */
struct series_annotations {
    char name[FILE_NAME_BYTES]; /* of the checkpoint; "": unused */
    char *metrics;
    struct name_list tags;
};

/* A save that is under way, or the newest save. */
struct series_pending_save {
    struct series_annotations notes;  /* name "": unused entry */
    const struct sidestep_save *save; /* NULL: not started; only compared, never dereferenced */
    bool is_settled; /* it has ended, with a known outcome, and what exists is durable */
};

struct sidestep_series {
    struct sidestep_engine *engine; /* a reference */
    struct store *store;            /* rank 0: of the root; the engine owns it */
    struct sidestep_series *next;   /* in the engine's list */
    bool is_open;                   /* "opened" was emitted */
    bool is_shut;                   /* the engine was closed: only the handle is left */

    /* Constant after opening. */
    char root[COMMIT_PATH_BYTES];
    struct name_template naming;
    char run_id[SAVE_ID_HEX]; /* set by rank 0, known to all ranks */
    uint64_t incarnation;
    uint32_t flags;
    uint32_t max_restarts;
    struct retention retention;
    struct sight_groups groups; /* SIDESTEP_SERIES_PER_NODE; empty: all ranks see one root */
    struct series_view *view;   /* series_gather.c: parts that were put together; or NULL */
    bool wrote_whole;           /* the caller's thread: WHOLE is in the root */
    uint64_t before_parts;      /* with groups: the incarnation that this root had seen; 0: none */
    struct lease lease;         /* of a rank that leads */
    struct commit_guard guard;

    /* Used only by the caller's thread. */
    struct schedule due;
    struct sidestep_save *
        saves[TURN_MAX_SAVES + 1]; /* references; the newest first.  Changed under ${shared.lock} */
    unsigned save_count;
    size_t whole_taken;                 /* of the engine's list of whole saves */
    uint64_t queued;                    /* saves that started while another was under way */
    bool has_resumed;                   /* a checkpoint was loaded since the series was opened */
    bool has_progressed;                /* something was committed since the first resume */
    char resumed_name[FILE_NAME_BYTES]; /* rank 0: the checkpoint that was loaded, until a commit */
    struct series_annotations next_notes; /* rank 0: for a save that has not started */

    /* For events (series_events.c). */
    int64_t reached;      /* the newest step of the run that is known; -1: none */
    const char *before;   /* how the run was before: "killed", "closed", "running"; NULL: unknown */
    uint64_t progress_ns; /* when ${reached} was written last; 0: write at once */
    int64_t told_due;     /* the step of the last event "due" */
    atomic_int signal;    /* that has asked for a save or the end; 0: none */

    /* Rank 0's pruning thread (series_prune.c); none if nothing is to be deleted. */
    bool has_pruner;
    pthread_t pruner;
    struct lock prune_lock LOCK_KIND(PRUNE); /* held while a thread prunes */
    struct gc_report *
        prune_report GUARDED_BY(&prune_lock); /* deleted since the caller last asked */

    bool has_mirror;              /* the same on all ranks */
    struct series_mirror *mirror; /* of a rank that leads; NULL: there is none */

    struct {
        struct lock lock LOCK_KIND(SERIES);
        struct lock_condition changed;
        struct sidestep_save *to_mirror GUARDED_BY(&lock); /* the mirror's reference; or NULL */
        bool mirror_begins GUARDED_BY(&lock);
        bool mirror_stops GUARDED_BY(&lock);
        bool mirror_wakes GUARDED_BY(&lock); /* look again now */
        /* Rank 0: the last look that somebody waits for, and the last that was made; its outcome.
         */
        uint64_t mirror_asked GUARDED_BY(&lock);
        uint64_t mirror_answered GUARDED_BY(&lock);
        struct sidestep_error mirror_err GUARDED_BY(&lock);
        struct name_list settled GUARDED_BY(&lock); /* see struct mirror_look */
        bool has_news GUARDED_BY(&lock);            /* rank 0: ${settled} has changed */
        /* The pruner's references, in order. */
        struct sidestep_save *awaited[TURN_MAX_SAVES + 1] GUARDED_BY(&lock);
        unsigned awaited_count GUARDED_BY(&lock);
        bool stop GUARDED_BY(&lock);
        bool has_committed GUARDED_BY(&lock); /* a save of this incarnation is committed */
        bool has_settled GUARDED_BY(&lock); /* markers of earlier incarnations are being removed */
        struct name_list whole GUARDED_BY(&lock); /* ids of saves of which all parts are there */
        bool has_unknown GUARDED_BY(&lock);       /* an outcome is UNKNOWN: nothing is deleted */
        /* Of the newest whole checkpoint that was saved or resumed; 0: none. */
        uint64_t newest_bytes GUARDED_BY(&lock);
        struct series_pending_save saving[TURN_MAX_SAVES + 1] GUARDED_BY(&lock);
        char deleting[FILE_NAME_BYTES] GUARDED_BY(&lock); /* no save of that name may start */
    } shared;
};

/* ---- series_lease.c ---- */

/* Take the lease of the root, which is later than what ${known} says, fence off earlier
 * incarnations, and remove what they left. */
enum sidestep_status series_open_lease(struct sidestep_series *series,
                                       const struct lease_elsewhere *known,
                                       struct sidestep_error *err);
/* Rank 0 has the lease: tell the others run and incarnation. */
enum sidestep_status series_share_identity_all(struct sidestep_series *series,
                                               struct sidestep_error *err);

/* ---- series_parts.c: each node has a directory for itself ---- */

/* Find out which ranks see one root, and take the lease of each root, all of one run and one
 * incarnation. */
enum sidestep_status series_open_parts_all(struct sidestep_series *series,
                                           struct sidestep_error *err);
/* ---- series_known.c: which saves are whole ---- */

/* Is the save of ${entry} known to be whole? Any thread. */
bool series_is_whole(void *series, const struct sidestep_listed *entry);
/* Is ${entry} a part of a save of this incarnation that has failed on another node? */
bool series_is_torn(const struct sidestep_series *series, const struct sidestep_listed *entry);
/* A rank that leads: does its directory know that a step of this run was whole once? */
bool series_had_whole(const struct sidestep_series *series);
/* Note that a save is whole; or take over what the engine has learned of its saves. */
void series_note_whole(struct sidestep_series *series, const char *save_id);
void series_take_whole(struct sidestep_series *series);

/* ---- series_whole.c: which step is whole ---- */

/* A step that the run may go on from. */
struct series_whole {
    int64_t step; /* asked for; -1: the newest.  Then the one that was found */
    uint64_t incarnation;
    char save_id[SAVE_ID_HEX];
    bool was_left;                        /* behind, until somebody asked for it now ... */
    bool is_adopted;                      /* ... or earlier */
    char rejected[SERIES_REJECTED_BYTES]; /* what was passed over, and why */
};
/* All ranks: choose among the parts in all directories.  Saves in ${damaged} are passed over.
 * Errors are those of series_choose(), on all ranks. */
enum sidestep_status series_choose_whole_all(struct sidestep_series *series,
                                             const struct name_list *damaged,
                                             struct series_whole *whole,
                                             struct sidestep_error *err);

/* ---- series_load.c ---- */

/* After a failed load: set ${*damaged} to 1 on all ranks if one that reads ${path} again without
 * the page cache finds it damaged, deleted, or being deleted.  Then the next older step is tried.
 * NULL: this rank reads nothing.  Collective. */
enum sidestep_status series_read_again_all(struct sidestep_series *series, struct store *store,
                                           const char *path, uint64_t *damaged,
                                           struct sidestep_error *err);

/* ---- series_gather.c: loads from parts ---- */

/* What was put together is not needed any more.  Not collective. */
void series_end_view(struct sidestep_series *series);
/* The same, when all ranks have come here: until then they may read small files there. */
enum sidestep_status series_end_view_all(struct sidestep_series *series,
                                         struct sidestep_error *err);
/* The path of the checkpoint of ${step}, which was just loaded: of the root, or of the mirror. */
void series_name_loaded(const struct sidestep_series *series, uint64_t step,
                        char path[COMMIT_PATH_BYTES]);
/* Load the newest whole step, or ${asked}, and record that the run goes on from it, if it
 * ${goes_on}. */
enum sidestep_status series_load_parts_all(struct sidestep_series *series, int64_t asked,
                                           bool goes_on, struct sidestep_state_dict *state,
                                           const struct sidestep_load_options *options,
                                           uint64_t *step, char rejected[SERIES_REJECTED_BYTES],
                                           struct sidestep_load_report *report,
                                           struct sidestep_error *err);

/* ---- series_state.c ---- */

/* Does each node have a directory for itself, so that saves are made of parts? */
bool series_has_parts(const struct sidestep_series *series);
/* How many directories the root is; 1: all ranks see one. */
uint32_t series_directories(const struct sidestep_series *series);
/* The path of a step at this root. */
void series_format_path(const struct sidestep_series *series, uint64_t step,
                        char path[COMMIT_PATH_BYTES]);
/* Does this rank lead the ranks that see its root: take the lease, annotate, delete? If all see one
 * root, that is rank 0. All that is said of rank 0 in this folder is said of each rank that leads,
 * except decisions, which rank 0 takes for all. */
bool series_leads(const struct sidestep_series *series);
/* EFORKED, or EINVAL if its engine was closed. */
enum sidestep_status series_check(const struct sidestep_series *series, struct sidestep_error *err);
/* A save to ${name} (NULL: any) that has not ended; NULL: none. */
struct sidestep_save *series_find_in_flight(const struct sidestep_series *series, const char *name);
/* Record how a save has ended.  Only rank 0's answer is used; any thread. */
void series_record_outcome(struct sidestep_series *series, struct sidestep_save *save);
void series_record_outcome_locked(struct sidestep_series *series, struct sidestep_save *save)
    REQUIRES(&series->shared.lock);
/* Record how all saves have ended.  With the first commit of this incarnation, also remove the
 * pending markers that a killed incarnation left in committed checkpoints. */
void series_record_outcomes(struct sidestep_series *series);
/* Must free space be checked before a save? */
bool series_should_check_space(const struct sidestep_series *series);
/* Rank 0, any thread: record the size of the newest checkpoint, as the estimate for the next. */
void series_record_bytes(struct sidestep_series *series, uint64_t bytes);

/* ---- series_events.c ---- */

/* Keep the events of this series, and tell that it is open; or that it is closed. */
void series_begin_events(struct sidestep_series *series);
void series_end_events(struct sidestep_series *series);
/* The run is at ${step}.  Rank 0 writes it down now and then. */
void series_note_step(struct sidestep_series *series, uint64_t step, uint64_t now_ns);
/* Rank 0: a save is due at ${step}: SIDESTEP_DUE_*. */
void series_emit_due(struct sidestep_series *series, uint64_t step, uint32_t why);
/* The ranks have agreed to leave a save out, or to end. */
void series_emit_agreed(struct sidestep_series *series, uint64_t step, bool skips, bool stops);
/* This rank has asked for what the ranks have agreed on now, maybe because of a signal. */
void series_emit_asked(struct sidestep_series *series, uint64_t step, uint32_t what);
/* The run goes on from ${path}.  ${why} that one: "newest", "rejected" (newer ones were), "asked".
 */
void series_emit_resumed(struct sidestep_series *series, const char *path, uint64_t step,
                         const char *why);

/* ---- series_choose.c ---- */

/* Rank 0: choose the newest member that passes ${mode}.  ${rejected}: what was passed over, and
 * why. */
enum sidestep_status series_choose(struct sidestep_series *series, enum sidestep_verify_mode mode,
                                   uint64_t *step, char rejected[SERIES_REJECTED_BYTES],
                                   struct sidestep_error *err);
/* Rank 0: find a member of this step. */
enum sidestep_status series_find_step(struct sidestep_series *series, uint64_t step,
                                      struct sidestep_error *err);
/* Rank 0, if space is checked: record the size of the newest checkpoint that a resume would try. */
enum sidestep_status series_estimate_space(struct sidestep_series *series,
                                           struct sidestep_error *err);
/* Rank 0: record that the run goes on from ${step}.  Durable when it returns OK. */
enum sidestep_status series_record_resume(struct sidestep_series *series, uint64_t step,
                                          struct sidestep_error *err);
/* A rank that leads: the run goes on from ${whole}: parts of newer steps are left behind. */
enum sidestep_status series_record_parts(struct sidestep_series *series,
                                         const struct series_whole *whole,
                                         struct sidestep_error *err);
/* Rank 0: is the checkpoint ${name} part of an abandoned lineage, so that a save may replace it? */
bool series_can_replace(struct sidestep_series *series, const char *name);
/* Rank 0, for a name that may not be replaced: EEXISTS if it has a checkpoint; the message says
 * what to do. */
enum sidestep_status series_check_free(struct sidestep_series *series, const char *name,
                                       struct sidestep_error *err);
/* Rank 0: the run has made progress, so no restart from the loaded checkpoint has failed. */
void series_reset_restarts(struct sidestep_series *series);

/* ---- series_annotations.c ---- */

/*
 * Rank 0, before a save of ${name} starts: give it the annotations that wait for this name, and
 * free those for another name.  Until the save has ended, the pruner does not rely on what it sees
 * under this name.
 * cancel: the save does not start; its annotations wait for a later save again.
 * attach: the save has started, as ${save}.
 * remove: forget ${save}, which has ended.
 */
void series_pending_add(struct sidestep_series *series, const char *name);
void series_pending_cancel(struct sidestep_series *series, const char *name);
void series_pending_attach(struct sidestep_series *series, const char *name,
                           const struct sidestep_save *save);
void series_pending_remove(struct sidestep_series *series, const struct sidestep_save *save);
/* Rank 0: is a save of ${name} under way, or its outcome unknown? */
bool series_is_pending(const struct sidestep_series *series, const char *name)
    REQUIRES(&series->shared.lock);
/* Rank 0, called by the save's guard: write the annotations.  If that fails, an event reports it
 * and the save goes on: a checkpoint is worth more than its annotations. */
void series_write_annotations(struct sidestep_series *series, const struct commit *commit);
void series_free_annotations(struct sidestep_series *series);

/* ---- series_prune.c ---- */

enum sidestep_status series_start_pruner(struct sidestep_series *series,
                                         struct sidestep_error *err);
/* Delete now what retention does not keep, if it may. Any thread. */
void series_prune_once(struct sidestep_series *series);
/* Let the pruner wait for ${save}, and delete when it is committed. */
void series_notify_pruner(struct sidestep_series *series, struct sidestep_save *save);
/* Wait until everything that can be deleted is deleted, and end the thread. */
void series_stop_pruner(struct sidestep_series *series);
/* Rank 0: is there space for another checkpoint?  Deletes old ones to make space, if it may. */
enum sidestep_status series_check_space(struct sidestep_series *series, struct sidestep_error *err);

/* ---- series_mirror.c: the thread of rank 0 that brings the mirror up to date. Without a mirror,
 * all do nothing. */

/* The mirror of a series. */
struct series_mirror {
    struct store *store; /* the engine owns it */
    struct sidestep_mirror_options options;
    struct sidestep_retention keep; /* what ${options} points to */
    char root[COMMIT_PATH_BYTES];
    char metric[RETENTION_MAX_METRIC + 1];
    bool had_run;       /* when it was opened */
    bool is_remembered; /* so did a root: where each node has one, any of them */
    bool has_thread;
    pthread_t thread;
    struct sidestep_error err; /* the thread's: of the last look */
    _Atomic bool is_awaited;   /* somebody waits for it, and is told of the progress */
    _Atomic uint64_t told_ns;  /* when the last event told of it */
    /* With groups. */
    struct mirror_parts parts;
    bool volatile gives_up;   /* it sends nothing more, and waits for nobody */
    struct name_list refused; /* the thread's: saves that another node could not send */
};
void series_free_mirror(struct sidestep_series *series);
/* Copy and check the options. */
enum sidestep_status series_set_mirror(struct sidestep_series *series,
                                       const struct sidestep_series_options *theirs,
                                       struct sidestep_error *err);
/* Does this root remember that it has this mirror? */
bool series_remembers_mirror(const struct sidestep_series *series);
/* After the lease: let it do so. */
enum sidestep_status series_remember_mirror(const struct sidestep_series *series,
                                            struct sidestep_error *err);
/* Before the lease: what the mirror knows of the run. After it: record this incarnation there. */
enum sidestep_status series_mirror_read(struct sidestep_series *series,
                                        struct lease_elsewhere *elsewhere,
                                        struct sidestep_error *err);
enum sidestep_status series_mirror_claim(struct sidestep_series *series,
                                         struct sidestep_error *err);
enum sidestep_status series_start_mirror(struct sidestep_series *series,
                                         struct sidestep_error *err);
/* The series is open, and its log of events, too: the thread may look. With parts it waits for a
 * resume or a save: until then it does not know what goes on, and would sweep that. */
void series_let_mirror_begin(struct sidestep_series *series);
/* Let the thread wait for ${save}, and send what is committed then. */
void series_notify_mirror(struct sidestep_series *series, struct sidestep_save *save);
/* Why the near level must keep it for the mirror; NULL: it need not. */
const char *series_mirror_needs(void *series, const struct sidestep_listed *entry);
/* Exchange ${settled} with what is known. */
void series_set_settled(struct sidestep_series *series, struct name_list *settled);
/* Let the thread look now, whatever ${every} says, and then end, if it ${stops}. Returns the number
 * of that look, on rank 0. */
uint64_t series_ask_mirror(struct sidestep_series *series, bool stops);
/* Rank 0: has that look been made? Waits for it until ${until_ns}. */
bool series_await_look(struct sidestep_series *series, uint64_t look, uint64_t until_ns);
/* Send what is left, and end the thread. Returns the outcome of the last look. */
enum sidestep_status series_stop_mirror(struct sidestep_series *series, struct sidestep_error *err);
/* For series_mirror_parts.c: a look that is to be made; and wait for a save, for ${retry_ns} (0:
 * for ever), or for the end. True: it ends. */
struct mirror_look series_begin_look(struct sidestep_series *series);
/* A mirror that is not there is not "no checkpoint yet", which a program takes for a new run. */
enum sidestep_status series_not_absent(enum sidestep_status status, struct sidestep_error *err);
bool series_await_mirror_work(struct sidestep_series *series, uint64_t retry_ns);
void series_emit_mirror_failed(struct sidestep_series *series, const struct sidestep_error *why);
/* Neither level has a checkpoint that could be taken: fail with ${why} of the near level, whose
 * status is ${near}. But a program takes ENOTFOUND for a new run, and it is not that if the mirror
 * has damaged ones, which ${rejected} names: then ECORRUPT. */
enum sidestep_status series_report_none(enum sidestep_status near, bool has_damaged,
                                        const char *rejected, const struct sidestep_error *why,
                                        struct sidestep_error *err);
/* Copy the newest checkpoint of the mirror from ${newer_than} + 1 to ${at_most} to the root, if
 * that does not have it. ${*step}: its step; -1: there is none. ${rejected}: as in series_choose().
 */
enum sidestep_status series_fetch(struct sidestep_series *series, int64_t newer_than,
                                  int64_t at_most, char rejected[SERIES_REJECTED_BYTES],
                                  int64_t *step, struct sidestep_error *err);
/* The run goes on from ${step}: mark what is newer at the mirror as left behind. */
enum sidestep_status series_mirror_go_back(struct sidestep_series *series, uint64_t step,
                                           const char *save_id, struct sidestep_error *err);

/* ---- series_mirror_parts.c: a mirror of a series that is made of parts. Rank 0 looks at it, as
 * ever; each other rank that leads has a thread that sends its parts when rank 0 sends a save. */

/* What a look needs to know of parts. */
void series_set_mirror_parts(struct sidestep_series *series);
/* The thread of rank 0: after a look, note the save that another node has refused, if any. */
void series_note_refused(struct sidestep_series *series, const struct mirror_look *m);
/* Is nothing more sent, because the series ends, or the program has cancelled it? */
bool series_mirror_gives_up(void *series);
/* The thread of a rank other than 0. */
void series_answer_mirror(struct sidestep_series *series);
/* Stop the mirror of rank 0, and then those that it waits for. Returns the outcome on rank 0. */
enum sidestep_status series_stop_mirror_all(struct sidestep_series *series,
                                            struct sidestep_error *err);
/* Before a save: all ranks that lead learn what they need not keep for the mirror any more. */
enum sidestep_status series_share_settled_all(struct sidestep_series *series,
                                              struct sidestep_error *err);
/* Let the thread look again: more steps are known to be whole. */
void series_wake_mirror(struct sidestep_series *series);
/* A checkpoint of the mirror, for all ranks. */
struct series_far {
    struct series_whole whole; /* step -1: none; rank 0: why others were passed over */
    bool has_damaged;          /* others are damaged, as a listing shows */
    char path[COMMIT_PATH_BYTES];
};
/* Find the one that is to be loaded instead of ${near} (step -1: none is whole there). ${asked}: a
 * step, or -1. Saves in ${damaged} are passed over. */
enum sidestep_status series_find_far_all(struct sidestep_series *series,
                                         const struct series_whole *near, int64_t asked,
                                         const struct name_list *damaged, struct series_far *far,
                                         struct sidestep_error *err);

/* ---- series_choose.c: emit that ${path} was passed over, and add ${why} to ${rejected}. */
void series_note_rejected(struct sidestep_series *series, char rejected[SERIES_REJECTED_BYTES],
                          const char *path, const char *why);

/* Called when the engine is closed: free everything except the handle.  Returns the next series of
 * the engine's list. */
struct sidestep_series *series_shut_down(struct sidestep_series *series);

#endif
