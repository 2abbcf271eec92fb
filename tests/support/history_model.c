/* SPDX-License-Identifier: BSD-3-Clause */
/* history_model.c -- decides which checkpoints of a random history should exist, from the reports
 * of the saves and from what may have been deleted. */
#include "support/history.h"

#include "base/owned.h"
#include "support/unit.h"

struct history_seen seen;

struct known_save *history_find(struct history *h, uint64_t step)
{
    for (size_t i = 0; i < h->count; i++)
        if (h->saves[i].step == step)
            return &h->saves[i];
    CHECK(h->count < MAX_SAVES);
    h->saves[h->count] = (struct known_save){.step = step};
    return &h->saves[h->count++];
}

const struct sidestep_listed *history_listed(const struct sidestep_list *list, uint64_t step)
{
    for (size_t i = 0; i < list->count; i++)
        if (sidestep_list_entry(list, i)->state == SIDESTEP_COMMITTED &&
            sidestep_list_entry(list, i)->step == (int64_t)step)
            return sidestep_list_entry(list, i);
    return NULL;
}

/* A save whose process was killed may exist or not. Record which. */
static void settle_open(struct history *h, const struct sidestep_list *list)
{
    for (size_t i = 0; i < h->count; i++) {
        struct known_save *known = &h->saves[i];
        const struct sidestep_listed *entry = history_listed(list, known->step);
        if (!known->is_open)
            continue;
        known->is_open = false;
        known->is_there = entry != NULL;
        known->is_left = entry != NULL && entry->is_abandoned;
        known->is_pinned = entry != NULL && entry->is_pinned;
        known->has_metric = entry != NULL && entry->metric_count == 1;
        if (known->has_metric)
            known->metric = entry->metrics[0].value;
    }
}

int64_t history_compare(struct history *h)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    int64_t newest = -1;

    if (list_root(sim_store(h->sim, 0), HISTORY_ROOT, 0, &list, NULL) != SIDESTEP_OK)
        return -1;
    settle_open(h, &list);
    for (size_t i = 0; i < h->count; i++) {
        struct known_save *known = &h->saves[i];
        const struct sidestep_listed *entry = history_listed(&list, known->step);
        if (known->is_there && !known->may_be_gone && entry == NULL)
            fail_msg("step %llu is lost, in the case with seed %llu",
                     (unsigned long long)known->step, (unsigned long long)h->prng.seed);
        seen.deleted += known->is_there && entry == NULL;
        seen.left += entry != NULL && entry->is_abandoned;
        known->is_there = entry != NULL;
        if (entry == NULL)
            continue;
        if (!known->is_damaged &&
            (entry->is_abandoned != known->is_left || entry->is_pinned != known->is_pinned))
            fail_msg("step %llu: left %d, pinned %d, not as reported, in the case with seed %llu",
                     (unsigned long long)known->step, entry->is_abandoned, entry->is_pinned,
                     (unsigned long long)h->prng.seed);
        if (!known->is_damaged && known->has_metric &&
            (entry->metric_count != 1 || entry->metrics[0].value != known->metric))
            fail_msg("step %llu: its metric is lost, in the case with seed %llu",
                     (unsigned long long)known->step, (unsigned long long)h->prng.seed);
        if (!known->is_left && !known->is_damaged && !known->is_rotten && entry->step > newest)
            newest = entry->step;
    }
    return newest;
}

void history_pass_damaged(struct history *h)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    if (list_root(sim_store(h->sim, 0), HISTORY_ROOT, 0, &list, NULL) != SIDESTEP_OK)
        return;
    for (size_t i = 0; i < h->count; i++) {
        struct known_save *known = &h->saves[i];
        if (!(known->is_damaged || known->is_rotten) || known->step <= h->step || known->is_left)
            continue;
        known->is_left = known->is_damaged = history_listed(&list, known->step) != NULL;
        known->is_there = known->is_left;
        seen.set_aside += !known->is_left;
        seen.rotten += known->is_rotten;
        known->is_rotten = false;
    }
}

/* Is it one of the best checkpoints, even if all better ones exist and count? */
static bool is_best(const struct history *h, const struct known_save *known)
{
    uint32_t better = 0;

    for (size_t i = 0; i < h->count; i++)
        better += &h->saves[i] != known && h->saves[i].has_metric && !h->saves[i].is_left &&
                  h->saves[i].metric <= known->metric;
    return known->has_metric && better < h->keep_best;
}

/* Is it kept for another reason than its age? */
static bool is_kept(const struct history *h, const struct known_save *known)
{
    bool by_step = h->keep_every != 0 && known->step % h->keep_every == 0;
    bool by_metric = is_best(h, known);

    seen.by_step += by_step;
    seen.by_metric += by_metric;
    return known->is_pinned || by_step || by_metric;
}

void history_allow_prune(struct history *h)
{
    uint32_t kept = 0, last = h->keep_last != 0 ? h->keep_last : 1;

    if (!h->has_retention)
        return;
    for (size_t i = 0; i < h->count; i++)
        if (h->saves[i].is_left && !h->saves[i].is_pinned)
            h->saves[i].may_be_gone = true;
    for (uint64_t step = h->step + 1; step-- > 0;) {
        struct known_save *known = NULL;
        for (size_t i = 0; i < h->count; i++)
            if (h->saves[i].step == step)
                known = &h->saves[i];
        if (known == NULL || !known->is_there || known->is_left || known->is_damaged)
            continue;
        if (kept >= last && !is_kept(h, known))
            known->may_be_gone = true;
        kept++;
    }
}
