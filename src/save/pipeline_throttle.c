/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_throttle.c -- throttles the writers of a pipeline; see engine/throttle.h. */
#include <assert.h>

#include "save/pipeline_internal.h"

#include "base/base.h"

/* Windows that may be in flight while the trainer waits for the disk.  The disk's scheduler works
 * in file order and serves threads of the idle class last.  It may delay one request for as long as
 * later ones arrive, and the trainer may wait for that request. */
#define PIPELINE_MAX_SPAN 8u

/* Set while the trainer waits for memory that is still to be written. */
static const atomic_bool *urgency_flag(const struct pipeline *p)
{
    return p->cow != NULL ? cow_pool_full_flag(p->cow) : NULL;
}

/* With a deep queue, readers wait: the disk serves all of it before their next request. */
bool pipeline_can_add_request(struct pipeline *p, size_t in_flight)
{
    uint64_t now = clock_now(clock_system());
    bool backs_off =
        p->throttle != NULL && throttle_should_back_off(p->throttle, urgency_flag(p), now);

    if (backs_off && p->shared.backed_off_at_ns != 0)
        p->shared.backed_off_ns += now - p->shared.backed_off_at_ns;
    p->shared.backed_off_at_ns = backs_off ? now : 0;
    return !backs_off || in_flight == 0;
}

bool pipeline_can_start_write(struct pipeline *p)
{
    if (p->shared.write_next >= min_u64(p->shared.hashed, p->end_window))
        return false;
    assert(p->shared.written <= p->shared.write_next);
    while (p->shared.write_first < p->shared.write_next &&
           p->shared.states[p->shared.write_first] == WINDOW_WRITTEN)
        p->shared.write_first++;
    if (!pipeline_can_add_request(p, p->shared.write_next - p->shared.written))
        return false;
    return p->cow == NULL || !atomic_load(cow_pool_full_flag(p->cow)) ||
           p->shared.write_next - p->shared.write_first < PIPELINE_MAX_SPAN;
}

uint64_t pipeline_acquire_bandwidth(struct pipeline *p, uint64_t bytes)
{
    if (p->throttle == NULL)
        return 0;
    return throttle_acquire(p->throttle, bytes, p->bytes_per_second, urgency_flag(p), &p->stop);
}

bool pipeline_try_acquire_bandwidth(struct pipeline *p, uint64_t bytes)
{
    return p->throttle == NULL ||
           throttle_try_acquire(p->throttle, bytes, p->bytes_per_second, urgency_flag(p));
}

void pipeline_count_time(struct pipeline *p, const struct thread_time *began)
{
    struct thread_time now;

    thread_time_read(&now);
    atomic_fetch_add(&p->ran_ns, now.ran - began->ran);
    atomic_fetch_add(&p->waited_ns, now.waited - began->waited);
}

void pipeline_writer_begin(struct pipeline *p, struct thread_time *began)
{
    thread_time_read(began);
    if (p->throttle != NULL)
        throttle_attach_thread(p->throttle);
    if (p->cow != NULL)
        cow_attach_thread(p->cow,
                          p->throttle != NULL && p->throttle->lower ? &p->throttle->rights : NULL);
}

void pipeline_writer_end(struct pipeline *p, const struct thread_time *began)
{
    pipeline_count_time(p, began);
    if (p->cow != NULL)
        cow_detach_thread(p->cow);
    if (p->throttle != NULL)
        throttle_detach_thread(p->throttle);
}

void pipeline_restore_priority(struct pipeline *p)
{
    if (p->cow != NULL && p->throttle != NULL && cow_should_lower_priority(p->cow))
        throttle_restore_priority(p->throttle);
}
