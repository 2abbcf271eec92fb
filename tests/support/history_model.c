/* SPDX-License-Identifier: BSD-3-Clause */
/* history_model.c -- see history.h: what ought to be there, from what was told and what may have
 * been deleted since. */
#include "support/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/owned.h"

struct history_seen seen;

struct told *history_find(struct history *h, uint64_t step)
{
    for (size_t i = 0; i < h->count; i++)
        if (h->told[i].step == step)
            return &h->told[i];
    CHECK(h->count < MAX_SAVES);
    h->told[h->count] = (struct told){.step = step};
    return &h->told[h->count++];
}

const struct sidestep_listed *history_listed(const struct sidestep_list *list, uint64_t step)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->entries[i].state == SIDESTEP_COMMITTED && list->entries[i].step == (int64_t)step)
            return &list->entries[i];
    return NULL;
}

/* The outcome of what was cut short is whatever is there. */
static void settle_open(struct history *h, const struct sidestep_list *list)
{
    for (size_t i = 0; i < h->count; i++) {
        struct told *told = &h->told[i];
        const struct sidestep_listed *entry = history_listed(list, told->step);
        if (!told->is_open)
            continue;
        told->is_open = false;
        told->is_there = entry != NULL;
        told->is_left = entry != NULL && entry->is_abandoned;
        told->is_pinned = entry != NULL && entry->is_pinned;
        told->has_metric = entry != NULL && entry->metric_count == 1;
        if (told->has_metric)
            told->metric = entry->metrics[0].value;
    }
}

int64_t history_look(struct history *h)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    int64_t newest = -1;

    if (list_root(sim_store(h->sim, 0), HISTORY_ROOT, &list, NULL) != SIDESTEP_OK)
        return -1;
    settle_open(h, &list);
    for (size_t i = 0; i < h->count; i++) {
        struct told *told = &h->told[i];
        const struct sidestep_listed *entry = history_listed(&list, told->step);
        if (told->is_there && !told->may_be_gone && entry == NULL)
            fail_msg("step %llu is lost, in the case with seed %llu",
                     (unsigned long long)told->step, (unsigned long long)h->prng.seed);
        seen.deleted += told->is_there && entry == NULL;
        seen.left += entry != NULL && entry->is_abandoned;
        told->is_there = entry != NULL;
        if (entry == NULL)
            continue;
        if (!told->is_damaged &&
            (entry->is_abandoned != told->is_left || entry->is_pinned != told->is_pinned))
            fail_msg("step %llu: left %d, pinned %d, not as told, in the case with seed %llu",
                     (unsigned long long)told->step, entry->is_abandoned, entry->is_pinned,
                     (unsigned long long)h->prng.seed);
        if (!told->is_damaged && told->has_metric &&
            (entry->metric_count != 1 || entry->metrics[0].value != told->metric))
            fail_msg("step %llu: its metric is lost, in the case with seed %llu",
                     (unsigned long long)told->step, (unsigned long long)h->prng.seed);
        if (!told->is_left && !told->is_damaged && !told->is_rotten && entry->step > newest)
            newest = entry->step;
    }
    return newest;
}

void history_pass_damaged(struct history *h)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    if (list_root(sim_store(h->sim, 0), HISTORY_ROOT, &list, NULL) != SIDESTEP_OK)
        return;
    for (size_t i = 0; i < h->count; i++) {
        struct told *told = &h->told[i];
        if (!(told->is_damaged || told->is_rotten) || told->step <= h->step || told->is_left)
            continue;
        told->is_left = told->is_damaged = history_listed(&list, told->step) != NULL;
        told->is_there = told->is_left;
        seen.set_aside += !told->is_left;
        seen.rotten += told->is_rotten;
        told->is_rotten = false;
    }
}

/* Is it one of the best, however many of those that are better may be gone, or count no more? */
static bool is_best(const struct history *h, const struct told *told)
{
    uint32_t better = 0;

    for (size_t i = 0; i < h->count; i++)
        better += &h->told[i] != told && h->told[i].has_metric && !h->told[i].is_left &&
                  h->told[i].metric <= told->metric;
    return told->has_metric && better < h->keep_best;
}

/* Does it stay for another reason than that it is one of the last? */
static bool is_kept(const struct history *h, const struct told *told)
{
    bool by_step = h->keep_every != 0 && told->step % h->keep_every == 0;
    bool by_metric = is_best(h, told);

    seen.by_step += by_step;
    seen.by_metric += by_metric;
    return told->is_pinned || by_step || by_metric;
}

void history_let_go(struct history *h)
{
    uint32_t kept = 0, last = h->keep_last != 0 ? h->keep_last : 1;

    if (!h->has_retention)
        return;
    for (size_t i = 0; i < h->count; i++)
        if (h->told[i].is_left && !h->told[i].is_pinned)
            h->told[i].may_be_gone = true;
    for (uint64_t step = h->step + 1; step-- > 0;) {
        struct told *told = NULL;
        for (size_t i = 0; i < h->count; i++)
            if (h->told[i].step == step)
                told = &h->told[i];
        if (told == NULL || !told->is_there || told->is_left || told->is_damaged)
            continue;
        if (kept >= last && !is_kept(h, told))
            told->may_be_gone = true;
        kept++;
    }
}
