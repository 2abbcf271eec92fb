/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror.h -- keeps the checkpoints of a series at a second place, the mirror.
 *
 * The series saves to the near level, the fast disk of the nodes. The mirror survives them.
 * docs/internals/levels.md has the rules, and what each crash leaves.
 *
 * What comes in: the roots of both levels. All that is known is read from them at each look; no
 * process has to remember anything.
 * What goes out: checkpoints at the mirror, each whole or not there, with the same bytes; their
 * pins, tags, metrics and lineage; and deletions there, by a retention of its own.
 *
 * Ownership: struct mirror_look owns what it has read until mirror_release().
 *
 * Threads: a look is made by one thread. A copy has threads of its own, which end with it, and
 * inherit the priority of that thread. Several processes may look at once: a copy, a deletion and
 * an annotation are each safe then.
 */
#ifndef MIRROR_MIRROR_H
#define MIRROR_MIRROR_H

#include "catalog/catalog.h"
#include "checkpoint/checkpoint.h"
#include "copy/copy.h"
#include "root/root.h"
#include "selection/selection.h"
#include "sidestep/sidestep_tools.h"

/* A checkpoint at the near level. */
struct mirror_item {
    int64_t step;
    bool is_there;               /* this save is at the mirror */
    bool is_asked;               /* somebody wants it there, however old it is */
    bool is_left_behind;         /* so it is never the newest */
    const char *objection;       /* why it cannot be sent; NULL: it can */
    enum sidestep_status status; /* with which reading it failed; else SIDESTEP_OK */
};

/*
 * mirror_plan.c, a pure function: which of ${items}, sorted by step, is sent next? The newest, if
 * its step is at least ${every} after ${newest_there} (the newest at the mirror; -1: none). Then
 * those that somebody wants, the newest first. Returns ${count} if none is. Call it again after
 * each answer, with what has changed.
 */
size_t mirror_choose(const struct mirror_item *items, size_t count, int64_t newest_there,
                     uint64_t every);

/* Where each node has a directory for itself (mirror_parts.c): what the near level has are parts,
 * and each process that has one sends it. */
struct mirror_parts {
    /* Why the save of which ${part} is must not be sent; NULL: it may. */
    const char *(*objection)(void *context, const struct sidestep_listed *part);
    bool (*gives_up)(void *context); /* stop sending, and waiting for what others send; once it
                                        does, options.cancel is set, too */
    void *context;
    uint64_t timeout_ns; /* without any progress of theirs */
    uint32_t rank;       /* in whose name this process refuses what it has no part of; not 0 */
    bool is_over;        /* no process of the run goes on: see mirror_nodes.c */
};

/* One of the two places. */
struct mirror_level {
    const char *root;
    struct store *store;
    struct store_dir *dir;
    struct store_dir *annotations_dir; /* ROOT/.sidestep; NULL: there is none */
    struct sidestep_list list;
    struct annotations annotations;
};

/* What a report points into. */
struct mirror_findings {
    struct arena arena;
    const char **sent, **passed;
    size_t sent_count, sent_capacity, passed_count, passed_capacity;
    struct gc_report *pruned; /* NULL: nothing was pruned */
};

/* Another process than that which sends a save of parts. Zeroed at first. */
struct mirror_answer {
    char seen[SAVE_ID_HEX];     /* the last attempt that was seen ... */
    bool has_ended;             /* ... after which nothing more is sent, and ... */
    bool is_sent;               /* ... its save, ->save_id, is at the mirror */
    char attempt[SAVE_ID_HEX];  /* to send a save, in which it has voted last */
    bool is_wanted;             /* the save that is being sent has no part here */
    char save_id[SAVE_ID_HEX];  /* of that save ... */
    char name[FILE_NAME_BYTES]; /* ... and its name */
    char failing[SAVE_ID_HEX];  /* the attempt in which putting the part fails; "": none ... */
    uint64_t failing_since_ns;  /* ... and since when */
};

struct mirror_look {
    /* Set by the caller. */
    struct sidestep_mirror_options options;
    struct mirror_level near, far;
    struct clock *clock;
    const struct mirror_parts *parts; /* NULL: the near level is one that all processes share */
    bool is_claimed; /* this incarnation has recorded itself at the mirror: if the record is gone,
                        it is not the mirror that is seen there */

    struct retention retention;
    struct throttle throttle;
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
    bool had_mirror;                 /* the run has been there, so it is not empty, nor missing */
    struct sidestep_listed *entries; /* of the near level, by step: whole checkpoints, and what was
                                        one */
    struct mirror_item *items;       /* one for each */
    size_t count;
    int64_t newest_there;
    struct sidestep_error failure; /* of the first checkpoint that could not be sent because of
                                      another process */
    char failed_id[SAVE_ID_HEX];   /* its save id; "": there is none */
    bool has_unnamed; /* a new checkpoint at the mirror lacks only its name: it is not swept */
    char attempt[SAVE_ID_HEX]; /* the last one of this look to send a save of parts; "": none ... */
    bool attempt_is_sent;      /* ... and whether that is at the mirror */
    struct mirror_parts own_parts; /* of mirror_nodes.c */
    struct mirror_answer answer;   /* of mirror_nodes.c */
    struct mirror_findings *findings;
    struct sidestep_mirror_report *report;

