/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_throttle.c -- how the writers of a pipeline give way to training; see throttle.h. */
#include "save/pipeline_internal.h"

#include "base/checked.h"
#include "base/clock.h"

/* While somebody waits for the disk.  A disk's scheduler goes on in the order of the file, and puts
 * threads of the idle class last: it may leave one of many requests for as long as others behind it
 * come, and the trainer waits for just that one. */
#define PIPELINE_SPREAD 8u

/* Somebody who waits for memory that is still to be written. */
static const atomic_bool *hurry_of(const struct pipeline *p)
{
    return p->cow != NULL ? cow_is_full(p->cow) : NULL;
}

/* A deep queue is what makes readers wait: the disk takes all of it before their next request. */
bool pipeline_may_add(struct pipeline *p, size_t in_flight)
{
    uint64_t now = clock_now(clock_system());
    bool backs_off = p->neighbour != NULL && neighbour_backs_off(p->neighbour, hurry_of(p), now);

    if (backs_off && p->shared.backed_off_at_ns != 0)
        p->shared.backed_off_ns += now - p->shared.backed_off_at_ns;
    p->shared.backed_off_at_ns = backs_off ? now : 0;
    return !backs_off || in_flight == 0;
}

bool pipeline_may_start(struct pipeline *p)
{
    if (p->shared.write_next >= min_u64(p->shared.hashed, p->until))
        return false;
    while (p->shared.write_first < p->shared.write_next &&
           p->shared.states[p->shared.write_first] == WINDOW_WRITTEN)
        p->shared.write_first++;
    if (!pipeline_may_add(p, p->shared.write_next - p->shared.written))
        return false;
    return p->cow == NULL || !atomic_load(cow_is_full(p->cow)) ||
           p->shared.write_next - p->shared.write_first < PIPELINE_SPREAD;
}

uint64_t pipeline_give_way(struct pipeline *p, uint64_t bytes)
{
    if (p->neighbour == NULL)
        return 0;
    return neighbour_take(p->neighbour, bytes, p->bytes_per_second, hurry_of(p), &p->stop);
}

bool pipeline_may_write(struct pipeline *p, uint64_t bytes)
{
    return p->neighbour == NULL ||
           neighbour_try(p->neighbour, bytes, p->bytes_per_second, hurry_of(p));
}

void pipeline_join(struct pipeline *p)
{
    if (p->neighbour != NULL)
        neighbour_join(p->neighbour);
    if (p->cow != NULL)
        cow_join(p->cow,
                 p->neighbour != NULL && p->neighbour->lower ? &p->neighbour->rights : NULL);
}

void pipeline_leave(struct pipeline *p)
{
    if (p->cow != NULL)
        cow_leave(p->cow);
    if (p->neighbour != NULL)
        neighbour_leave(p->neighbour);
}

void pipeline_calm(struct pipeline *p)
{
    if (p->cow != NULL && p->neighbour != NULL && cow_was_raised(p->cow))
        neighbour_calm(p->neighbour);
}
