/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit.h -- the commit protocol: how a checkpoint comes to exist, whole or not at all.
 *
 * Storage carries the votes. A rank votes by creating an empty file beside its sealed shards. Rank
 * 0, the coordinator, waits for all votes and checks all shards. Only then does it make the
 * checkpoint exist, with one atomic rename, or on an object store with one conditional put. No
 * function here talks to other ranks, so the whole protocol can run in the background. Anybody can
 * tell later, from storage alone, whether a checkpoint is complete.
 *
 * In: a store, a path, a save id, the rank, and on rank 0 what the manifest says. Out: the
 * directory that shards are written to, and an outcome. A struct commit belongs to one save and is
 * used by one thread at a time: the caller's until the save has begun, then its background thread.
 *
 * There are three forms (form.h), each in a file that reads as the protocol. The swap form
 * (swap_form.c) makes a new directory. The in-place form (in_place_form.c) serves when NAME exists
 * already: an empty directory, an older checkpoint, a user's own files, a mount point, or a
 * symbolic link to one. On object stores, where nothing can be renamed or locked, the steps are
 * those of object_form.h.
 */
#ifndef COMMIT_COMMIT_H
#define COMMIT_COMMIT_H

/*
 * The protocol:
 *
 *   step       who     what
 *   1 begin    rank 0  open the parent, choose the form, make the saving directory (or take NAME),
 *                      create and lock the pending marker
 *     join     others  poll for the directory of rank 0; from then on use its descriptor only
 *   2 shards   all     save/ writes *.part files, and the extra files
 *   3 seal     all     fsync(file), close, rename .part -> final, fsync(directory), then vote
 *   4 collect  rank 0  wait for every vote; check every shard: size, ids, footer, layout digest,
 *                      and that the boxes tile every tensor
 *   5 publish  rank 0  write the manifest; in the swap form give the extra files their names;
 *                      then .metadata, fsync(directory), fsync(PARENT)
 *   6 commit   rank 0  swap form: rename the saving directory to NAME.
 *                      in-place form: take turns with other saves; compare .metadata with what it
 *                      was at the beginning, and exchange it.
 *                      both: fsync(PARENT), check that the path leads there, remove the marker
 *   7 learn    others  read the outcome from names and ids
 *     abort    rank 0  write an outcome file with the reason, and move the save to the trash
 *              others  in place: remove files that they made too late for rank 0 to sweep them
 *
 * Invariants. tests/torture checks each one, and checks that it notices when a step that keeps one
 * is left out.
 *   I1  NAME/.metadata references only files that are whole, durable and of one save.
 *   I2  Before a rank votes, it has synced each file that it wrote, and the directory of each name
 *       that it made. The footer of its first shard lists its extra files, with their hashes.
 *   I3  Only rank 0 makes and renames directories.
 *   I4  No rank reports COMMITTED for a name whose fsync is not known to have succeeded, or for a
 *       checkpoint that is not at its path. The marker of rank 0 stays until both are known.
 *   I5  Once it has tried to vote, a rank never reports a failure of its own, and deletes nothing,
 *       unless rank 0's outcome says that the save was aborted. Without all votes rank 0 never
 *       publishes.
 *   I6  A save or a sweep deletes a file only in one of three cases. Its name contains a save id of
 *       sidestep that no reachable .metadata references, and its owner is dead (its lock is free,
 *       or the lock of its series is ours) or is the deleter. Or the .metadata that our own
 *       exchange took out referenced it. Or such a save's manifest lists it as an extra file, and
 *       it has the same bytes. Who deletes a checkpoint: root/deletion.h.
 *   I7  A rename that reports an error may have happened. So it is checked which directory has the
 *       name.
 *   I8  A lock protects a file only while the name that others look at leads to that file. So
 *       whoever takes a lock compares the two afterwards (lock_file.h), and starts over if they
 *       differ. Only the holder of such a lock removes or renames what it protects.
 *   I9  A save replaces only the checkpoint that NAME held when the save began, or none. In place,
 *       saves take turns for the comparison and the rename, by a lock in NAME. The lock can be
 *       missing (storage without locks) or unknown to another program. So the save also compares
 *       what the rename took out. If that is another checkpoint, no rank reports COMMITTED, and
 *       nothing is deleted.
 *
 * A shard may be a hard link to a shard of an earlier checkpoint. It counts as written and synced
 * only if rank 0 has seen it, file and footer, in a checkpoint that rank 0 committed.
 */

