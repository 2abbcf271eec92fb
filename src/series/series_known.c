/* SPDX-License-Identifier: BSD-3-Clause */
/* series_known.c -- keeps which saves are known to be whole, and which to be torn, where saves are
 * made of parts. */
#include <string.h>

#include "base/base.h"
#include "series/series.h"

/* In ROOT/.sidestep: a step was whole once. So if none is found, parts were lost or removed, and it
 * is not as if the run had never saved. */
#define WHOLE "whole"

bool series_is_whole(void *context, const struct sidestep_listed *entry)
{
    struct sidestep_series *series = context;
    bool is_whole = false;

    lock_acquire(&series->shared.lock);
    for (size_t i = 0; entry->save_id != NULL && i < series->shared.whole.count && !is_whole; i++)
        is_whole = strcmp(series->shared.whole.names[i], entry->save_id) == 0;
    lock_release(&series->shared.lock);
    return is_whole;
}

bool series_is_torn(const struct sidestep_series *series, const struct sidestep_listed *entry)
{
    THREAD_IS(CALLER);
    const struct name_list *torn = &series->engine->saver->torn;

    for (size_t i = 0; entry->state == SIDESTEP_PART && entry->save_id != NULL && i < torn->count;
         i++)
        if (strcmp(torn->names[i], entry->save_id) == 0)
            return true;
    return false;
}

bool series_had_whole(const struct sidestep_series *series)
{
    struct store_stat stat;

    return store_stat(series->lease.dir, WHOLE, &stat, NULL) != SIDESTEP_ENOTFOUND;
}

/* Best effort: the next save tries again. */
static void write_whole(struct sidestep_series *series)
{
    if (series->wrote_whole || !series_leads(series))
        return;
    series->wrote_whole = series_had_whole(series) ||
                          small_file_replace(series->lease.dir, WHOLE, WHOLE ".new", series->run_id,
                                             strlen(series->run_id), NULL) == SIDESTEP_OK;
}

void series_note_whole(struct sidestep_series *series, const char *save_id)
{
    write_whole(series);
    lock_acquire(&series->shared.lock);
    (void)name_list_add(&series->shared.whole, save_id, NULL); /* else it stays, as unknown */
    lock_release(&series->shared.lock);
}

void series_take_whole(struct sidestep_series *series)
{
    THREAD_IS(CALLER);
    const struct name_list *known = &series->engine->saver->whole;

    for (; series->whole_taken < known->count; series->whole_taken++)
        series_note_whole(series, known->names[series->whole_taken]);
}
