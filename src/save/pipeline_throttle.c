/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_throttle.c -- how the writers of a pipeline give way to training; see throttle.h. */
#include "save/pipeline_internal.h"

#include "base/base.h"

/* While somebody waits for the disk.  A disk's scheduler goes on in the order of the file, and puts
 * threads of the idle class last: it may leave one of many requests for as long as others behind it
 * come, and the trainer waits for just that one. */
#define PIPELINE_SPREAD 8u

/* Somebody who waits for memory that is still to be written. */
static const atomic_bool *hurry_of(const struct pipeline *p)
{
    return p->cow != NULL ? cow_pool_full_flag(p->cow) : NULL;
}

/* A deep queue is what makes readers wait: the disk takes all of it before their next request. */
bool pipeline_can_add_request(struct pipeline *p, size_t in_flight)
{
    uint64_t now = clock_now(clock_system());
    bool backs_off =
        p->neighbour != NULL && throttle_should_back_off(p->neighbour, hurry_of(p), now);

    if (backs_off && p->shared.backed_off_at_ns != 0)
        p->shared.backed_off_ns += now - p->shared.backed_off_at_ns;
    p->shared.backed_off_at_ns = backs_off ? now : 0;
    return !backs_off || in_flight == 0;
}

bool pipeline_can_start_write(struct pipeline *p)
{
    if (p->shared.write_next >= min_u64(p->shared.hashed, p->until))
        return false;
    while (p->shared.write_first < p->shared.write_next &&
           p->shared.states[p->shared.write_first] == WINDOW_WRITTEN)
        p->shared.write_first++;
    if (!pipeline_can_add_request(p, p->shared.write_next - p->shared.written))
        return false;
    return p->cow == NULL || !atomic_load(cow_pool_full_flag(p->cow)) ||
           p->shared.write_next - p->shared.write_first < PIPELINE_SPREAD;
}

uint64_t pipeline_acquire_bandwidth(struct pipeline *p, uint64_t bytes)
{
    if (p->neighbour == NULL)
        return 0;
    return throttle_acquire(p->neighbour, bytes, p->bytes_per_second, hurry_of(p), &p->stop);
}

bool pipeline_try_acquire_bandwidth(struct pipeline *p, uint64_t bytes)
{
    return p->neighbour == NULL ||
           throttle_try_acquire(p->neighbour, bytes, p->bytes_per_second, hurry_of(p));
}

void pipeline_writer_begin(struct pipeline *p)
{
    if (p->neighbour != NULL)
        throttle_attach_thread(p->neighbour);
    if (p->cow != NULL)
        cow_attach_thread(
            p->cow, p->neighbour != NULL && p->neighbour->lower ? &p->neighbour->rights : NULL);
}

void pipeline_writer_end(struct pipeline *p)
{
    if (p->cow != NULL)
        cow_detach_thread(p->cow);
    if (p->neighbour != NULL)
        throttle_detach_thread(p->neighbour);
}

void pipeline_restore_priority(struct pipeline *p)
{
    if (p->cow != NULL && p->neighbour != NULL && cow_should_lower_priority(p->cow))
        throttle_restore_priority(p->neighbour);
}
