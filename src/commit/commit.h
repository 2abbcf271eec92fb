/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit.h -- how a checkpoint comes to exist.  Storage is the vote: a rank says yes by leaving a
 * mark beside its sealed shards; rank 0 (the coordinator, C) sees all marks, checks all shards,
 * and only then makes the checkpoint exist with one atomic rename.  Nothing here talks to other
 * ranks, so all of it can run in the background, and whether a checkpoint is complete can be
 * told from storage alone, by anyone, later.
 *
 *   1 begin    C   parent opened, form chosen, saving directory (or NAME) with C's locked mark
 *     join     R   the directory that C made, by polling; worked through by descriptor only
 *   2 shards   R   *.part, written by the engine
 *   3 seal     R   fsync(file), close, rename .part -> final, fsync(directory), then the yes
 *   4 count    C   every yes, then every shard: size, ids, footer, digest, tiling of all tensors
 *   5 publish  C   manifest, .metadata, fsync(directory), fsync(PARENT)
 *   6 commit   C   rename to NAME (swap), or, in turn with other saves, comparison of .metadata
 *                  with what it was at the beginning, and its exchange (in place); fsync(PARENT);
 *                  a look whether the path leads there; then the mark goes
 *   7 learn    R   what became of it, from names and ids
 *     abort    C   to the trash, with an outcome that says why
 *              R   in place: takes back what came too late for C to sweep it
 *
 * Invariants; tests/torture checks each, and that removing the step that keeps it is noticed:
 *   I1  NAME/.metadata names only files that are whole, durable and of one save.
 *   I2  The writer of a byte syncs that file, the maker of a name syncs that directory, before yes.
 *   I3  Only C makes and renames directories.
 *   I4  Nobody is told COMMITTED on the sight of a name whose fsync is not known, or of a
 *       checkpoint that is not at its path: C's mark stays until both are known.
 *   I5  After its yes a rank never says no; without all yeses C never publishes.
 *   I6  What is deleted carries a save id of ours that no reachable .metadata names, and its owner
 *       is dead (its lock is free) or is the deleter; or it was named by the .metadata that our own
 *       exchange took out.
 *   I7  A rename that reports an error may have happened: look whose directory is there.
 *   I8  A lock protects a file only while the name that others look at leads to that file.  So who
 *       takes a lock compares the two afterwards (lock_file.h), and begins again if they differ;
 *       and only the holder of such a lock removes or renames what it protects.
 *   I9  A save replaces only the checkpoint that NAME held when it began, or none.  In place, saves
 *       take turns for the comparison and the rename, by a lock in NAME.  Where that cannot be had
 *       (storage without locks, other programs), what the rename took out is compared instead: if
 *       it is another one, nobody is told COMMITTED, and nothing is deleted.
 *
 * A shard may be one that an earlier checkpoint has, under a second name (a hard link).  It counts
 * as written and synced only if C has seen it, file and footer, in a checkpoint that it committed.
 *
 * The swap form makes a new directory.  The in-place form serves whenever NAME exists already
 * (empty, an older checkpoint, a user's own files, a mount point, a symbolic link to one).
 */
#ifndef COMMIT_COMMIT_H
#define COMMIT_COMMIT_H

#include <stdatomic.h>

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "store/store.h"

#define COMMIT_POLL_MAX_MS 50u
#define COMMIT_PATH_BYTES 4096u

enum commit_outcome { COMMIT_UNDECIDED, COMMIT_COMMITTED, COMMIT_ABORTED, COMMIT_UNKNOWN };

struct commit;
/* Asked right before the rename that commits: may we still?  (A series: lock and incarnation.) */
struct commit_guard {
    enum sidestep_status (*check)(void *context, const struct commit *commit,
                                  struct sidestep_error *err);
    /* Asked now and then while C waits for votes: is there still something to wait for? */
    enum sidestep_status (*holds)(void *context, const struct commit *commit,
                                  struct sidestep_error *err);
    void *context;
};

/* Shards (but the first of each rank) of a checkpoint that C has committed: later ones may have
 * them, too.  Zeroed: none. */
struct commit_shared_file {
    uint32_t rank;
    uint32_t shard;
    uint64_t bytes;
    uint64_t device, inode;
    char origin[SAVE_ID_HEX];
    uint8_t footer_sha256[HASH_SHA256_BYTES];
};
struct commit_shared {
    struct commit_shared_file *files;
    size_t count, room;
};
void commit_shared_release(struct commit_shared *shared);

/* One save, as one rank sees it.  Used by one thread at a time. */
struct commit {
    /* Set before commit_open(). */
    struct store *store;
    struct clock *clock;
    uint32_t rank;
    uint32_t world_size;
    uint64_t timeout_ns; /* since the last progress seen */
    int64_t step;        /* -1: none */
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
    char naming[NAME_TEMPLATE_MAX_BYTES + 1]; /* as in the manifest */
    const struct commit_guard *guard;         /* NULL: none */
    const atomic_bool *cancelled;       /* the program has given the save up; NULL: it cannot */
    bool no_replace;                    /* refuse if NAME holds a checkpoint */
    const struct commit_shared *shared; /* C: what may be shared; NULL: nothing */

    /* Set by commit_open(). */
    char path[COMMIT_PATH_BYTES]; /* absolute */
    char name[FILE_NAME_BYTES];   /* last component of ${path} */
    struct store_dir *parent;
    struct store_dir *spare; /* a descriptor to give up when there is no other */

    /* Set by commit_begin() on C, from the agreement elsewhere. */
    char save_id[SAVE_ID_HEX];
    uint8_t save_id_bytes[SAVE_ID_BYTES];
    bool in_place;
    int64_t began_at;  /* C: seconds since 1970, for people */
    uint64_t previous; /* commit_identity() of NAME's .metadata at the start; 0: none */

    uint64_t layout_digest; /* set before commit_seal() and commit_contents() */
    uint64_t bytes;         /* C, by commit_collect_votes(): of all shards, shared ones, too */
    struct store_dir *dir;  /* the saving directory, or NAME */
    struct store_stat dir_identity;
    uint32_t shards;         /* of so many, this rank may have left files in ${dir} */
    struct store_file *mark; /* C: held, locked */
    bool published; /* C: manifest and .metadata are there, under their last or temporary names */
    bool is_volatile;
};

/* Hash of a save id, to tell checkpoints apart; never 0 for a checkpoint; 0 for none. */
uint64_t commit_identity(const char *save_id);
/* The identity of what NAME/.metadata names; 0 if there is none.  A .metadata that cannot be read
 * has an identity too (of its bytes). */
enum sidestep_status commit_read_identity(struct store_dir *dir, uint64_t *identity,
                                          struct sidestep_error *err);

/* Is what NAME holds nothing, or what was there when the save began, and may it be replaced?
 * EEXISTS: no; names both saves. */
enum sidestep_status commit_check_replaceable(struct commit *commit, struct sidestep_error *err);

/* Resolve ${path} and open its parent directory.  On every rank, on the caller's thread. */
enum sidestep_status commit_open(struct commit *commit, const char *path,
                                 struct sidestep_error *err);
/* C: choose the form, sweep what a dead save of the same target left, make directory and mark.  On
 * failure nothing of ours is left behind. */
enum sidestep_status commit_begin(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES],
                                  struct sidestep_error *err);