    /* Of mirror_run(). */
    bool is_read;             /* both levels were read, so this is known: */
    struct name_list settled; /* save ids that the near level need not keep for the mirror, which
                                 keeps their steps by number: it has them, or they are damaged. To
                                 be released */
};
/* mirror_plan.c: the threads of a copy. */
uint32_t mirror_threads(const struct mirror_look *m);

/* mirror_look.c: read both levels. ENOTFOUND: there is no series at the near level. EMISMATCH: the
 * mirror belongs to another run. EABORTED: a later incarnation of the run has written to the
 * mirror, so this near level is outdated. */
enum sidestep_status mirror_read(struct mirror_look *m, struct sidestep_error *err);
/* Set ${both} to this run's checkpoints at both levels, by step, with what is left behind marked.
 * Those of the mirror may be damaged, or cannot be read now: their state says so, and then whose
 * they are may not be known. Returns how many; there is room for m->count and the entries of the
 * mirror. */
size_t mirror_gather(const struct mirror_look *m, struct sidestep_listed *both);
/* Did this run save ${entry}, as it says? */
bool mirror_is_of_run(const struct mirror_look *m, const struct sidestep_listed *entry);
/* Is an entry of ${both} one of the mirror? */
bool mirror_is_far(const struct mirror_look *m, const struct sidestep_listed *entry);
/* The near level's entry of the same save; NULL: it has none. */
const struct sidestep_listed *mirror_find_near(const struct mirror_look *m,
                                               const struct sidestep_listed *far);
/* Does ${status}, with which a copy of ${entry} of ${level} failed, mean that it is damaged there?
 * A place that is missing is no damage, if the checkpoint is still whole. */
bool mirror_is_damaged(const struct mirror_level *level, const struct sidestep_listed *entry,
                       enum sidestep_status status);
/* The entry of the mirror with this name; NULL: there is none. */
const struct sidestep_listed *mirror_find(const struct mirror_look *m, const char *name);
/* Is there a checkpoint at the mirror that is replaced, if one of this name is sent? */
bool mirror_replaces(const struct mirror_look *m, const char *name);
/* Has what lies at ${to} the save id of ${entry}, because another process has sent it meanwhile?
 * The next look finds out whether it is whole. */
bool mirror_is_there(const struct mirror_look *m, const struct sidestep_listed *entry,
                     const char *to);
void mirror_release(struct mirror_look *m);

/* mirror_owner.c: which run the mirror has, and its newest incarnation: from the record in its
 * directory ".sidestep", and from its checkpoints. "": none. A run records itself before it does
 * anything else, so that no two incarnations have one number, although the near level was lost.
 * EMISMATCH: it has checkpoints of several runs, or of another one than it records. */
enum sidestep_status mirror_read_owner(const struct mirror_level *far,
                                       struct lease_elsewhere *owner, struct sidestep_error *err);
/* Record it, unless that is recorded already. */
enum sidestep_status mirror_record_owner(struct mirror_level *far,
                                         const struct lease_elsewhere *owner,
                                         struct sidestep_error *err);
/* Make ".sidestep" at the mirror if it is missing, and open it. */
enum sidestep_status mirror_open_to_write(struct mirror_level *far, struct sidestep_error *err);

/* Does ${dir}, ROOT/.sidestep, remember that the run of ROOT has had this mirror? */
#define MIRROR_AT "mirror-at"
bool mirror_is_remembered(struct store_dir *dir, const char *mirror);

/* EINVAL: both are one place. */
enum sidestep_status mirror_check_places(struct store_dir *near, struct store_dir *far,
                                         struct sidestep_error *err);
/* Look at a mirror for mirror_read_owner(), before there is a run. ${makes}: it is made if it is
 * missing. Call mirror_level_release() in any case. */
enum sidestep_status mirror_level_read(struct mirror_level *far, bool makes,
                                       struct sidestep_error *err);
void mirror_level_release(struct mirror_level *level);

/* mirror_annotations.c: give the copy of ${entry} what the near level says about it: pins, tags,
 * metrics and lineage. A pin is never removed. */
enum sidestep_status mirror_annotate(struct mirror_look *m, const struct sidestep_listed *entry,
                                     struct sidestep_error *err);

/* mirror_fetch.c: copy to the near level the newest checkpoint of the mirror that the run has not
 * left behind, with a step from ${newer_than} + 1 to ${at_most}, and that the near level does not
 * have. If the one of the step ${newer_than} is left behind, as both levels show, the steps begin
 * at 0. A single step is also fetched if it was left behind. ${*step}: its step; -1: there is none.
 * ${reject} is called for each that is damaged. One that cannot be read now, and may be the one, is
 * an error. Reads both levels, and releases them. */
