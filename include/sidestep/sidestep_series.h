/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep_series.h -- the checkpoints of one run: resuming, retention, when to save.
 *
 * A series is the checkpoints of one run, "step-<n>", in one directory.  Opening it takes the
 * lease, starts a new incarnation that stops every earlier one, and removes what they left.
 *
 * A run that resumes and saves by itself:
 *
 *      struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 3};
 *      struct sidestep_series_options options = {.struct_size = sizeof(options),
 *          .interval_ms = 600000, .flags = SIDESTEP_SERIES_REQUESTS, .retention = &keep};
 *      sidestep_series_open(engine, "ckpt", &options, &series, &err);
 *      sidestep_series_load(series, state, NULL, &step, NULL, NULL, &err);
 *      for (...; step++) {
 *              train();
 *              sidestep_series_should_save(series, step, &due, &err);
 *              if (due)
 *                      sidestep_series_save_async(series, step, state, NULL, &save, &err) ...
 *      }
 *      sidestep_series_close(&series, &err);
 *
 * The conventions of sidestep.h hold.
 */
#ifndef SIDESTEP_SERIES_H
#define SIDESTEP_SERIES_H

#include "sidestep.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sidestep_series;
struct sidestep_mirror_options; /* sidestep_tools.h */

/** A larger metric is better (else a smaller one). */
#define SIDESTEP_RETENTION_MAX 1u

/**
 * struct sidestep_retention: which checkpoints stay.  All others of the run are deleted once a
 * newer one is committed, in the background, by rank 0.  These always stay:
 *  - the newest one that is valid;
 *  - those that are pinned;
 *  - those that somebody is reading (a load, an open checkpoint), until the next time;
 *  - those that are damaged (and they do not count);
 *  - those of other runs and of other programs, and directories with files that are not ours;
 *  - all, while the outcome of a save is UNKNOWN, or before this incarnation has committed one;
 *  - with a ${keep_last} of 2 or more, the newest one that shares no file with the newest.
 * Those that a resume left behind (see sidestep_series_load_step()) go first.
 */
struct sidestep_retention {
    size_t struct_size;
    uint32_t flags;      /* SIDESTEP_RETENTION_* */
    uint32_t keep_last;  /* so many of the newest; 0 and 1: only the newest */
    uint64_t keep_every; /* also those whose step is a multiple of it; 0: none */
    uint32_t keep_best;  /* also so many of the best by ${metric}; 0: none */
    uint32_t reserved;
    const char *metric; /* see sidestep_series_note() */
};
#define SIDESTEP_RETENTION_INIT SIDESTEP_INIT(struct sidestep_retention)

/** Accept sidestep_series_request(): sidestep_series_should_save() then agrees now and then. */
#define SIDESTEP_SERIES_REQUESTS 1u
/** Skip a save that is due by an interval while the one before is still under way. */
#define SIDESTEP_SERIES_SKIP_BUSY 2u
/** Resume also from checkpoints of another run (they count as this run's from then on). */
#define SIDESTEP_SERIES_ANY_RUN 4u
/** A save fails at once with SIDESTEP_ENOSPC if the storage has less space than the newest
    checkpoint takes (the last one that was saved, resumed from, or found at opening).  Without the
    flag it fails when the storage is full. */
#define SIDESTEP_SERIES_CHECK_SPACE 8u
/** The same, but first delete everything that retention may delete, except the newest checkpoint:
    ${keep_last}, ${keep_every} and ${keep_best} do not hold then.  What is pinned stays.  After
   each opening, everything stays until this run has committed a checkpoint ("sidestep prune" makes
   room by hand). */
#define SIDESTEP_SERIES_MAKE_ROOM 16u
/** Incremental saves.  If two saves in a row find at least 1 MiB of tensors of a rank unchanged,
    the second one writes these tensors to a file of their own.  Later checkpoints of this engine
    share it, by hard links, while the tensors stay unchanged.  Then they cost a read of memory, and
    nothing is written.  If one of them changes, all are written anew; so they are after 16 links,
    and where the storage refuses links (${link_reason}).  A bad block in such a file damages all
    checkpoints that share it, so a retention with a ${keep_last} of 2 or more also keeps the newest
    checkpoint that shares no file with the newest.  Shared tensors are never compressed. */
