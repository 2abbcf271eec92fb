/* SPDX-License-Identifier: BSD-3-Clause */
/* series_schedule.c -- sidestep_series_should_save(): combines schedule.h with ranks and clocks. */
#include <string.h>

#include "base/base.h"
#include "series/series.h"

_Static_assert(sizeof(struct sidestep_series_status) == 64, "a field was added: fill it below");

/* Would a save have to wait for the previous one on this rank? */
static bool is_busy(struct sidestep_series *series)
{
    enum sidestep_save_state until =
        series->engine->comm.rank == 0 ? SIDESTEP_SAVE_COMMITTED : SIDESTEP_SAVE_WRITTEN;

    return series->save_count != 0 && save_get_state(series->saves[0]) < until;
}

static enum sidestep_status agree_due_all(struct sidestep_series *series, uint64_t step,
                                          uint64_t now, uint32_t *due, struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    uint64_t words[SCHEDULE_WORDS], skipped = series->due.skipped;
    bool was_stopping = series->due.stopping;
    unsigned asked = series->due.listens ? atomic_load(&series->due.requested) : 0;

    schedule_fill_words(&series->due, step, now, *due, comm->rank == 0, is_busy(series), words);
    TRY(comm_reduce_max_all(comm, words, SCHEDULE_WORDS, err));
    *due = schedule_apply_words(&series->due, step, now, words);
    if ((asked & *due & (SIDESTEP_DUE_SAVE | SIDESTEP_DUE_STOP)) != 0)
        series_emit_asked(series, step, asked);
    series_emit_agreed(series, step, series->due.skipped != skipped,
                       series->due.stopping && !was_stopping);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_should_save(struct sidestep_series *series, uint64_t step,
                                                 uint32_t *due, struct sidestep_error *err)
{
    uint32_t why;

    TRY(series_check(series, err));
    if (due == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "due is NULL");
    *due = 0;
    uint64_t now = clock_now(series->engine->clock);
    bool was_stopping = series->due.stopping;
    if (schedule_needs_agreement(&series->due, step, now, series->engine->comm.size == 1, &why))
        TRY(agree_due_all(series, step, now, &why, err));
    series_note_step(series, step, now);
    if (!was_stopping) /* from then on one is due at each step */
        series_emit_due(series, step, why);
    *due = why;
    return SIDESTEP_OK;
}

uint64_t sidestep_series_quiet_until(const struct sidestep_series *series, uint64_t step)
{
    if (series == NULL || series->is_shut)
        return step;
    return schedule_quiet_until(&series->due, step, series->engine->comm.size == 1);
}

void sidestep_series_request(struct sidestep_series *series, uint32_t what)
{
    int number = (int)(what >> 8), none = 0;

    if (series == NULL)
        return;
    if (number != 0)
        (void)atomic_compare_exchange_strong(&series->signal, &none, number);
    atomic_fetch_or(&series->due.requested, what & (SIDESTEP_DUE_SAVE | SIDESTEP_DUE_STOP));
}

enum sidestep_status sidestep_series_status(struct sidestep_series *series,
                                            struct sidestep_series_status *status)
{
    if (series == NULL || status == NULL || status->struct_size < sizeof(size_t))
        return SIDESTEP_EINVAL;
    const struct schedule *due = &series->due;
    uint64_t interval = schedule_current_interval_ns(due);
    struct sidestep_series_status known = {
        .struct_size = status->struct_size,
        .interval_ms = interval / 1000000,
        .skipped = due->skipped,
        .agreements = due->agreements,
        .queued = series->queued,
        .directories = series_directories(series),
        .leads = series_leads(series),
        .lost = schedule_lost_fraction(due->cost_ns, due->mtbf_ns, interval),
    };
    size_t size = status->struct_size < sizeof(known) ? status->struct_size : sizeof(known);
    memcpy(status, &known, size);
    return SIDESTEP_OK;
}
