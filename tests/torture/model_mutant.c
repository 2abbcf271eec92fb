/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_mutant.c -- the table of mutants: each leaves out one step of the protocol; see model.h. If
 * no workload detects a mutant, its step is a second defence, or is needed for something outside
 * the model: the table says which.
 *
 * tests/unit/beside_test.c tests the steps that protect from programs that ignore the protocol: the
 * path of NAME must still lead to our directory; a trash must have no other name; files that
 * .metadata names stay; an unknown outcome prevents deletion; and each operation of a series checks
 * whether its incarnation has ended.
 */
#include "model.h"

#include "base/owned.h"

#define ALL_RANKS -1

#define WITHOUT_REQUEST(name, request, workload, spare)                                            \
    {                                                                                              \
        name, MUTANT_REQUEST, PHASE_OTHER, 0, FILE_NAME_NONE, ALL_RANKS, workload, spare, request  \
    }
#define WITHOUT(name, point, workload, spare)                                                      \
    {                                                                                              \
        name, MUTANT_POINT, PHASE_OTHER, 0, FILE_NAME_NONE, ALL_RANKS, workload, spare, point      \
    }

const struct mutant model_mutants[] = {
    /* ---- before the vote */
    {"fsync of a shard", MUTANT_FILE_SYNC, PHASE_SHARD, 0, FILE_NAME_PART, ALL_RANKS, "fresh", NULL,
     NULL},
    {"giving up after a failed fsync", MUTANT_RETRY_SYNC, PHASE_SHARD, 0, FILE_NAME_NONE, ALL_RANKS,
     "fresh", NULL, NULL},
    {"fsync of the directory before rank 1's vote", MUTANT_DIR_SYNC, PHASE_VOTE, 0, FILE_NAME_NONE,
     1, "own-sync", NULL, NULL},
    {"fsync of the directory before rank 0's vote", MUTANT_DIR_SYNC, PHASE_VOTE, 0, FILE_NAME_NONE,
     0, "own-sync", "its sync at publish covers its own names", NULL},
    {"waiting with the vote until the shard is sealed", MUTANT_EARLY_VOTE, PHASE_SHARD, 0,
     FILE_NAME_NONE, 1, "fresh-2",
     "rank 0 opens a shard under its final name, which it gets after its fsync", NULL},
    {"leaving a vote that reported an error", MUTANT_TAKEN_BACK, PHASE_VOTE, 0, FILE_NAME_NONE,
     ALL_RANKS, "fresh-2", NULL, NULL},
    {"leaving what a vote in NAME stands for", MUTANT_TAKEN_BACK, PHASE_VOTE, 0, FILE_NAME_NONE,
     ALL_RANKS, "over-swap-2", NULL, NULL},
    {"fsync of a file that was sent", MUTANT_FILE_SYNC, PHASE_SHARD, 0, FILE_NAME_PART, ALL_RANKS,
     "sent-2", NULL, NULL},
    {"fsync of the directory before a vote in the place of rank 1", MUTANT_DIR_SYNC, PHASE_VOTE, 0,
     FILE_NAME_NONE, 1, "sent-own-sync", NULL, NULL},
    {"keeping what is replaced until all have voted", MUTANT_EARLY_REMOVE, PHASE_BEGIN, 0,
     FILE_NAME_NONE, ALL_RANKS, "sent-over-votes-no", NULL, NULL},
    /* ---- collect */
    {"checking the shards", MUTANT_UNCHECKED_SHARDS, PHASE_COLLECT, 0, FILE_NAME_NONE, ALL_RANKS,
     "foreign-shard", NULL, NULL},
    {"comparing the layouts of the shards", MUTANT_ANY_LAYOUT, PHASE_COLLECT, 0, FILE_NAME_NONE,
     ALL_RANKS, "other-layout", NULL, NULL},
    /* ---- publish and commit, swap form */
    {"fsync of the manifest", MUTANT_FILE_SYNC, PHASE_PUBLISH, 0, FILE_NAME_MANIFEST, ALL_RANKS,
     "fresh", NULL, NULL},
    {"fsync of .metadata", MUTANT_FILE_SYNC, PHASE_PUBLISH, 0, FILE_NAME_METADATA_TMP, ALL_RANKS,
     "fresh", NULL, NULL},
    {"fsync of the saving directory", MUTANT_DIR_SYNC, PHASE_PUBLISH, 1, FILE_NAME_NONE, ALL_RANKS,
     "fresh", NULL, NULL},
    {"fsync of the parent before the rename", MUTANT_PARENT_SYNC, PHASE_PUBLISH, 1, FILE_NAME_NONE,
     ALL_RANKS, "fresh",
     "the sync after the rename covers what it moved; this one fails while the save can still be "
     "aborted",
     NULL},
    {"fsync of the parent after the rename", MUTANT_PARENT_SYNC, PHASE_PUBLISH, 2, FILE_NAME_NONE,
     ALL_RANKS, "fresh", NULL, NULL},
    /* ---- a part */
    {"fsync of the manifest of a part", MUTANT_FILE_SYNC, PHASE_PUBLISH, 0, FILE_NAME_MANIFEST,
     ALL_RANKS, "part", NULL, NULL},
    {"fsync of the saving directory of a part", MUTANT_DIR_SYNC, PHASE_PUBLISH, 1, FILE_NAME_NONE,
     ALL_RANKS, "part", NULL, NULL},
    {"fsync of the parent after the rename of a part", MUTANT_PARENT_SYNC, PHASE_PUBLISH, 2,
     FILE_NAME_NONE, ALL_RANKS, "part", NULL, NULL},
    {"looking for the marker of a part", MUTANT_HIDE_MARKER, PHASE_LEARN, 0, FILE_NAME_NONE,
     ALL_RANKS, "part-2", NULL, NULL},
    /* ---- in place */
    {"fsync of NAME before the exchange", MUTANT_DIR_SYNC, PHASE_PUBLISH, 1, FILE_NAME_NONE,
     ALL_RANKS, "over-swap", NULL, NULL},
    {"fsync of NAME after the exchange", MUTANT_DIR_SYNC, PHASE_PUBLISH, 2, FILE_NAME_NONE,
     ALL_RANKS, "over-swap", NULL, NULL},
    {"fsync of the parent of an existing NAME", MUTANT_PARENT_SYNC, PHASE_PUBLISH, 1,
     FILE_NAME_NONE, ALL_RANKS, "dir-appears", NULL, NULL},
    {"fsync of NAME after the clean-up", MUTANT_DIR_SYNC, PHASE_PUBLISH, 3, FILE_NAME_NONE,
     ALL_RANKS, "over-swap", "the next save sweeps what comes back", NULL},
    {"fsync of a NAME that appeared, before .metadata", MUTANT_DIR_SYNC, PHASE_PUBLISH, 3,
     FILE_NAME_NONE, ALL_RANKS, "file-appears", NULL, NULL},
    {"fsync of a NAME that appeared, after .metadata", MUTANT_DIR_SYNC, PHASE_PUBLISH, 4,
     FILE_NAME_NONE, ALL_RANKS, "file-appears", NULL, NULL},
    {"refusing to replace a .metadata", MUTANT_PLAIN_RENAME, PHASE_PUBLISH, 0, FILE_NAME_NONE,
     ALL_RANKS, "zombie-dir", NULL, NULL},
    {"comparing what is replaced with what was there", MUTANT_ANY_PREVIOUS, PHASE_PUBLISH, 0,
     FILE_NAME_NONE, ALL_RANKS, "race-over", NULL, NULL},
    {"comparing what has appeared with what was there", MUTANT_ANY_PREVIOUS, PHASE_PUBLISH, 0,
     FILE_NAME_NONE, ALL_RANKS, "race-fresh", NULL, NULL},
    {"the lock around comparison and exchange", MUTANT_NO_LOCK, PHASE_PUBLISH, 0, FILE_NAME_NONE,
     ALL_RANKS, "race-over", NULL, NULL},
    {"looking at what the exchange took out", MUTANT_HIDE_OLD, PHASE_PUBLISH, 0, FILE_NAME_NONE,
     ALL_RANKS, "race-over-no-locks", NULL, NULL},
    /* ---- learn */
    {"looking for the marker", MUTANT_HIDE_MARKER, PHASE_LEARN, 0, FILE_NAME_NONE, ALL_RANKS,
     "fresh-2", NULL, NULL},
    {"looking for the marker in NAME", MUTANT_HIDE_MARKER, PHASE_LEARN, 0, FILE_NAME_NONE,
     ALL_RANKS, "over-swap-2", NULL, NULL},
    {"telling another save in NAME from none", MUTANT_ANY_ID, PHASE_LEARN, 0, FILE_NAME_NONE,
     ALL_RANKS, "learns-late", NULL, NULL},
    {"telling a checkpoint that was deleted from none", MUTANT_ANY_ID, PHASE_LEARN, 0,
     FILE_NAME_NONE, ALL_RANKS, "learns-deleted", NULL, NULL},
    {"telling a checkpoint that was deleted from none in place", MUTANT_ANY_ID, PHASE_LEARN, 0,
     FILE_NAME_NONE, ALL_RANKS, "learns-deleted-in-place", NULL, NULL},
    {"telling a checkpoint that was deleted from none in a bucket", MUTANT_ANY_ID, PHASE_LEARN, 0,
     FILE_NAME_NONE, ALL_RANKS, "bucket-learns-deleted", NULL, NULL},
    /* ---- sweep what dead processes left */
    {"the locks of markers", MUTANT_NO_LOCK, PHASE_BEGIN, 0, FILE_NAME_NONE, ALL_RANKS, "race-over",
     NULL, NULL},
    {"checking that a marker that was made has its name", MUTANT_ANY_FILE, PHASE_BEGIN, 1,
     FILE_NAME_NONE, ALL_RANKS, "sweeps", NULL, NULL},
    {"checking that a marker of others has its name", MUTANT_ANY_FILE, PHASE_BEGIN, 2,
     FILE_NAME_NONE, ALL_RANKS, "sweeps",
     "it takes more schedules than there is time for; tests/unit/lock_file_test.c has one of them",
     NULL},
    {"fsync of NAME before it is swept", MUTANT_DIR_SYNC, PHASE_BEGIN, 1, FILE_NAME_NONE, ALL_RANKS,
     "over-swap", NULL, NULL},
    {"fsync of the parent before NAME is swept", MUTANT_PARENT_SYNC, PHASE_BEGIN, 0, FILE_NAME_NONE,
     ALL_RANKS, "successor", NULL, NULL},
    /* ---- abort and delete */
    {"fsync of the parent in an abort", MUTANT_PARENT_SYNC, PHASE_ABORT, 1, FILE_NAME_NONE,
     ALL_RANKS, "votes-no", "neither name of what is removed is a checkpoint's", NULL},
    {"fsync of the parent in a delete", MUTANT_PARENT_SYNC, PHASE_DELETE, 1, FILE_NAME_NONE,
     ALL_RANKS, "series", NULL, NULL},
    {"fsync of a trash without .metadata", MUTANT_DIR_SYNC, PHASE_DELETE, 1, FILE_NAME_NONE,
     ALL_RANKS, "series", "its rename to the trash is durable, and nobody looks into one", NULL},
    {".metadata first out of a trash of the dead", MUTANT_METADATA_LAST, PHASE_FENCE, 0,
     FILE_NAME_NONE, ALL_RANKS, "delete-own-sync", NULL, NULL},
    {"fsync of a trash of the dead without .metadata", MUTANT_DIR_SYNC, PHASE_FENCE, 0,
     FILE_NAME_NONE, ALL_RANKS, "delete-own-sync", NULL, NULL},
    /* ---- resume */
    {"fsync of the parent of a new series", MUTANT_DIR_SYNC, PHASE_LEASE, 1, FILE_NAME_NONE,
     ALL_RANKS, "series-root", NULL, NULL},
    {"fsync of the root after the fence", MUTANT_PARENT_SYNC, PHASE_FENCE, 1, FILE_NAME_NONE,
     ALL_RANKS, "series",
     "what is swept loses its .metadata first, durably; and a zombie that outlives the power loss "
     "of its storage is not modelled",
     NULL},
    {"fsync of the root before the choice", MUTANT_PARENT_SYNC, PHASE_CHOOSE, 1, FILE_NAME_NONE,
     ALL_RANKS, "series", NULL, NULL},
    {"fsync of what was chosen", MUTANT_DIR_SYNC, PHASE_CHOOSE, 1, FILE_NAME_NONE, ALL_RANKS,
     "series-dir", NULL, NULL},
    {"the check of the incarnation before the commit", MUTANT_NO_GUARD, PHASE_OTHER, 0,
     FILE_NAME_NONE, ALL_RANKS, "zombie", NULL, NULL},
    /* ---- small files */
    {"fsync of a small file", MUTANT_FILE_SYNC, PHASE_SHARD, 0, FILE_NAME_EXTRA, ALL_RANKS, "files",
     NULL, NULL},
    {"writing small files before the vote", MUTANT_LATE_FILES, PHASE_OTHER, 0, FILE_NAME_NONE,
     ALL_RANKS, "files-2",
     "rank 0 misses the file; to find it between its write and its fsync takes more schedules than "
     "there is time for",
     NULL},
    {"listing small files in the footer", MUTANT_UNLISTED, PHASE_OTHER, 1, FILE_NAME_NONE,
     ALL_RANKS, "files", NULL, NULL},
    {"listing small files in the manifest", MUTANT_UNLISTED, PHASE_OTHER, 2, FILE_NAME_NONE,
     ALL_RANKS, "files", NULL, NULL},
    {"comparing the sizes of small files", MUTANT_ANY_SIZE, PHASE_COLLECT, 0, FILE_NAME_NONE, 0,
     "files-short", NULL, NULL},
    {"removing small files that are not taken", MUTANT_KEEP_EXTRA, PHASE_PUBLISH, 0, FILE_NAME_NONE,
     ALL_RANKS, "files-2",
     "the sweep of the save that replaces this one removes them; tests/unit/extra_ranks_test.c "
     "counts them",
     NULL},
    {"fsync of the manifest's name before small files get theirs", MUTANT_DIR_SYNC, PHASE_PUBLISH,
     1, FILE_NAME_NONE, ALL_RANKS, "files", NULL, NULL},
    {"giving small files their names", MUTANT_NO_NAMES, PHASE_PUBLISH, 0, FILE_NAME_NONE, ALL_RANKS,
     "files", NULL, NULL},
    {"fsync of a directory of small files", MUTANT_DIR_SYNC, PHASE_PUBLISH, 2, FILE_NAME_NONE,
     ALL_RANKS, "files",
     "the simulated disk makes a rename between two directories durable with a sync of either",
     NULL},
    {"links to small files in NAME", MUTANT_NO_LINKS, PHASE_OTHER, 0, FILE_NAME_NONE, ALL_RANKS,
     "files-over-swap", NULL, NULL},
    {"removing the names of replaced small files", MUTANT_KEEP_NAMES, PHASE_OTHER, 0,
     FILE_NAME_NONE, ALL_RANKS, "files-over-swap", NULL, NULL},
    {"removing the links to replaced small files", MUTANT_KEEP_NAMES, PHASE_OTHER, 0,
     FILE_NAME_NONE, ALL_RANKS, "files-over-in-place", NULL, NULL},
    {"fsync of NAME without the names of replaced small files", MUTANT_DIR_SYNC, PHASE_PUBLISH, 3,
     FILE_NAME_NONE, ALL_RANKS, "files-over-in-place", NULL, NULL},
    {"removing small files out of a trash", MUTANT_KEEP_NAMES, PHASE_DELETE, 0, FILE_NAME_NONE,
     ALL_RANKS, "files-series", NULL, NULL},
    WITHOUT_REQUEST("a small file in a bucket", "put .file", "bucket-files", NULL),
    /* ---- in a bucket: requests */
    WITHOUT_REQUEST("the marker", "put /pending", "bucket-2", NULL),
    WITHOUT_REQUEST("a shard", "put __0_0", "bucket", NULL),
    WITHOUT_REQUEST("a vote", "put /yes.", "bucket-2", NULL),
    {"leaving a vote in a bucket that was not answered", MUTANT_TAKEN_BACK, PHASE_VOTE, 0,
     FILE_NAME_NONE, ALL_RANKS, "bucket-2", NULL, NULL},
    WITHOUT_REQUEST("the manifest", "put .sidestep.manifest", "bucket", NULL),
    WITHOUT_REQUEST(".metadata", "put .metadata", "bucket-over", NULL),
    WITHOUT_REQUEST("the reason of an abort", "put /outcome", "bucket-votes-no",
                    "the marker is gone, and .metadata says how the save ended; "
                    "tests/unit/object_steps_test.c misses the words"),
    WITHOUT_REQUEST("the reason of a rank", "put /failed.", "bucket-votes-no",
                    "the vote that does not come ends the save; tests/unit/object_steps_test.c "
                    "misses the words"),
    WITHOUT_REQUEST("looking for what is replaced", "get .metadata", "bucket-over", NULL),
    /* ---- in a bucket: conditions, and what is not a request */
    WITHOUT("the condition of the commit", "object.condition", "bucket-race-over", NULL),
    WITHOUT("the difference between no answer and no", "object.silence", "bucket-over", NULL),
    WITHOUT("taking a late refusal of a commit for silence", "object.certain", "bucket-over", NULL),
    WITHOUT("taking a late refusal of a vote for silence", "object.certain", "bucket-2", NULL),
    WITHOUT("waiting an hour before a sweep", "object.dead", "bucket-gc", NULL),
    WITHOUT("sparing what .metadata names", "object.named", "bucket-over", NULL),
    WITHOUT("the age of the marker before the commit", "object.lease", "bucket-frozen", NULL),
    WITHOUT("the version of a deletion", "object.delete_version", "bucket-delete", NULL),
    WITHOUT(".metadata first in a deletion", "object.delete_order", "bucket-delete", NULL),
    WITHOUT("the marker that stops a deletion", "object.pending", "bucket-delete-beside",
            "a deletion removes only files that it looked at, and the commit finds out that "
            "what it was to replace is gone; tests/unit/object_delete_test.c asks for it"),
    WITHOUT("the marker of a save whose manifest may arrive late", "object.late_manifest",
            "bucket-series", NULL),
    WITHOUT("asking after the commit who owns the series", "object.still_held", "bucket-zombie",
            NULL),
    {"the check of the incarnation before the commit in a bucket", MUTANT_NO_GUARD, PHASE_OTHER, 0,
     FILE_NAME_NONE, ALL_RANKS, "bucket-zombie", NULL, NULL},
};
const size_t model_mutant_count = ARRAY_LENGTH(model_mutants);
