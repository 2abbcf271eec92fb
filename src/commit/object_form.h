/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_form.h -- the form of the protocol on object stores, and what keeps it safe.
 *
 * An object is put whole or not at all, one key at a time. There is no rename and no lock, and the
 * answer to a request that was carried out can get lost. Steps (commit.h), for a target
 * s3://B/P/NAME:
 *
 *   1 begin   rank 0 reads the entity tag of .metadata, or that there is none. Puts the marker.
 *   2 shards  all: multipart uploads to keys that contain the save id, so nobody else uses them
 *   3 seal    all: complete the upload, check its size; then put a vote
 *   4 collect rank 0: list the votes, read the footer of every shard back
 *   5 publish rank 0: put the manifest
 *   6 commit  rank 0: put .metadata, on the condition that it is what was seen in step 1.
 *             200: committed. 412: read it back; it is of this save if an earlier answer was lost.
 *             No answer: read it back; if it is not of this save, the outcome is UNKNOWN.
 *             Then delete what only the replaced checkpoint named, the votes, the marker.
 *   7 learn   others: from .metadata, the marker and the outcome object
 *     abort   rank 0: put the reason, abort uploads, delete shards and votes, the marker last
 *
 * While a save is under way, these objects lie below NAME/.sidestep/<save id>/: "pending" (the
 * marker), "yes.<rank>", "failed.<rank>", "alive.<rank>" and "outcome".
 *
 * Invariants, beside those of commit.h:
 *   O1  .metadata names only complete objects whose footers rank 0 has read.
 *   O2  The key of a shard, a manifest or a vote contains the save id. So a late or repeated
 *       request writes the same bytes to the same key, or nothing.
 *   O3  .metadata changes only by a conditional put. Where the store has no conditions, see
 *       object_commit.c.
 *   O4  COMMITTED is reported only after a 200, or after .metadata was read back with the id of
 *       this save.
 *   O5  Once the put of .metadata was sent and is unanswered, its save deletes nothing.
 *   O6  A sweep deletes objects of a save only if it is dead by the store's clock
 *       (object_sweep.c), and if a .metadata that was read after that does not name them.
 *   O7  Whoever deletes a checkpoint deletes .metadata first,
 *   O8  and only the version of .metadata that it has read.
 *   O9  A save whose manifest, or index of chunks, was put without an answer leaves its marker. It
 *       may still arrive, and a manifest without a marker would look like that of a checkpoint
 *       that lost its .metadata. A sweep removes both when the save is dead.
 *
 * Leases make O6 safe. Rank 0 puts its marker again every OBJECT_REFRESH_SECONDS. It sends the
 * commit only if it has sent a refresh, which succeeded, in the last OBJECT_LEASE_SECONDS of its
 * own monotonic clock. It repeats the commit for at most OBJECT_MAX_DEADLINE_SECONDS. A store
 * refuses a request that was signed OBJECT_SIGNATURE_SECONDS ago. And a sweep waits for longer than
 * all three together. So no commit of a dead save can arrive after it.
 */
#ifndef COMMIT_OBJECT_FORM_H
#define COMMIT_OBJECT_FORM_H

#include "commit/form.h"
#include "commit/object_layout.h"
#include "commit/referenced_files.h"
#include "object/object.h"

#define OBJECT_REFRESH_SECONDS 60u
#define OBJECT_LEASE_SECONDS 1800u
_Static_assert(OBJECT_LEASE_SECONDS + OBJECT_MAX_DEADLINE_SECONDS + OBJECT_SIGNATURE_SECONDS <
                   OBJECT_DEAD_SECONDS,
               "a commit of a dead save could arrive after the sweep");

struct object_keeper;

/* What this form keeps of one save on one rank. */
struct commit_objects {
    char tag[OBJECT_TAG_BYTES];        /* of .metadata when the save began; "": there was none */
    struct referenced_files old;       /* rank 0: what that .metadata names */
    uint64_t identity;                 /* rank 0: of the .metadata that it puts */
    bool is_conditional;               /* rank 0: the store obeys conditions */
    bool has_late_record;              /* rank 0: the index or the manifest may still arrive */
    struct object_keeper *keeper;      /* puts the marker, or "alive", again and again */
    char marker_tag[OBJECT_TAG_BYTES]; /* of a copy: the marker that it made; "": it made none */
};

/* ---- object_keys.c */

/* The key of ${name} below NAME: shards, .metadata, the manifest. */
void object_key(const struct commit *commit, const char *name, char key[OBJECT_KEY_BYTES]);
/* The key of one of the objects of the save itself: "pending", "outcome", ... */
void object_save_key(const struct commit *commit, const char *name, char key[OBJECT_KEY_BYTES]);
void object_rank_key(const struct commit *commit, const char *kind, uint32_t rank,
                     char key[OBJECT_KEY_BYTES]);
/* The client of the bucket. */
struct object_client *object_commit_client(const struct commit *commit);

/* Is the marker of rank 0 there? Also true if storage does not answer. */
bool object_has_marker(const struct commit *commit);
bool object_is_there(const struct commit *commit, const char *key);
/* The text of a failed rank, or of rank 0's outcome; "" if there is none. */
enum sidestep_status object_read_reason(const struct commit *commit, const char *key,
                                        struct sidestep_error *why);

