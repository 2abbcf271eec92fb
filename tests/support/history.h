/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * history.h -- a random life of a series (tests/unit/history_test.c): what is known of each save
 * from the outside, what then ought to be there, and what happens to its files behind its back.
 */
#ifndef SUPPORT_HISTORY_H
#define SUPPORT_HISTORY_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "catalog/list.h"
#include "support/prng.h"
#include "support/store_sim.h"

#define HISTORY_ROOT "/run"
#define MAX_SAVES 64u
#define FLOATS 8

/* What is known of a save from the outside. */
struct told {
    uint64_t step;
    float base, base_before; /* that of one of them, if a save in its place was cut short */
    bool is_there;           /* it was told committed, and nobody may have deleted it since */
    bool is_open;            /* its saver was killed: it may be there, or not */
    bool is_left;            /* a run went back behind it */
    bool is_pinned;
    bool is_damaged; /* as its structure shows */
    bool is_rotten;  /* its data: who reads it finds out */
    bool has_metric;
    double metric;
    bool may_be_gone; /* retention may have deleted it */
    bool is_replaced; /* in place: its shard has another name; the old one may lie there, too */
};

struct history {
    struct prng prng;
    struct sim *sim;
    struct sidestep_engine *engine;
    struct sidestep_series *series;
    struct sidestep_state_dict *state;
    float values[FLOATS];
    float base[FLOATS];   /* seldom changes */
    atomic_long ops_left; /* until the process dies; < 0: it does not */
    bool has_retention;
    uint32_t keep_last; /* 0 is meant as 1 */
    uint64_t keep_every;
    uint32_t keep_best;
    bool is_long;
    bool is_incremental;
    uint64_t step;    /* where the run is */
    bool knows_files; /* it is the process that has saved: it knows what to share */
    bool went_on;     /* it has resumed, or begun */
    struct told told[MAX_SAVES];
    size_t count;
};

/* What has happened at all: a rig in which nothing does finds nothing wrong. */
struct history_seen {
    unsigned long saves, resumes, killed, set_aside, left, deleted, linked, shared_damage, rotten,
        by_step, by_metric;
};
extern struct history_seen seen;

#define CHECK(condition) PRNG_ASSERT(&h->prng, condition)

static inline bool is_dead(struct history *h)
{
    return atomic_load(&h->ops_left) == 0;
}

/* ---- history_model.c ---- */

/* What is known of this step; made if it is not. */
struct told *history_find(struct history *h, uint64_t step);
const struct sidestep_listed *history_listed(const struct sidestep_list *list, uint64_t step);
/* Compare what is there with what ought to be.  Returns the step that a resume has to take, or -1.
 */
int64_t history_look(struct history *h);
/* A resume has passed over what is damaged: it is set aside; or left where it is, if nobody can
 * tell any more whose it was. */
void history_pass_damaged(struct history *h);
/* What retention may delete now. */
void history_let_go(struct history *h);

/* ---- history_damage.c ---- */

/* Damage a file of some checkpoint, or none. */
void history_damage(struct history *h);

#endif
