/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.h -- the newest checkpoint of a listing that is valid. */
#ifndef SELECTION_CHOOSE_H
#define SELECTION_CHOOSE_H

#include "catalog/catalog.h"
#include "verify/verify.h"

/* How one is chosen from a listing. */
struct choose_options {
    struct store *store;
    enum sidestep_verify_mode mode;
    bool with_others;        /* also what other programs wrote, where it is complete */
    struct workers *workers; /* these two are for modes that read; both may be NULL */
    const struct verify_options *options;
    /* Called for each that is rejected, with the reason; a failure ends the choice.  May be NULL.
     */
    enum sidestep_status (*reject)(void *context, const struct sidestep_listed *entry,
                                   const struct sidestep_error *why, struct sidestep_error *err);
    void *context;
};

/*
 * Try the candidates of ${list}, newest first, and return the index of the first that is valid.
 * ENOTFOUND: there is no candidate.  ECORRUPT: none is valid; ${err} lists them.  EMISMATCH: there
 * are links to checkpoints, and nothing else.  A checkpoint that cannot be read now, which says
 * nothing of whether it is valid, ends the search: choose_fail_unreadable().  ${*gone}: one was
 * deleted since it was listed, and ${list} is to be made anew; how often the caller does that is
 * his to limit (LIST_MAX_ATTEMPTS).
 */
enum sidestep_status choose_newest_valid(const struct choose_options *how,
                                         const struct sidestep_list *list, size_t *chosen,
                                         bool *gone, struct sidestep_error *err);
/* ${why} a checkpoint, which it names, could not be read, with the ways out of it. */
enum sidestep_status choose_fail_unreadable(const struct sidestep_error *why,
                                            struct sidestep_error *err);

#endif
