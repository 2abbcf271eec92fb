/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease_objects.h -- the lease of a series on an object store, which has no locks: the incarnation
 * alone decides.
 *
 * ROOT/.sidestep/state names the run, the incarnation and its holder, by a token that only the
 * holder knows. Who starts puts it again with the next number, on the condition that nobody has
 * done so meanwhile. So each number has one holder. The holder before finds out at its next commit
 * (lease_check()), and can commit no more: a second trainer ends the first one.
 *
 * Where a store has no conditions, the last one who puts the state wins: after a put, the starter
 * waits a moment and reads it back.
 */
#ifndef CATALOG_LEASE_OBJECTS_H
#define CATALOG_LEASE_OBJECTS_H

#include "catalog/lease.h"

/* What the state says. */
struct lease_state {
    char run_id[SAVE_ID_HEX];
    char token[SAVE_ID_HEX]; /* "": a lock protects this series, or did */
    char holder[160];        /* "": not known */
    uint64_t incarnation;
};

/* Parse a state. ECORRUPT: it is damaged. */
enum sidestep_status lease_state_parse(const char *text, struct lease_state *state,
                                       struct sidestep_error *err);

/* Take the next incarnation, or the first one of a new run. ELOCKED: others took each number that
 * this one tried. */
enum sidestep_status lease_objects_acquire(struct lease *lease, struct sidestep_error *err);

#endif