#include <stdatomic.h>

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "store/store.h"

/*
 * A part. Where not all ranks see one directory, the ranks that see the same one are a group
 * (struct commit_group), and commit what they write as a part of a checkpoint: by the swap form,
 * with the ranks of the group as voters, and the lowest of them in the place of rank 0. The
 * manifest of a part says so, and there is no .metadata: nobody takes it for a checkpoint. A save
 * is whole if each rank of the world is in such a part. That is decided elsewhere
 * (series/series_whole.c).
 */

#define COMMIT_POLL_MAX_MS 500u
#define COMMIT_PATH_BYTES 4096u

enum commit_outcome { COMMIT_UNDECIDED, COMMIT_COMMITTED, COMMIT_ABORTED, COMMIT_UNKNOWN };

struct commit;
struct commit_objects; /* object_form.h */
/* Callbacks by which a series can stop a save. check() runs right before the rename that commits:
 * does the series still hold its lock, and is its incarnation current? */
struct commit_guard {
    enum sidestep_status (*check)(void *context, const struct commit *commit,
                                  struct sidestep_error *err);
    /* Called repeatedly while rank 0 waits for votes. EABORTED: no more votes will come. */
    enum sidestep_status (*holds)(void *context, const struct commit *commit,
                                  struct sidestep_error *err);
    void *context;
};

/* The ranks that see one directory, where others see another one. */
struct commit_group {
    const uint32_t *ranks; /* ascending; the first one coordinates */
    uint32_t count;        /* 0: all ranks see one directory, and a save is whole */
    uint32_t groups;       /* of the world */
};

/* The shards of a checkpoint that rank 0 has committed, without the first one of each rank. A later
 * save may link to them. Zeroed: none. */
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
    size_t count, capacity;
};
void commit_shared_release(struct commit_shared *shared);

/* What is asked of a save. Set before commit_open(), and constant from then on. */
struct commit_request {
    uint64_t timeout_ns; /* counted from the last progress seen */
    int64_t step;        /* -1: none */
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
    char naming[NAME_TEMPLATE_MAX_BYTES + 1]; /* as in the manifest */
    const struct commit_guard *guard;         /* NULL: none */
    const atomic_bool *cancelled; /* set when the program cancels the save; NULL: it cannot */
    bool no_replace;              /* refuse if NAME holds a checkpoint */
    bool resumes; /* go on in the saving directory that a dead process left, if any: an export, or
                     files that were saved elsewhere. What fails stays, unless the save is aborted.
                     Without ${no_replace}, whoever asks removes what NAME holds when ${guard} is
                     asked before the rename. In a bucket, the commit replaces it, as ever */
    const struct commit_shared *shared; /* rank 0: shards that may be linked; NULL: none */
    uint64_t *checked; /* rank 0: which directory passed storage_check() last; NULL: not kept */
};

/* What the forms on file systems keep of it, as struct commit_objects is what that on object stores
 * keeps. */
struct commit_files {
    struct store_dir *spare; /* closed to free a descriptor when none is left */
    bool is_export;          /* set by commit_begin_export() */
    bool is_volatile;
    bool in_place; /* set by commit_begin(); on other ranks by the caller, from the agreement */
    struct store_file *marker; /* rank 0: the pending marker, held locked */
};

/* The state of one save on one rank. Used by one thread at a time. */
struct commit {
    /* Set before commit_open(). */
    struct store *store;
    struct clock *clock;
    uint32_t rank;
    uint32_t world_size;
    struct commit_group group; /* its ranks outlive the commit */
    struct commit_request request;

    /* Set by commit_open(). */
    char path[COMMIT_PATH_BYTES]; /* absolute */
    char name[FILE_NAME_BYTES];   /* last component of ${path} */
    struct store_dir *parent;
    struct commit_files files;
    struct commit_objects *objects; /* of the form on object stores; or NULL */