#define SIDESTEP_SERIES_INCREMENTAL 32u
/** The root may be a directory that each node has for itself, on a fast disk that dies with it.
   Then the ranks that see one directory commit what they write there as a part of the checkpoint,
   and a step can be resumed if the parts of all ranks that saved it are found.  If all ranks see
   one directory, nothing differs.  See "A directory for each node" at sidestep_series_open(). */
#define SIDESTEP_SERIES_PER_NODE 64u

struct sidestep_series_options {
    size_t struct_size;
    uint32_t flags;        /* SIDESTEP_SERIES_* */
    uint32_t max_restarts; /* after so many runs have resumed from a checkpoint, and ended without
                              having committed another one or closed the series, a resume takes the
                              checkpoint before it.  0: any number */
    const char *prefix; /* a checkpoint's name is this and the step, not padded ("step-42"); NULL:
                           "step-".  '/', '%', '{' and '}' are refused.  For other names use
                           ${name} */
    const struct sidestep_retention *retention; /* copied; NULL: all stay */
    /* For sidestep_series_should_save(): */
    uint64_t interval_steps; /* 0: none */
    uint64_t interval_ms;    /* 0: none */
    uint64_t check_ms;       /* a request is noticed about this soon; 0: 5,000 */
    uint64_t mtbf_ms;        /* mean time between failures of the job: the interval is chosen by it
                                and by the measured cost of saves; 0: it is not */
    double max_lost;         /* with ${mtbf_ms}: the fraction of time that saves and repeated work
                                may take, 0.02 for example; the longest such interval is chosen.  0,
                                or if there is none: the interval that loses least */
    const char *name; /* template of the checkpoints' names, instead of ${prefix}.  Contains {step}
                         once, or {step:08} (zero-padded, to 1 to 20 digits): "step_{step:08}",
                         "step-{step}.dcp".  NULL: prefix and step.  See sidestep_name_of_step() */
    /* Rank 0 counts (with SIDESTEP_SERIES_PER_NODE, all ranks pass the same): a second place for
       the checkpoints, which survives the first.  See "A mirror" at sidestep_series_open(). */
    const char *mirror;                                   /* its path or URL; NULL: none */
    const struct sidestep_mirror_options *mirror_options; /* copied; NULL: the defaults */
};
#define SIDESTEP_SERIES_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_series_options)

/**
 * sidestep_series_open(engine, root, options, &series, err):
 * Collective.  Makes ${root} if its parent exists.  SIDESTEP_ELOCKED names host and pid of the
 * process that holds the lease.  SIDESTEP_EDISAGREE: the ranks have different roots, names, flags
 * or intervals, so one of them would save alone; or they do not see the same storage at ${root}.
 * SIDESTEP_EINVAL: see sidestep_name_of_step().
 *
 * A mirror: after each commit, a thread of rank 0 with low priority does what sidestep_mirror()
 * does. No save waits for it.  If it falls behind, it sends the newest, and passes over what was
 * saved meanwhile.  If it fails, it tries again, at growing intervals of up to five minutes. Events
 * tell what was sent ("mirrored") and what failed ("mirror_failed").  Retention at ${root} keeps
 * checkpoints that the mirror is to keep by ${keep_every}, and does not have yet, unless
 * SIDESTEP_SERIES_MAKE_ROOM needs their space.
 * With a mirror, opening reads it, also if ${root} is lost: then the run of the mirror goes on.  So
 * opening fails if the mirror cannot be read.  To go on from ${root} alone, open it without.
 * sidestep_series_load() takes the newest valid checkpoint of both places: if that is at the mirror
 * alone, or damaged at ${root}, it is copied to ${root} first ("fetched"), by rank 0.
 * sidestep_series_close() sends the newest, whatever ${every} says, and blocks until that is done.
 * Meanwhile ${on_progress} of the mirror's options is called, and events tell how far it is
 * ("mirroring").  ${cancel}, once it is true, ends that soon.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_open(struct sidestep_engine *engine, const char *root,
                     const struct sidestep_series_options *options, struct sidestep_series **series,
                     struct sidestep_error *err);

/* A directory for each node (SIDESTEP_SERIES_PER_NODE): opening finds out which ranks see the same
 * directory; ${root} may then have another path on each node.  Rank by rank:
 *  - A save is committed on each node by itself.  The state COMMITTED, on a rank, says that the
 * part of its node is durable.  sidestep_series_save() succeeds only if all parts are.  Of a save
 * in the background, the next call on all ranks reports a part that failed.
 *  - sidestep_series_load() takes the newest step of which the parts of all ranks of the world that
 *    saved it are in the directories of the present ranks, wherever they lie now, and however many
 *    ranks there are.  Files that a node lacks are brought from another node, over the
 * communicator, and lie in the directory until the load ends.
 *  - Small files of all ranks are compared in the call of the save (SIDESTEP_EDISAGREE).  Those
 * that are taken (SIDESTEP_FILE_TAKE) are not read then: ranks of two nodes may give one name to
 * them only with SIDESTEP_FILE_FIRST_RANK.  After a load all are at sidestep_series_path().
 *  - SIDESTEP_EMISMATCH: there are parts, but no step is whole; the message says which ranks are
 *    missing.  A directory that belongs to another run is never used: opening fails.
 *  - Each node deletes parts of steps that retention does not keep, once the next save has shown
 *    that a newer step is whole on all nodes.
 *  - With a mirror, that gets whole checkpoints.  All ranks pass the same one.  Each node sends its
 *    part; ${bytes_per_second} limits each node by itself.  If the mirror's newest checkpoint is
 *    later in the run than the newest whole step of the nodes, or no step is whole there, all ranks
 *    load from the mirror.  If a node cannot send its part, the event "mirror_failed" and closing
 *    say so.
 * SIDESTEP_EUNSUPPORTED, for now: with ${max_restarts}, ${keep_best}, SIDESTEP_SERIES_INCREMENTAL
 * or SIDESTEP_SERIES_ANY_RUN, if not all ranks see one directory.
 */

