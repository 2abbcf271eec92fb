/* SPDX-License-Identifier: BSD-3-Clause */
/* retention.c -- see retention.h: decides which checkpoints stay. */
#include "selection/retention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "catalog/catalog.h"

_Static_assert(sizeof(struct sidestep_retention) == 40, "a field was added: apply it below");

enum sidestep_status retention_copy(struct retention *retention,
                                    const struct sidestep_retention *theirs,
                                    struct sidestep_error *err)
{
    struct sidestep_retention options;

    *retention = (struct retention){0};
    if (theirs == NULL)
        return SIDESTEP_OK;
    TRY(options_copy(&options, sizeof(options), theirs, "retention", err));
    if ((options.flags & ~SIDESTEP_RETENTION_MAX) != 0 || options.reserved != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "retention: unknown flags");
    if (options.keep_best != 0 && !annotations_is_valid_word(options.metric))
        return FAIL(
            err, SIDESTEP_EINVAL,
            "the best cannot be kept by '%s': it is not the name of a metric (letters, digits, "
            "'_', '-')",
            options.metric != NULL ? options.metric : "");
    *retention = (struct retention){.wanted = true,
                                    .best_is_max = (options.flags & SIDESTEP_RETENTION_MAX) != 0,
                                    .keep_last = options.keep_last,
                                    .keep_every = options.keep_every,
                                    .keep_best = options.keep_best};
    if (options.keep_best != 0)
        snprintf(retention->metric, sizeof(retention->metric), "%s", options.metric);
    return SIDESTEP_OK;
}

const struct retention_reason RETENTION_ALL = {"all", "everything stays"};
const struct retention_reason RETENTION_PINNED = {"pinned", "it is pinned"};
const struct retention_reason RETENTION_DAMAGED = {"damaged", "it does not verify"};
const struct retention_reason RETENTION_UNREADABLE = {"unreadable", "it cannot be read now"};
static const struct retention_reason is_newest = {"newest", "it is the newest valid checkpoint"};
static const struct retention_reason is_last = {"last", "it is one of the last"};
static const struct retention_reason is_every = {"every", "its step is kept"};
static const struct retention_reason is_best = {"best", "it is one of the best"};
static const struct retention_reason is_apart = {"apart", "it shares no file with the newest"};
static const struct retention_reason is_only = {"only", "no other is valid"};

/* Does it count as a valid checkpoint of the lineage? */
static bool counts(const struct retention_item *item)
{
    return item->not_ours == NULL && !item->is_abandoned && item->flaw == NULL;
}

static const struct retention_reason *judge(const struct retention *r,
                                            const struct retention_item *item, uint64_t newer)
{
    if (item->not_ours != NULL)
        return item->not_ours;
    if (item->is_pinned)
        return &RETENTION_PINNED;
    if (item->flaw != NULL)
        return item->flaw;
    if (item->is_abandoned)
        return NULL;
    if (newer == 0)
        return &is_newest;
    if (newer < r->keep_last)
        return &is_last;
    if (r->keep_every != 0 && item->step >= 0 && (uint64_t)item->step % r->keep_every == 0)
        return &is_every;
    return NULL;
}

static bool is_better(const struct retention *r, const struct retention_item *a,
                      const struct retention_item *b)
{
    return r->best_is_max ? a->metric > b->metric : a->metric < b->metric;
}

/* The best checkpoint that is not marked yet; of equals the newer one.  NULL: there is none. */
static struct retention_item *find_best(const struct retention *r, struct retention_item *items,
                                        size_t count)
{
    struct retention_item *best = NULL;

    for (size_t i = count; i-- > 0;) {
        struct retention_item *item = &items[i];
        if (counts(item) && item->has_metric && !isnan(item->metric) && !item->is_best &&
            (best == NULL || is_better(r, item, best)))
            best = item;
    }
    return best;
}

static bool has_origin(const struct retention_item *item, const char *save_id)
{
    for (size_t i = 0; save_id != NULL && i < item->origin_count; i++)
        if (strcmp(item->origins[i], save_id) == 0)
            return true;
    return false;
}

/* Do two checkpoints share a file? */
static bool share_file(const struct retention_item *a, const struct retention_item *b)
{
    for (size_t i = 0; i < a->origin_count; i++)
        if (has_origin(b, a->origins[i]))
            return true;
    return has_origin(a, b->save_id) || has_origin(b, a->save_id);
}

/* Keep one checkpoint that shares no file with the newest, if none that stays is such a one. */
static void keep_one_apart(const struct retention *r, struct retention_item *items, size_t count)
{
    const struct retention_item *newest = NULL;
    struct retention_item *apart = NULL;

    if (!r->wanted || r->keep_last < 2)
        return;
    for (size_t i = count; i-- > 0;) {
        if (!counts(&items[i]))
            continue;
        if (newest == NULL)
            newest = &items[i];
        if (share_file(newest, &items[i]) || newest == &items[i])
            continue;
        if (items[i].keep != NULL)
            return;
        if (apart == NULL)
            apart = &items[i];
    }
    if (apart == NULL)
        return;
    apart->is_apart = true;
    apart->keep = &is_apart;
}

void retention_plan(const struct retention *r, struct retention_item *items, size_t count)
{
    uint64_t newer = 0;

    for (size_t i = count; i-- > 0;) {
        items[i].is_best = items[i].is_apart = false;
        items[i].keep = r->wanted ? judge(r, &items[i], newer) : &RETENTION_ALL;
        newer += counts(&items[i]);
    }
    for (size_t i = 0; i < count && newer == 0; i++)
        if (items[i].keep == NULL)
            items[i].keep = &is_only;
    for (uint32_t n = 0; n < r->keep_best; n++) {
        struct retention_item *best = find_best(r, items, count);
        if (best == NULL)
            break;
        best->is_best = true;
        if (best->keep == NULL)
            best->keep = &is_best;
    }
    keep_one_apart(r, items, count);
}