typedef void mirror_reject(void *context, const char *path, const char *why);
enum sidestep_status mirror_fetch(struct mirror_look *m, int64_t newer_than, int64_t at_most,
                                  const struct name_template *naming, mirror_reject *reject,
                                  void *context, int64_t *step, struct sidestep_error *err);
/* The run goes back to ${step}: mark all newer ones at the mirror as left behind. Fails if one of
 * them cannot be read, so that its save is not known. */
/* ${save_id}: where nothing is copied to the near level, the checkpoint that was loaded; if the
 * mirror has it, it is not left behind any more. Otherwise NULL. */
enum sidestep_status mirror_go_back(struct mirror_look *m, int64_t step, const char *save_id,
                                    struct sidestep_error *err);

/* Where each node has a directory for itself: a checkpoint of the mirror that a run goes on from.
 */
struct mirror_found {
    int64_t step; /* -1: none */
    uint64_t incarnation;
    char save_id[SAVE_ID_HEX];
    char name[FILE_NAME_BYTES];
    bool is_adopted; /* of the near level: the run went on from it after it had left it behind */
};
struct mirror_wanted {
    struct mirror_found near; /* the newest that is whole at the near level; step -1: none */
    int64_t asked;            /* this step; -1: the newest */
    const struct name_template *naming;
    const struct name_list *passed; /* saves that do not count */
    mirror_reject *reject;          /* called for each that is damaged, as a listing shows */
    void *context;
};
/* Find the newest that is later in the run than the near one, and not left behind; or that of a
 * step. One that cannot be read now, and may be the one, is an error. Reads both levels, and
 * releases them. */
enum sidestep_status mirror_find_later(struct mirror_look *m, const struct mirror_wanted *wanted,
                                       struct mirror_found *found, struct sidestep_error *err);

/*
 * mirror_parts.c: a checkpoint whose parts lie in the directories of several nodes is sent by the
 * protocol of a save (commit/commit.h). The process that looks is its rank 0: it begins the save at
 * the mirror, writes there which one it is (".sidestep/sending"), puts the files of its part, waits
 * for the votes of all ranks, and publishes. All others look for it now and then, put theirs, and
 * vote.
 */
enum sidestep_status mirror_send_parts(struct mirror_look *m, const struct sidestep_listed *entry,
                                       const char *to, struct sidestep_copy_report *copied,
                                       struct sidestep_error *err);
/* Look whether a save is being sent that this process has a part of, and send that. ${m}: the
 * options, ${parts} and both levels are set; only their roots and stores are used. ${refused}: if
 * this save is being sent, and it has no part of it, say so. If putting it fails for as long as a
 * silent rank is waited for, that is said, too. ${*again}: it has voted, so look again soon. After
 * an error who waits for the part was told, or the next call tries again. */
enum sidestep_status mirror_answer(struct mirror_look *m, struct mirror_answer *answer,
                                   const char *refused, bool *again, struct sidestep_error *err);

/* Tell the others that this look sends nothing more. */
void mirror_end_sending(struct mirror_look *m);

/*
 * mirror_nodes.c: sidestep_mirror() where each node has a directory for itself, and the run is
 * over. A call on each node does what the threads of the run did: on the node that has the part of
 * rank 0, it sends (mirror_send_parts()), on the others it answers, and waits until the save is
 * there.
 */
/* Set m->parts, if no process of the run has the near level open. */
void mirror_take_parts(struct mirror_look *m);
/* Is it for this call to send the save of this part, to annotate it, and to sweep? */
bool mirror_leads_parts(const struct mirror_look *m, const struct sidestep_listed *part);
/* Answer until the save of ${part} is at ${to}. EPEER: who sends has ended without it. ETIMEDOUT:
 * nobody sends it. */
enum sidestep_status mirror_await_parts(struct mirror_look *m, const struct sidestep_listed *part,
                                        const char *to, struct sidestep_error *err);

/* mirror_clean.c: apply the retention at the mirror, and remove what interrupted copies left. It
 * changes nothing if a run has the mirror open as its own root. */
enum sidestep_status mirror_clean(struct mirror_look *m, struct sidestep_error *err);

/* mirror.c: EINVAL, EUNSUPPORTED: an option is wrong. */
enum sidestep_status mirror_check_options(const struct sidestep_mirror_options *options,
                                          struct sidestep_error *err);
/* Bring the mirror up to date, on the calling thread, which gets a low priority
 * meanwhile.
 * ${report} is that of
 * sidestep_mirror(), and is filled also on failure. */
enum sidestep_status mirror_run(struct mirror_look *m, struct sidestep_mirror_report *report,
                                struct sidestep_error *err);

#endif