/**
 * sidestep_name_of_step(naming, step, name, err):
 * The name that a series with this ${name} gives the checkpoint of ${step}: "step_{step:08}" and 42
 * make "step_00000042".  A step with more digits is not cut.
 * SIDESTEP_EINVAL: the template does not contain {step} exactly once; its format is not {step:0N}
 * or {step:0Nd}, N from 1 to 20; it starts with a dot; a digit is next to {step}; more than 63
 * bytes are before or after it; it ends like names of sidestep's own files (".distcp", ".part",
 * ".saving", ...); it contains '/', '%', a quote, a backslash or a control character; or it is not
 * UTF-8.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_name_of_step(const char *naming, uint64_t step, char name[256],
                      struct sidestep_error *err);

/**
 * sidestep_step_of_name(naming, name, &step, err):
 * The step that has this name.  SIDESTEP_ENOTFOUND: the template never makes this name:
 * "step_{step:08}" never makes "step_42".
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_step_of_name(const char *naming, const char *name, uint64_t *step,
                      struct sidestep_error *err);

/**
 * sidestep_series_save_async(...): like sidestep_save_async() to ROOT/step-<step>.
 * SIDESTEP_EEXISTS if that step is committed already.  If a resume has left it behind and it is not
 * pinned, it is replaced instead.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_save_async(struct sidestep_series *series, uint64_t step,
                           const struct sidestep_state_dict *state,
                           const struct sidestep_save_options *options, struct sidestep_save **save,
                           struct sidestep_error *err);

/** sidestep_series_save(...): the same, blocking until COMMITTED. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_save(struct sidestep_series *series, uint64_t step,
                     const struct sidestep_state_dict *state,
                     const struct sidestep_save_options *options, struct sidestep_save_info *info,
                     struct sidestep_error *err);

/**
 * sidestep_series_load(series, state, options, &step, report, err):
 * Load the newest checkpoint that verifies.  Collective.  If one does not verify, also in a second,
 * uncached read, it is set aside as .bad (if it is ours), and the next older one is tried.  If
 * somebody deletes one meanwhile, the next older one is tried, too.  These are passed over:
 * checkpoints that an earlier resume left behind, those of another run, and those from which too
 * many runs have resumed in vain
 * (${max_restarts}).  The run then goes on from the loaded checkpoint.  Newer checkpoints, if there
 * are any, are left behind: no resume chooses them, retention deletes them, and a save of their
 * step replaces them.
 * SIDESTEP_ENOTFOUND: there is no checkpoint yet.  SIDESTEP_ECORRUPT: there are checkpoints, but
 * none is valid (SIDESTEP_EMISMATCH: none may be resumed from); the message lists what was rejected
 * and why.  SIDESTEP_EPERM, SIDESTEP_EIO, SIDESTEP_ENOMEM: one could not be read (permission,
 * storage that fails, too few descriptors), so nobody knows whether it is valid.  Then nothing is
 * changed and no older one is taken.  Make it readable, or name an older step
 * (sidestep_series_load_step()).
 * A success sets ${*step}.  ${rejected} may be NULL; otherwise it receives the same list.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_load(struct sidestep_series *series, struct sidestep_state_dict *state,
                     const struct sidestep_load_options *options, uint64_t *step,
                     struct sidestep_load_report *report, char rejected[2048],
                     struct sidestep_error *err);

/**
 * sidestep_series_load_step(series, step, state, options, report, err):
 * Go back to ${step}: load that checkpoint and no other, and go on from there, as above.
 * Collective.  To only look at it, call sidestep_load().
 * SIDESTEP_ENOTFOUND: this step has no checkpoint, or somebody has deleted it meanwhile.  If it is
 * damaged, the call fails and does not set it aside.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_load_step(struct sidestep_series *series, uint64_t step,
                          struct sidestep_state_dict *state,
                          const struct sidestep_load_options *options,
                          struct sidestep_load_report *report, struct sidestep_error *err);

/**
 * sidestep_series_find(series, wanted, &step, err):
 * Find the checkpoint of step ${wanted}, or (-1) the newest that is whole, without going on from
 * it: no step is left behind, and nothing is set aside.  Afterwards sidestep_series_path() says
 * where all ranks can load it.  With SIDESTEP_SERIES_PER_NODE its parts are put together first, or
 * it is that of the mirror.  Collective.
 * Errors as for sidestep_series_load() and sidestep_series_load_step().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_find(struct sidestep_series *series, int64_t wanted, uint64_t *step,
                     struct sidestep_error *err);

/**
 * sidestep_series_path(series, step, path, err):
 * Where all ranks can load the checkpoint of ${step} (sidestep_load()): ROOT/step-<step>.  With
 * SIDESTEP_SERIES_PER_NODE, and after the series has loaded or found that step, it is a hidden
 * directory on each node, in which the parts are put together.  That one ends with the next call
 * that loads or finds, saves or closes.  Not collective.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_path(const struct sidestep_series *series, uint64_t step, char path[4096],
                     struct sidestep_error *err);

/** Why a save is due: an interval has passed. */
#define SIDESTEP_DUE_INTERVAL 1u
/** A rank has asked for one. */
#define SIDESTEP_DUE_SAVE 2u
/** A rank has asked for a last one before the run ends.  Set from then on. */
#define SIDESTEP_DUE_STOP 4u

