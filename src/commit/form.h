/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * form.h -- the forms of the commit protocol, one table each.
 *
 * commit.h has the steps, and a form says what each step does. The file of a form has the steps in
 * order: swap_form.c, in_place_form.c, object_form.c. The steps that forms share are in
 * files_steps.h. docs/FORMAT.md has the three forms side by side.
 */
#ifndef COMMIT_FORM_H
#define COMMIT_FORM_H

#include "commit/commit.h"

/* What one look at the votes shows. */
struct tally {
    struct commit *commit;
    uint8_t *voted; /* per rank: it has voted */
    uint8_t *seen;  /* per rank: an object or file of it was there */
    uint32_t yes_count;
    int64_t failed_rank; /* -1: none */
    uint64_t progress;   /* differs between two looks if names have changed */
    bool with_sizes;     /* read the sizes of files, too, if each takes a call */
    uint64_t sizes;      /* differs between two such looks if a file has grown */
};

struct commit_form {
    /* All ranks: resolve ${path}, and open the parent. */
    enum sidestep_status (*open)(struct commit *commit, const char *path,
                                 struct sidestep_error *err);
    /* Rank 0: look at what NAME holds now. On file systems this decides between swap and in
     * place. */
    enum sidestep_status (*look)(struct commit *commit, struct sidestep_error *err);
    /* Rank 0. On failure it removes what it made. */
    enum sidestep_status (*begin)(struct commit *commit, struct sidestep_error *err);
    /* Other ranks, once. ENOTFOUND: rank 0 has not begun, as far as this rank sees. */
    enum sidestep_status (*try_join)(struct commit *commit, struct sidestep_error *err);
    /* The name under which shard ${shard} of rank ${rank} is written, and the one it gets. */
    void (*shard_names)(const struct commit *commit, uint32_t rank, uint32_t shard,
                        char written[FILE_NAME_BYTES], char final[FILE_NAME_BYTES]);
    /* Make ${file}, which has the name ${written}, durable under ${final}. Takes ${file} over. */
    enum sidestep_status (*seal)(struct commit *commit, const char *written, const char *final,
                                 struct store_file *file, struct sidestep_error *err);
    enum sidestep_status (*vote_yes)(struct commit *commit, struct sidestep_error *err);
    /* Vote in the place of ${rank}, which has ${shards} shards. */
    enum sidestep_status (*vote_for)(struct commit *commit, uint32_t rank, uint32_t shards,
                                     struct sidestep_error *err);
    void (*vote_no)(struct commit *commit, const struct sidestep_error *why);
    void (*retract)(struct commit *commit);
    /* Rank 0: count the votes. */
    enum sidestep_status (*count_votes)(struct tally *tally, struct sidestep_error *err);
    /* Why rank ${rank} failed; "" if it did not say. */
    void (*read_failure)(struct commit *commit, uint32_t rank, struct sidestep_error *why);
    /* Is the marker of rank 0 there? Also true if storage does not answer. */
    bool (*has_marker)(const struct commit *commit);
    enum sidestep_status (*publish)(struct commit *commit, struct commit_contents *contents,
                                    enum commit_outcome *outcome, struct sidestep_error *err);
    void (*abort)(struct commit *commit, const struct sidestep_error *why);
    enum sidestep_status (*check_aborted)(struct commit *commit, struct sidestep_error *err);
    enum commit_outcome (*poll_outcome)(struct commit *commit, struct sidestep_error *err);
    void (*remove_outcome)(struct commit *commit);
    void (*close)(struct commit *commit);
};

extern const struct commit_form commit_form_swap;
extern const struct commit_form commit_form_in_place;
extern const struct commit_form commit_form_objects;

/* The form of ${commit}: by its store, and by ${files.in_place}, which commit_begin() sets. */
const struct commit_form *commit_form_of(const struct commit *commit);

/* unknown_outcome.c: the marker of this save is gone, and .metadata has ${identity}; 0: there is
 * none. How did the save end? If it is not COMMITTED, ${err} says why. Without a checkpoint, nobody
 * can tell a save that was given up from one that was committed and deleted: UNKNOWN. */
enum commit_outcome commit_judge_identity(const struct commit *commit, uint64_t identity,
                                          struct sidestep_error *err);
/* unknown_outcome.c: ${outcome}, or ABORTED with rank 0's reason if that has appeared meanwhile. */
enum commit_outcome commit_explain(struct commit *commit, enum commit_outcome outcome,
                                   struct sidestep_error *err);
/* Check that NAME is not a name of sidestep's own files. */
enum sidestep_status commit_check_name(const struct commit *commit, struct sidestep_error *err);

#endif