/* ---- object_form.c, for object_copy.c */

/* The text of the marker, for people. */
void object_describe_marker(const struct commit *commit, char *text, size_t bytes);
/* Does the store obey the condition that the commit will have? It is probed with ${key}, which was
 * put with ${text}. */
bool object_keeps_conditions(const struct commit *commit, const char *key, const char *text);
/* EABORTED: the last refresh of the marker is too long ago to send a commit. */
enum sidestep_status object_check_lease(struct commit *commit, struct sidestep_error *err);

/* ---- object_votes.c: steps 3 and 4 (form.h) */

enum sidestep_status object_vote_yes(struct commit *commit, struct sidestep_error *err);
enum sidestep_status object_vote_for(struct commit *commit, uint32_t rank, uint32_t shards,
                                     struct sidestep_error *err);
void object_vote_no(struct commit *commit, const struct sidestep_error *why);
void object_retract(struct commit *commit);
enum sidestep_status object_count_votes(struct tally *tally, struct sidestep_error *err);
void object_read_failure(struct commit *commit, uint32_t rank, struct sidestep_error *why);

/* ---- object_learn.c: step 7 (form.h) */

enum sidestep_status object_check_aborted(struct commit *commit, struct sidestep_error *err);
enum commit_outcome object_poll_outcome(struct commit *commit, struct sidestep_error *err);
void object_remove_outcome(struct commit *commit);

/* ---- object_commit.c: step 6 */

/* Put .metadata, and find out the outcome. ${*outcome}: COMMITTED, ABORTED (EEXISTS: NAME holds
 * another checkpoint than when the save began) or UNKNOWN. */
enum sidestep_status object_commit_metadata(struct commit *commit, const struct buffer *metadata,
                                            enum commit_outcome *outcome,
                                            struct sidestep_error *err);
/* Put a record of the checkpoint, its index of chunks or its manifest; nothing if it is empty. */
enum sidestep_status object_put_record(struct commit *commit, enum file_name_kind kind,
                                       const struct buffer *bytes, struct sidestep_error *err);
/* May a put that ended with ${status} have been carried out, or be carried out later? */
bool object_is_unanswered(enum sidestep_status status);
/* The identity of a checkpoint with this .metadata, as commit_identity(). ${named}: as below. */
enum sidestep_status object_identify(const struct buffer *metadata, uint64_t *identity,
                                     struct referenced_files *named, struct sidestep_error *err);
/* Whose checkpoint is NAME now? ${tag} gets the tag of .metadata, "" if there is none. ${named}
 * gets what it names, nothing if it cannot be parsed; NULL: that is not wanted. */
enum sidestep_status object_read_identity(const struct commit *commit, uint64_t *identity,
                                          char tag[OBJECT_TAG_BYTES],
                                          struct referenced_files *named,
                                          struct sidestep_error *err);

/* ---- object_keeper.c */

/* Put ${key} with ${text} again every OBJECT_REFRESH_SECONDS, on a thread of its own. Call right
 * after the first put. */
enum sidestep_status object_keeper_start(struct object_client *client, const char *key,
                                         const char *text, struct clock *clock,
                                         struct object_keeper **out, struct sidestep_error *err);
/* Nanoseconds since the last successful put was sent. */
uint64_t object_keeper_age_ns(struct object_keeper *keeper);
void object_keeper_stop(struct object_keeper **keeper);

/* ---- object_sweep.c */

/* Delete the objects of save ${save_id} below the prefix of ${dir}, and abort its uploads, except
 * for its outcome; the marker last. Best effort. */
void object_sweep_save(struct store_dir *dir, const char *save_id);
/* The same, but the marker stays: another object of the save may still arrive (O9). */
void object_sweep_but_marker(struct store_dir *dir, const char *save_id);
/* Only the votes and the marker: all that .metadata would name stays. */
void object_sweep_votes(struct store_dir *dir, const char *save_id);
/* .metadata is that of ${save_id} now: delete the votes and the marker of this save, and what
 * ${old}, the .metadata which it has replaced, names. Best effort. */
void object_sweep_committed(struct store_dir *dir, const struct referenced_files *old,
                            const char *save_id);
/* Delete what dead saves left below the prefix of ${dir}, a checkpoint. ${save_id}: of its
 * .metadata a moment ago, NULL if it had none; this only saves requests. Best effort. */
void object_sweep_dead(struct store_dir *dir, const char *save_id);
/* The same, before a save. ETIMEDOUT: the store does not answer. All else is OK. */
enum sidestep_status object_sweep_before(struct store_dir *dir, const char *save_id,
                                         struct sidestep_error *err);
/* A sweep that reports. */
struct object_swept {
    bool dry_run; /* delete nothing */
    /* For each object and upload that went; ${name} is that below the prefix. */
    void (*removed)(void *context, const char *name, uint64_t bytes);
    void *context;
    bool is_young; /* an object of a save is there that may be alive */
};
void object_sweep_dead_reported(struct store_dir *dir, struct object_swept *swept);

#endif