/**
 * sidestep_series_should_save(series, step, &due, err):
 * Is a save due at ${step}?  ${*due} is 0 or SIDESTEP_DUE_*, and the same on every rank, whatever
 * their clocks say and whichever rank was asked to save.  Every rank calls it after the same steps,
 * usually after each.
 * Most calls do not communicate.  The ranks agree (one all-reduce of five words) at steps that the
 * last agreement chose, about every ${check_ms}; rank 0 predicts them from the time that steps
 * take.  If saves are due only by ${interval_steps}, they never communicate.  If an agreement
 * fails, the call fails with SIDESTEP_EPEER.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_should_save(struct sidestep_series *series, uint64_t step, uint32_t *due,
                            struct sidestep_error *err);

/**
 * sidestep_series_quiet_until(series, step):
 * For bindings in which each call is expensive: the first step, from ${step} on, at which
 * sidestep_series_should_save() must be called.  Before that step it would say 0 without
 * communicating, as long as steps do not go back.  UINT64_MAX: it never needs to be called.  Not
 * collective; the same on every rank.
 */
SIDESTEP_API uint64_t sidestep_series_quiet_until(const struct sidestep_series *series,
                                                  uint64_t step);

/**
 * sidestep_series_request(series, what):
 * Ask for a save (SIDESTEP_DUE_SAVE), or for a last one (SIDESTEP_DUE_STOP), on any rank, from any
 * thread, or from a signal handler.  Needs SIDESTEP_SERIES_REQUESTS.  What a signal asks for may
 * name it, for the event "signal": SIDESTEP_DUE_STOP | SIDESTEP_DUE_SIGNAL(number).
 */
#define SIDESTEP_DUE_SIGNAL(number) ((uint32_t)(number) << 8)
SIDESTEP_API void sidestep_series_request(struct sidestep_series *series, uint32_t what);