/* C: the same for what is no checkpoint (export.h): always a new directory. */
enum sidestep_status commit_begin_export(struct commit *commit,
                                         const uint8_t save_id[SAVE_ID_BYTES],
                                         struct sidestep_error *err);
/* R: open what C made; polls until the deadline.  ETIMEDOUT: "is ... shared between the hosts?" */
enum sidestep_status commit_join(struct commit *commit, struct sidestep_error *err);
/* Take the save id in its binary form. */
void commit_set_save_id(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES]);

/* Make shard ${shard} of this rank under its .part name. */
enum sidestep_status commit_shard_create(struct commit *commit, uint32_t shard, uint32_t flags,
                                         struct store_file **file, struct sidestep_error *err);
/* Instead: under its .part name, what is ${name} in ${dir}, a checkpoint.  ${*file} is open for
 * reading.  The bytes are that checkpoint's, too: nobody may write to them. */
enum sidestep_status commit_shard_link(struct commit *commit, uint32_t shard, const char *dir,
                                       const char *name, struct store_file **file,
                                       struct sidestep_error *err);
/* Take either back, so that it can be made anew. */
enum sidestep_status commit_shard_remove(struct commit *commit, uint32_t shard,
                                         struct sidestep_error *err);
/* What this rank's shards take on the medium now. */
uint64_t commit_shards_stored(const struct commit *commit);
/* The final name of it. */
void commit_shard_name(const struct commit *commit, uint32_t shard, char name[FILE_NAME_BYTES]);
/* Make ${file} (taken, also on failure) durable under its final name. */
enum sidestep_status commit_shard_seal(struct commit *commit, uint32_t shard,
                                       struct store_file *file, struct sidestep_error *err);