    /* Rank 0: set by commit_begin(). Other ranks: set by the caller, from the agreement. */
    char save_id[SAVE_ID_HEX];
    uint8_t save_id_bytes[SAVE_ID_BYTES];
    int64_t began_at;  /* rank 0: seconds since 1970, for messages */
    uint64_t previous; /* commit_identity() of NAME's .metadata at the start; 0: none */

    uint64_t layout_digest; /* set before commit_shard_seal() and commit_collect_votes() */
    uint64_t bytes;        /* rank 0: set by commit_collect_votes(); all shards, with linked ones */
    struct store_dir *dir; /* the saving directory, or NAME */
    struct store_stat dir_identity;
    uint32_t shards; /* this rank may have left files of shards below this number in ${dir} */
    uint32_t extras; /* ... and extra files below this number */
};

/* The ranks that vote, and the one that counts the votes. All that is said of rank 0 in this folder
 * is said of that one. */
static inline uint32_t commit_voter_count(const struct commit *commit)
{
    return commit->group.count != 0 ? commit->group.count : commit->world_size;
}
static inline uint32_t commit_voter(const struct commit *commit, uint32_t i)
{
    return commit->group.count != 0 ? commit->group.ranks[i] : i;
}
static inline bool commit_is_coordinator(const struct commit *commit)
{
    return commit->rank == commit_voter(commit, 0);
}

/* A hash of a save id, which tells checkpoints apart. Never 0, because 0 means "no checkpoint". */
uint64_t commit_identity(const char *save_id);
/* Set ${*identity} to that of the checkpoint whose .metadata is in ${dir}; 0 if there is none. A
 * .metadata that cannot be parsed has an identity, too: a hash of
 * its bytes. */
enum sidestep_status commit_read_identity(struct store_dir *dir, uint64_t *identity,
                                          struct sidestep_error *err);

/* May the save replace what NAME holds now? Only if that is nothing, or the checkpoint that was
 * there when the save began (and replacing is allowed). EEXISTS: no; the message names both
 * saves. */
enum sidestep_status commit_check_replaceable(struct commit *commit, struct sidestep_error *err);

/* Resolve ${path} and open its parent directory. Every rank calls it, on the caller's thread. */
enum sidestep_status commit_open(struct commit *commit, const char *path,
                                 struct sidestep_error *err);
/* Rank 0: choose the form, sweep what a dead save of the same target left, make the directory and
 * the pending marker. On failure it removes what it made. */
enum sidestep_status commit_begin(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES],
                                  struct sidestep_error *err);
/* Rank 0: the same for an export, which is not a checkpoint (export.h). Always a new directory. */
enum sidestep_status commit_begin_export(struct commit *commit,
                                         const uint8_t save_id[SAVE_ID_BYTES],
                                         struct sidestep_error *err);
/* Other ranks: open the directory that rank 0 made. Polls until the deadline. ETIMEDOUT: it did not
 * appear; the message asks whether the hosts share the storage. */
enum sidestep_status commit_join(struct commit *commit, struct sidestep_error *err);
/* Other ranks, right after rank 0 has begun: find out, within ${limit_ns}, whether this rank sees
 * what rank 0 made. If it is ${*visible}, this rank has joined. */
enum sidestep_status commit_check_visible(struct commit *commit, uint64_t limit_ns, bool *visible,
                                          struct sidestep_error *err);
/* Set the save id, from its binary form. */
void commit_set_save_id(struct commit *commit, const uint8_t save_id[SAVE_ID_BYTES]);

/* Create shard ${shard} of this rank under its .part name. */
enum sidestep_status commit_shard_create(struct commit *commit, uint32_t shard, uint32_t flags,
                                         struct store_file **file, struct sidestep_error *err);
/* Instead, link shard ${shard} to file ${name} of the checkpoint ${dir}, under the .part name.
 * ${*file} is open for reading. Both checkpoints share the bytes, so nobody may write to them. */
enum sidestep_status commit_shard_link(struct commit *commit, uint32_t shard, const char *dir,
                                       const char *name, struct store_file **file,
                                       struct sidestep_error *err);
/* Remove the .part file of a created or linked shard, so that it can be made again. */
enum sidestep_status commit_shard_remove(struct commit *commit, uint32_t shard,
                                         struct sidestep_error *err);
