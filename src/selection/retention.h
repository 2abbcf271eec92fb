/* SPDX-License-Identifier: BSD-3-Clause */
/* retention.h -- which checkpoints of a series may go: a pure function of what is there. */
#ifndef SELECTION_RETENTION_H
#define SELECTION_RETENTION_H

#include "base/base.h"

#define RETENTION_MAX_METRIC 64u

struct retention {
    bool wanted; /* else everything stays */
    bool best_is_max;
    uint32_t keep_last;
    uint64_t keep_every;
    uint32_t keep_best;
    char metric[RETENTION_MAX_METRIC + 1];
};

/* One checkpoint, as it is seen. */
struct retention_item {
    int64_t step;
    const char
        *stranger; /* why it is not for us to delete: it is no save of this run; NULL: it is */
    bool is_pinned;
    bool is_abandoned; /* of a line that ended */
    const char *flaw;  /* "it does not verify", "it cannot be read": then it is neither counted nor
                          deleted; NULL: none was found */
    bool has_metric;
    double metric;
    /* The saves whose files it has, where they are not all its own: see ${save_id}. */
    const char *save_id; /* its own; NULL: not known */
    const char *const *origins;
    size_t origin_count;
    bool is_best;     /* out */
    bool is_apart;    /* out: kept because it shares no file with the newest */
    const char *keep; /* out: why it stays; NULL: it goes */
};

/* Copy and check the caller's; NULL: everything stays. */
enum sidestep_status retention_copy(struct retention *retention,
                                    const struct sidestep_retention *theirs,
                                    struct sidestep_error *err);

/*
 * Decide for each of ${items}, which are sorted by step, oldest first.  Whatever the policy: the
 * newest one of the line that is not damaged stays, and without one everything does.  Where two or
 * more of the last are to stay, two of those that stay share no file, if there are two: one bad
 * block would damage all that share it.
 */
void retention_plan(const struct retention *retention, struct retention_item *items, size_t count);

#endif
