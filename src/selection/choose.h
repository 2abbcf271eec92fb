/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.h -- chooses the newest valid checkpoint of a listing. */
#ifndef SELECTION_CHOOSE_H
#define SELECTION_CHOOSE_H

#include "catalog/catalog.h"
#include "verify/verify.h"

struct choose_options {
    struct store *store;
    struct store_dir *root; /* that was listed, if it is still open; or NULL */
    enum sidestep_verify_mode mode;
    bool with_others;        /* also complete checkpoints of other programs */
    struct workers *workers; /* this and ${options} are for modes that read, and may be NULL */
    const struct verify_options *options;
    /* Called for each rejected checkpoint, with the reason.  A failure ends the choice.  May be
     * NULL. */
    enum sidestep_status (*reject)(void *context, const struct sidestep_listed *entry,
                                   const struct sidestep_error *why, struct sidestep_error *err);
    void *context;
};

/*
 * Try the candidates of ${list}, newest first.  Sets ${*chosen} to the index of the first valid
 * one.
 * ENOTFOUND: there is no candidate.  ECORRUPT: none is valid; ${err} lists them.  EMISMATCH: there
 * are only links to checkpoints.
 * A checkpoint that cannot be read now may still be valid, so it ends the search: see
 * choose_fail_unreadable().
 * ${*gone}: a checkpoint was deleted since it was listed, so the caller must list again.  The
 * caller limits how often (LIST_MAX_ATTEMPTS).
 */
enum sidestep_status choose_newest_valid(const struct choose_options *how,
                                         const struct sidestep_list *list, size_t *chosen,
                                         bool *gone, struct sidestep_error *err);
/* Fail because a checkpoint could not be read, and say what to do about it.  ${why} names the
 * checkpoint. */
enum sidestep_status choose_fail_unreadable(const struct sidestep_error *why,
                                            struct sidestep_error *err);

#endif