/* Does storage show the marker of rank 0, or does it not answer? */
bool commit_is_pending(const struct commit *commit);
/* Bytes that this rank's shards occupy on storage now. */
uint64_t commit_shards_stored(const struct commit *commit);
/* Write extra file ${number} of this rank, durably but for its name, which the vote makes durable.
 * Call it before shard 0 is sealed, whose footer lists the file. */
enum sidestep_status commit_extra_write(struct commit *commit, uint32_t number, const void *bytes,
                                        size_t length, struct sidestep_error *err);
/* The same of the caller's file ${path}, which nobody changes until the save has ended. It becomes
 * the extra file by a second name (a hard link), or a copy if there can be none, or if it has other
 * names already. ${bytes} is what commit_taken_bytes() has found. EMISMATCH: it has changed. */
enum sidestep_status commit_extra_take(struct commit *commit, uint32_t number, const char *path,
                                       uint64_t bytes, uint8_t sha256[HASH_SHA256_BYTES],
                                       struct sidestep_error *err);
enum sidestep_status commit_taken_bytes(const struct commit *commit, const char *path,
                                        uint64_t *bytes, struct sidestep_error *err);
/* The final name of shard ${shard} of this rank. */
void commit_shard_name(const struct commit *commit, uint32_t shard, char name[FILE_NAME_BYTES]);
/* Make ${file} durable under its final name. Closes ${file}, also on failure. */
enum sidestep_status commit_shard_seal(struct commit *commit, uint32_t shard,
                                       struct store_file *file, struct sidestep_error *err);
/* EABORTED once the program has cancelled the save. A rank asks before it votes, and rank 0 until
 * it commits. */
enum sidestep_status commit_check_cancelled(const struct commit *commit,
                                            struct sidestep_error *err);
/* EABORTED, too, once the guard of the save says that nobody waits for it any more. */
enum sidestep_status commit_check_wanted(const struct commit *commit, struct sidestep_error *err);
/* Vote, after all shards are sealed: make their names durable, and create the vote file. On ranks
 * other than 0, an error means that no vote was tried (I5). */
enum sidestep_status commit_vote_yes(struct commit *commit, struct sidestep_error *err);
/*
 * A process that puts the files of other ranks, too, which were saved elsewhere (mirror/): the
 * names of shard ${shard} or extra file ${number} of rank ${rank}, while it is written and when it
 * is sealed; seal it; and when all files of a rank are sealed, vote in its place. Of extra files
 * those are enough that the checkpoint will have. An error means that the vote may be there: the
 * files are whole, so that does no harm. A file or a vote that an earlier process left counts.
 */
void commit_names_for(const struct commit *commit, uint32_t rank, uint32_t shard,
                      char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES]);
void commit_extra_names_for(const struct commit *commit, uint32_t rank, uint32_t number,
                            char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES]);
enum sidestep_status commit_seal_for(struct commit *commit, const char *written, const char *final,
                                     struct store_file *file, struct sidestep_error *err);
enum sidestep_status commit_vote_for(struct commit *commit, uint32_t rank, uint32_t shards,
                                     struct sidestep_error *err);
/* Report that this rank failed, with the reason. Best effort. */
void commit_vote_no(struct commit *commit, const struct sidestep_error *why);
/* Other ranks, in the in-place form, where no trash takes their files. Call it after
 * commit_vote_no(), or after the vote if commit_check_aborted() then returns EABORTED. Removes
 * the rank's shards, and its votes if rank 0 may have swept before they appeared. */
void commit_retract(struct commit *commit);
/* Other ranks, repeatedly while they write: has rank 0 given up? EABORTED with its reason if so. */
enum sidestep_status commit_check_aborted(struct commit *commit, struct sidestep_error *err);

/* What rank 0 knows of the checkpoint when all votes are counted and all shards are checked. */
struct commit_contents {
    struct arena arena; /* the rows of the manifest */
    struct manifest manifest;
    struct metadata metadata;    /* has an arena of its own */
    struct commit_shared shared; /* those of this checkpoint */
    /* Extra files that are not in the manifest, because a lower rank had one of the same name. */
    struct extra_file *dropped;
    size_t dropped_count, dropped_capacity;
};
void commit_contents_release(struct commit_contents *contents);
enum sidestep_status commit_collect_votes(struct commit *commit, struct commit_contents *contents,
                                          struct sidestep_error *err);