/**
 * sidestep_series_exported(series, step, path, err): tell in the events ("exported") that the
 * program has written the checkpoint of ${step} to ${path} in another form.  A failure to write the
 * event is ignored.  Any rank; not collective; does not wait for saves.  SIDESTEP_EINVAL: ${path}
 * is NULL, or the engine was closed.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_exported(struct sidestep_series *series, uint64_t step, const char *path,
                         struct sidestep_error *err);

struct sidestep_series_status {
    size_t struct_size;
    uint64_t interval_ms; /* between saves, at present; 0: not by time */
    uint64_t skipped;     /* saves that were skipped (SIDESTEP_SERIES_SKIP_BUSY) */
    uint64_t agreements;  /* of sidestep_series_should_save() */
    double lost;          /* with ${mtbf_ms}: the fraction of time that will probably be lost */
    uint64_t queued;      /* saves that started while another was under way (${queue}) */
    uint64_t directories; /* of the root: 1: all ranks see one; else saves are made of parts */
    uint64_t leads;       /* 1: of the ranks that see its directory, this is the lowest */
};
#define SIDESTEP_SERIES_STATUS_INIT SIDESTEP_INIT(struct sidestep_series_status)
/** sidestep_series_status(series, status): as this rank knows it; only rank 0 knows times.
    SIDESTEP_EINVAL if struct_size is not set. */
SIDESTEP_API enum sidestep_status sidestep_series_status(struct sidestep_series *series,
                                                         struct sidestep_series_status *status);

struct sidestep_metric {
    const char *name; /* letters, digits, '_' and '-', at most 64 */
    double value;
};
/**
 * sidestep_series_note(series, step, metrics, metric_count, tags, tag_count, err):
 * Annotate the checkpoint of ${step}: with metrics (for ${keep_best}) and tags (which allow the
 * same characters).  Not collective: rank 0's call counts, those of other ranks are ignored.
 * Before the save of that step is started: the annotations become durable with it, in the
 * background.  After it was committed: they are durable when this returns.  A metric replaces an
 * earlier one of the same name.
 * Errors: SIDESTEP_EINVAL for a name.  SIDESTEP_EBUSY: the save of ${step} is under way.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_note(struct sidestep_series *series, uint64_t step,
                     const struct sidestep_metric *metrics, size_t metric_count,
                     const char *const *tags, size_t tag_count, struct sidestep_error *err);

struct sidestep_gc_report;
/**
 * sidestep_series_prune(series, report, err):
 * Delete now what the retention does not keep, and report all deletions since the last call, also
 * those in the background.  Not collective; any thread.  Rank 0 does it; on other ranks the report
 * is empty.
 * ${report} is that of sidestep_gc(), and is released in the same way.  A checkpoint that cannot be
 * deleted is listed as kept.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_prune(struct sidestep_series *series, struct sidestep_gc_report *report,
                      struct sidestep_error *err);

/**
 * sidestep_series_delete(series, step, err):
 * Delete one committed checkpoint of this series.  Collective.  SIDESTEP_ELOCKED: it is the newest
 * one that verifies, it is pinned or being read, an outcome is UNKNOWN, or this incarnation has not
 * committed one yet.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_delete(struct sidestep_series *series, uint64_t step, struct sidestep_error *err);

/**
 * sidestep_series_flush(series, err):
 * Wait for its saves, and until the mirror has the newest checkpoint, whatever ${every} says.
 * Without a mirror: only for the saves.  Collective, and blocks as sidestep_series_close() does,
 * with the same progress and the same ${cancel}.  How a save has ended, its handle says.  Errors,
 * on all ranks: that of the mirror; what was saved is safe at the root, and is sent later.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_flush(struct sidestep_series *series, struct sidestep_error *err);

/**
 * sidestep_series_close(&series, err):
 * Wait for its saves and for the mirror, release the lease.  If the newest checkpoint could not be
 * sent to the mirror, rank 0 gets the error: the series is closed, what it saved is safe at its
 * root, and sidestep_mirror() sends it.  Collective.  After sidestep_engine_close(), which does the
 * same, it only frees the handle; other functions of the series return SIDESTEP_EINVAL then.
 */
SIDESTEP_API enum sidestep_status sidestep_series_close(struct sidestep_series **series,
                                                        struct sidestep_error *err);

#ifdef __cplusplus
}
#endif
#endif
