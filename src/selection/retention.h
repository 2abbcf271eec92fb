/* SPDX-License-Identifier: BSD-3-Clause */
/* retention.h -- decides which checkpoints of a series may be deleted, as a pure function. */
#ifndef SELECTION_RETENTION_H
#define SELECTION_RETENTION_H

#include "base/base.h"
#include "sidestep/sidestep_series.h"

#define RETENTION_MAX_METRIC 64u

struct retention {
    bool wanted; /* false: everything stays */
    bool best_is_max;
    uint32_t keep_last;
    uint64_t keep_every;
    uint32_t keep_best;
    char metric[RETENTION_MAX_METRIC + 1];
};

/* Why a checkpoint stays. */
struct retention_reason {
    const char *word; /* for programs and tables: "pinned", "newest", "not-ours" ... */
    const char *text; /* "it is pinned" */
};
extern const struct retention_reason RETENTION_ALL, RETENTION_PINNED, RETENTION_DAMAGED,
    RETENTION_UNREADABLE;

struct retention_item {
    int64_t step;
    /* Why it may not be deleted: another run wrote it ...; NULL: it may. */
    const struct retention_reason *not_ours;
    bool is_pinned;
    bool is_abandoned;                   /* left behind: part of a lineage that ended */
    const struct retention_reason *flaw; /* why it does not count, and stays; NULL: none */
    bool has_metric;
    double metric;
    const char *save_id; /* NULL: not known */
    /* The earlier saves whose files it shares. */
    const char *const *origins;
    size_t origin_count;
    bool is_best;  /* output */
    bool is_apart; /* output: kept because it shares no file with the newest */
    const struct retention_reason *keep; /* output: why it stays; NULL: it may be deleted */
};

/* Copy and check the caller's policy; NULL: everything stays. */
enum sidestep_status retention_copy(struct retention *retention,
                                    const struct sidestep_retention *theirs,
                                    struct sidestep_error *err);

/*
 * Decide for each of ${items}, which are sorted by step, oldest first.
 *
 * With any policy, the newest undamaged checkpoint of the lineage stays, and without one everything
 * stays.  If keep_last is 2 or more, two of the checkpoints that stay share no file, if there are
 * two such: a bad block damages all checkpoints that share it.
 */
void retention_plan(const struct retention *retention, struct retention_item *items, size_t count);

#endif
