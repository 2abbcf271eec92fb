/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.c -- stages the windows of a shard file: in the call, or in the background; see
 * pipeline.h. */
#include "save/pipeline_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/base.h"

uint64_t pipeline_full_pool_bytes(const struct image *image)
{
    return image->body_bytes != 0 ? image->body_bytes : image_align();
}

static void set_slots(struct pipeline *p)
{
    if (p->shares_pool)
        pool_slots_set_shared(p->slots, p->pool->bytes, p->pool_bytes, p->pool_bytes);
    else
        pool_slots_set_dedicated(p->slots, p->pool->bytes);
}

enum sidestep_status pipeline_init(struct pipeline *p, struct image *image, struct pool *pool,
                                   uint64_t pool_bytes, struct sidestep_error *err)
{
    assert(pool_bytes <= pool->length);
    lock_alone(&p->shared.lock);
    *p = (struct pipeline){
        .image = image, .pool = pool, .pool_bytes = pool_bytes, .end_window = image->window_count};
    TRY(pool_slots_new(&p->slots, image, err));
    p->shared.states = memory_new(image->window_count, 1);
    if (p->shared.states == NULL) {
        pool_slots_free(&p->slots);
        return FAIL_NOMEM(err, image->window_count);
    }
    p->shares_pool = pool_bytes < pipeline_full_pool_bytes(image);
    assert(!p->shares_pool || pool_bytes >= PIPELINE_MIN_POOL_BYTES);
    set_slots(p);
    lock_init(&p->shared.lock, LOCK_PIPELINE);
    lock_condition_init(&p->shared.changed);
    return SIDESTEP_OK;
}

void pipeline_release(struct pipeline *p)
{
    lock_alone(&p->shared.lock);
    if (p->shared.states == NULL)
        return;
    assert(p->stagers == NULL); /* staging has ended */
    free(p->shared.states);
    p->shared.states = NULL;
    pool_slots_free(&p->slots);
    lock_condition_destroy(&p->shared.changed);
    lock_destroy(&p->shared.lock);
}

void pipeline_fail_locked(struct pipeline *p, const struct sidestep_error *why)
{
    assert(why->status != SIDESTEP_OK);
    if (!p->shared.failed)
        p->shared.err = *why;
    p->shared.failed = true;
    atomic_store(&p->stop, true);
    lock_wake_all(&p->shared.changed);
}

void pipeline_fail(struct pipeline *p, const struct sidestep_error *why)
{
    lock_acquire(&p->shared.lock);
    pipeline_fail_locked(p, why);
    lock_release(&p->shared.lock);
}

void pipeline_get_progress(struct pipeline *p, uint64_t *staged_bytes, uint64_t *written_bytes)
{
    lock_acquire(&p->shared.lock);
    *staged_bytes = p->shared.staged_bytes;
    *written_bytes = p->shared.written_bytes;
    lock_release(&p->shared.lock);
}

/* Locked: acquire a slot for the next window to stage.  False: no window is left, or no slot is
 * free.  Slots are acquired in window order, as pool_slots.h requires. */
static bool acquire_slot(struct pipeline *p) REQUIRES(&p->shared.lock)
{
    bool ahead = p->cow == NULL || atomic_load(&p->copiers_started);

    return p->shared.stage_next < p->image->window_count &&
           pool_slots_acquire(p->slots, p->shared.stage_next,
                              ahead ? POOL_SLOTS_AHEAD : POOL_SLOTS_IN_ORDER) != NULL;
}

/* Take the next window to stage, and wait for a slot.  False: no window is left, or the save has
 * failed. */
static bool take_window(struct pipeline *p, size_t *i)
{
    bool taken = false;

    lock_acquire(&p->shared.lock);
    while (!p->shared.failed && p->shared.stage_next < p->image->window_count &&
           !(taken = acquire_slot(p)))
        lock_wait(&p->shared.lock, &p->shared.changed);
    if (taken)
        *i = p->shared.stage_next++;
    lock_release(&p->shared.lock);
    return taken;
}

/* Stage the part of window ${i} that is not on devices. */
static enum sidestep_status stage_host(struct pipeline *p, size_t i, uint8_t *place,
                                       struct sidestep_error *err)
{
    if (p->cow != NULL)
        return cow_stage(p->cow, p->image, i, err);
    if (p->offload != NULL)
        TRY(offload_wait_eager(p->offload, err));
    if (!p->host_copied)
        return image_stage_window(p->image, i, place, err);
    image_stage_non_tensor_data(p->image, i, place);
    return SIDESTEP_OK;
}

static bool stage_window(struct pipeline *p, size_t i)
{
    struct sidestep_error why = {0};
    uint8_t *place = pool_slots_get(p->slots, i);
    assert(place != NULL); /* take_window() or a fault handler has acquired it */
    enum sidestep_status status = stage_host(p, i, place, &why);

    if (status == SIDESTEP_OK && p->offload != NULL)
        status = offload_stage(p->offload, i, place, &why);
    if (status == SIDESTEP_OK)
        return true;
    pipeline_fail(p, &why);
    return false;
}

void pipeline_count_staged(struct pipeline *p, size_t i)
{
    lock_acquire(&p->shared.lock);
    assert(p->shared.states[i] == WINDOW_EMPTY);
    assert(p->shared.staged < p->image->window_count);
    p->shared.states[i] = WINDOW_STAGED;
    p->shared.staged_bytes += p->image->windows[i].bytes;
    bool last = ++p->shared.staged == p->image->window_count;
    lock_wake_all(&p->shared.changed);
    lock_release(&p->shared.lock);
    if (last && p->released != NULL)
        p->released(p->context);
}

