/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * history.h -- a random history of a series, for tests/unit/history_test.c: what the test knows of
 * each save, which checkpoints should exist, and damage to their files.
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

/* What the test knows of a save. */
struct known_save {
    uint64_t step;
    float base;        /* value of one of its tensors */
    float base_before; /* the value before, if a save that replaces it was interrupted */
    bool is_there;     /* it was reported committed, and nothing may have deleted it since */
    bool is_open;      /* its process was killed: it may exist or not */
    bool is_left;      /* a run resumed from an earlier step */
    bool is_pinned;
    bool is_damaged; /* in its structure: a listing shows it */
    bool is_rotten;  /* damaged in its data: only a reader finds it */
    bool has_metric;
    double metric;
    bool may_be_gone; /* retention may have deleted it */
    bool is_replaced; /* in place: its shard has another name; the old shard may still exist */
};

struct history {
    struct prng prng;
    struct sim *sim;
    struct sidestep_engine *engine;
    struct sidestep_series *series;
    struct sidestep_state_dict *state;
    float values[FLOATS];
    float base[FLOATS];   /* rarely changes */
    atomic_long ops_left; /* operations until the process dies; < 0: it does not die */
    bool has_retention;
    uint32_t keep_last; /* 0 means 1 */
    uint64_t keep_every;
    uint32_t keep_best;
    bool is_long;
    bool is_incremental;
    uint64_t step;    /* the step that the run has reached */
    bool knows_files; /* this process has saved, so it knows which files to share */
    bool went_on;     /* it has resumed, or started a new series */
    struct known_save saves[MAX_SAVES];
    size_t count;
};

/* Counts of events: the test fails if one of them never happens. */
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

/* The save of this step; added if it is new. */
struct known_save *history_find(struct history *h, uint64_t step);
const struct sidestep_listed *history_listed(const struct sidestep_list *list, uint64_t step);
/* Compare what exists with what should. Returns the step that a resume must take, or -1. */
int64_t history_compare(struct history *h);
/* Record that a resume has passed over damaged checkpoints. They are set aside, or stay if their
 * owner cannot be determined. */
void history_pass_damaged(struct history *h);
/* Record what retention may delete now. */
void history_allow_prune(struct history *h);

/* ---- history_damage.c ---- */

/* Damage a file of some checkpoint, or none. */
void history_damage(struct history *h);

#endif