/* EABORTED once the program has given it up.  Before the yes of R, and until C commits. */
enum sidestep_status commit_check_cancelled(const struct commit *commit,
                                            struct sidestep_error *err);
/* All shards are sealed: make their names durable, and say yes. */
enum sidestep_status commit_vote_yes(struct commit *commit, struct sidestep_error *err);
/* Say no, with the reason.  Best effort. */
void commit_vote_no(struct commit *commit, const struct sidestep_error *why);
/* R, after its no, or after its yes if commit_check_aborted() says so then: in place, where no
 * trash takes them, its shards go, and its votes if C's sweep may have come too early for them. */
void commit_retract(struct commit *commit);
/* R, now and then while it writes: has C given up?  EABORTED with its reason if so. */
enum sidestep_status commit_check_aborted(struct commit *commit, struct sidestep_error *err);

/* C: wait for all votes, check all shards, and say what the checkpoint is. */
struct commit_contents {
    struct arena arena;
    struct footer *footers; /* one per file */
    struct manifest manifest;
    struct metadata metadata;    /* of its own arena */
    struct commit_shared shared; /* of this checkpoint */
};
void commit_contents_release(struct commit_contents *count);
enum sidestep_status commit_collect_votes(struct commit *commit, struct commit_contents *count,
                                          struct sidestep_error *err);
/* C: publish and commit.  ${*outcome} says what became of it; with a status other than OK it is
 * ABORTED (the caller should call commit_abort()) or UNKNOWN. */
enum sidestep_status commit_publish(struct commit *commit, struct commit_contents *count,
                                    enum commit_outcome *outcome, struct sidestep_error *err);
/* C: undo everything of this save, and tell the reason.  Best effort; leftovers are swept later. */
void commit_abort(struct commit *commit, const struct sidestep_error *why);

/* R: what became of it, now.  COMMIT_UNDECIDED: ask again.  ${err} gets C's reason if ABORTED. */
enum commit_outcome commit_poll_outcome(struct commit *commit, struct sidestep_error *err);
/* C: nobody needs the outcome file any more. */
void commit_remove_outcome(struct commit *commit);

/* Close all handles.  Changes nothing on storage. */
void commit_close(struct commit *commit);

/* ---- shared between the files of this folder ---- */

/* What the footers say together.  ${names} are the files'; they and the footers must outlive
 * ${out}.  EDISAGREE: they contradict each other. */
enum sidestep_status commit_metadata_from_footers(const struct footer *footers,
                                                  const char *const *names, size_t count,
                                                  struct metadata *out, struct sidestep_error *err);
/* The same, and the boxes of all of them must tile every tensor. */
enum sidestep_status commit_metadata_from_footers_checked(const struct footer *footers,
                                                          const char *const *names, size_t count,
                                                          struct metadata *out,
                                                          struct sidestep_error *err);
/* Does ${name} in the parent lead to the directory that ${commit} holds?  false also if storage
 * does not answer. */
bool commit_owns_name(const struct commit *commit, const char *name);
/* Right before the rename that commits: has the program given the save up, and what says
 * ${commit->guard}? */
enum sidestep_status commit_check_guard(struct commit *commit, struct sidestep_error *err);
/* After the commit: does ${path} still lead to ${dir}, in which ${holds} is?  EUNKNOWN: no; says
 * where that directory is, if it can be found.  Gives ${commit->spare} up. */
enum sidestep_status commit_check_path(struct commit *commit, struct store_dir *dir,
                                       const char *path, const char *holds,
                                       struct sidestep_error *err);
/* EABORTED: somebody has taken away what was being written. */
enum sidestep_status commit_report_removed(const struct commit *commit, struct sidestep_error *err);
/* EUNKNOWN, with what ${err} says as the reason: the commit is not durable; it may have happened.
 */
enum sidestep_status commit_report_unsynced(const struct commit *commit,
                                            struct sidestep_error *err);
enum sidestep_status commit_report_unsure(const struct commit *commit, struct sidestep_error *err);
/* In place: make .metadata.<id> the .metadata of NAME.  EEXISTS as above, and nothing has changed.
 * EUNKNOWN: it was done, but replaced another checkpoint than the one that was looked at.  Others:
 * it may have been done (I7). */
enum sidestep_status commit_exchange_metadata(struct commit *commit, struct sidestep_error *err);

/* The rest of what other folders use of this one. */
#include "commit/commit_marker.h"
#include "commit/lock_file.h"
#include "commit/name_list.h"
#include "commit/owner.h"
#include "commit/referenced_files.h"
#include "commit/small_file.h"
#include "commit/sweep.h"

#endif