bool pipeline_stage_taken(struct pipeline *p, size_t i)
{
    if (!stage_window(p, i))
        return false;
    pipeline_count_staged(p, i);
    return true;
}

static void stage_windows(void *context)
{
    struct pipeline *p = context;
    size_t i;

    while (take_window(p, &i) && pipeline_stage_taken(p, i)) {
    }
}

void pipeline_stage(struct pipeline *p, struct workers *workers)
{
    assert(p->cow == NULL && p->stagers == NULL); /* the background stages nothing */
    workers_run(workers, stage_windows, p);
}

bool pipeline_protect(struct pipeline *p, struct cow *cow, struct workers *workers,
                      void (*released)(void *context), void *context)
{
    assert(p->cow == NULL && p->stagers == NULL);
    if (!cow_begin_snapshot(cow, p->image, p->slots, p->pool, workers)) {
        set_slots(p);
        return false;
    }
    p->cow = cow;
    p->shares_pool = false;
    p->released = released;
    p->context = context;
    p->stagers = workers;
    return true;
}

uint8_t *pipeline_reserve_eager(struct pipeline *p, uint64_t bytes)
{
    uint64_t length = p->pool_bytes;

    assert(p->shares_pool);
    bytes = round_up(bytes, image_align());
    if (bytes > length / 2 || length - bytes < PIPELINE_MIN_POOL_BYTES)
        return NULL;
    length = round_down(length - bytes, image_align());
    pool_slots_set_shared(p->slots, p->pool->bytes + bytes, length, length);
    return p->pool->bytes;
}

/* The copy of tensors in host memory, in the call. */
struct host_copy {
    struct pipeline *p;
    atomic_size_t next; /* window */
};

static void copy_host(void *context)
{
    struct host_copy *copy = context;
    struct pipeline *p = copy->p;
    struct sidestep_error why = {0};

    for (size_t i; (i = atomic_fetch_add(&copy->next, 1)) < p->image->window_count;)
        if (image_stage_tensor_data(p->image, i, NULL, pool_slots_get(p->slots, i), &why) !=
            SIDESTEP_OK)
            pipeline_fail(p, &why);
}

/* To wake other threads takes as long as to copy so much. */
#define HOST_COPY_ALONE_BYTES ((uint64_t)1 << 20)

/* How many threads copy what a state of tensors on devices has in host memory. */
static unsigned host_copy_width(const struct pipeline *p, const struct workers *workers)
{
    uint64_t bytes = p->image->body_bytes - min_u64(p->image->body_bytes, p->offload->bytes);

    return bytes < HOST_COPY_ALONE_BYTES ? 1 : workers_count(workers) + 1;
}

void pipeline_defer_staging(struct pipeline *p, struct workers *workers,
                            void (*released)(void *context), void *context)
{
    struct host_copy copy = {.p = p};

    if (p->offload != NULL && p->cow == NULL && !p->shares_pool) {
        workers_run_limited(workers, host_copy_width(p, workers), copy_host, &copy);
        p->host_copied = true;
    }
    p->released = released;
    p->context = context;
    p->stagers = workers;
}

/* Background copier: waits for enough page faults, then stages windows ahead of the writers. */
static void copy_ahead(void *context)
{
    struct pipeline *p = context;
    struct thread_time began;
    size_t i;

    if (p->cow != NULL && !cow_wait_for_faults(p->cow, p->fault_threshold))
        return;
    thread_time_read(&began);
    atomic_store(&p->copiers_started, true);
    while (take_window(p, &i) && pipeline_stage_taken(p, i))
        atomic_fetch_add(&p->ahead_bytes, p->image->windows[i].bytes);
    pipeline_count_time(p, &began);
}

void pipeline_start_staging(struct pipeline *p, uint64_t fault_threshold)
{
    assert(p->stagers != NULL && p->released != NULL);
    assert(p->cow != NULL || fault_threshold == 0); /* without protection there are no faults */
    p->fault_threshold = fault_threshold;
    p->writers_stage = fault_threshold != 0 || workers_count(p->stagers) == 0;
    p->staging = (struct workers_job){.run = copy_ahead, .context = p};
    workers_start(p->stagers, &p->staging, PIPELINE_COPIERS);
}

void pipeline_finish_staging(struct pipeline *p)
{
    if (p->stagers != NULL) {
        if (p->cow != NULL)
            cow_cancel_fault_wait(p->cow);
        workers_wait(p->stagers, &p->staging);
        p->stagers = NULL;
        if (p->cow != NULL)
            cow_end_snapshot(p->cow);
    }
    if (p->offload != NULL && atomic_load(&p->stop))
        offload_drain(p->offload);
}

bool pipeline_stage_next(struct pipeline *p)
{
    if (!p->writers_stage || p->shared.stage_next >= p->end_window || !acquire_slot(p))
        return false;
    size_t i = p->shared.stage_next++;
    lock_release(&p->shared.lock);
    uint64_t held_ns = pipeline_acquire_bandwidth(p, 0); /* a pause also delays copies */
    (void)pipeline_stage_taken(p, i);
    lock_acquire(&p->shared.lock);
    p->shared.held_ns += held_ns;
    return true;
}

void pipeline_trim_pool(struct pipeline *p)
{
    if (p->cow != NULL && p->trims_pool && !p->pool_is_pinned)
        pool_trim(p->pool, pool_slots_first_unused(p->slots));
}