/* Rank 0: publish and commit. ${*outcome} is COMMITTED if the status is OK. Otherwise it is ABORTED
 * (then the caller should call commit_abort()) or UNKNOWN. */
enum sidestep_status commit_publish(struct commit *commit, struct commit_contents *contents,
                                    enum commit_outcome *outcome, struct sidestep_error *err);
/* Rank 0: undo this save, and leave the reason for the other ranks. Best effort: a later sweep
 * removes what is left. */
void commit_abort(struct commit *commit, const struct sidestep_error *why);

/* Other ranks: the outcome as storage shows it now. COMMIT_UNDECIDED: ask again. If ABORTED, ${err}
 * gets the reason that rank 0 left. */
enum commit_outcome commit_poll_outcome(struct commit *commit, struct sidestep_error *err);
/* How long such a rank pauses before it asks again: longer if it has waited longer, and if more
 * ranks ask. */
uint64_t commit_poll_pause_ms(const struct commit *commit, uint64_t waited_ms);
/* Rank 0: remove the outcome file, when no rank needs it any more. */
void commit_remove_outcome(struct commit *commit);

/* Close all handles.  Changes nothing on storage. */
void commit_close(struct commit *commit);

/* ---- shared between the files of this folder ---- */

/* Complete the manifest, and encode it and .metadata. */
enum sidestep_status commit_encode_records(struct commit_contents *contents,
                                           struct buffer *metadata, struct buffer *manifest,
                                           struct sidestep_error *err);
/* Does ${name} in the parent lead to the directory that ${commit} holds? False also if storage does
 * not answer. */
bool commit_owns_name(const struct commit *commit, const char *name);
/* Call it right before the rename that commits: has the program cancelled the save, and does
 * ${commit->request.guard} allow it? */
enum sidestep_status commit_check_guard(struct commit *commit, struct sidestep_error *err);
/* After the commit, where no lock keeps others away: does the series still allow it? EUNKNOWN: it
 * was taken over, maybe before the commit. */
enum sidestep_status commit_check_still_held(struct commit *commit, enum commit_outcome *outcome,
                                             struct sidestep_error *err);
/* After the commit: does ${path} still lead to ${dir}, which contains the file ${holds}? EUNKNOWN:
 * no; the message says where that directory is, if it can be found. Closes ${commit->files.spare}.
 */
enum sidestep_status commit_check_path(struct commit *commit, struct store_dir *dir,
                                       const char *path, const char *holds,
                                       struct sidestep_error *err);
/* EABORTED: another process or a person renamed or removed what was being written. */
enum sidestep_status commit_report_removed(const struct commit *commit, struct sidestep_error *err);
/* EUNKNOWN, with the message of ${err} as the reason. unsynced: the commit happened, but may not be
 * durable. unsure: the commit may have happened. */
enum sidestep_status commit_report_unsynced(const struct commit *commit,
                                            struct sidestep_error *err);
enum sidestep_status commit_report_unsure(const struct commit *commit, struct sidestep_error *err);
/* In place: make .metadata.<id> the .metadata of NAME. EEXISTS: NAME holds another checkpoint than
 * at the beginning, and nothing has changed. EUNKNOWN: the exchange happened, but took out another
 * checkpoint than the one compared. Other errors: it may have happened (I7). */
enum sidestep_status commit_exchange_metadata(struct commit *commit, struct sidestep_error *err);

/* The headers of this folder that other folders use. */
#include "commit/commit_marker.h"
#include "commit/commit_metadata.h"
#include "commit/extra_files.h"
#include "commit/extra_paths.h"
#include "commit/lock_file.h"
#include "commit/name_list.h"
#include "commit/named_dir.h"
#include "commit/object_copy.h"
#include "commit/object_export.h"
#include "commit/object_delete.h"
#include "commit/object_layout.h"
#include "commit/referenced_files.h"
#include "commit/refresh_names.h"
#include "commit/small_file.h"
#include "commit/storage_check.h"
#include "commit/sweep.h"

#endif
