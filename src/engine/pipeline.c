/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.c -- see pipeline.h. */
#include "engine/pipeline.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"

enum window_state { WINDOW_EMPTY, WINDOW_STAGED, WINDOW_HASHED, WINDOW_WRITTEN };

uint64_t pipeline_wanted_bytes(const struct image *image)
{
    return image->body_bytes != 0 ? image->body_bytes : IMAGE_ALIGN;
}

enum sidestep_status pipeline_init(struct pipeline *p, struct image *image, struct pool *pool,
                                   struct sidestep_error *err)
{
    *p = (struct pipeline){.image = image, .pool = pool->bytes, .pool_bytes = pool->length};
    if (pool->length < pipeline_wanted_bytes(image)) {
        p->slots = pool->length / IMAGE_WINDOW_MAX_BYTES;
        assert(p->slots >= 2);
    }
    p->shared.states = memory_new(image->window_count, 1);
    if (p->shared.states == NULL)
        return FAIL_NOMEM(err, image->window_count);
    pthread_mutex_init(&p->shared.lock, NULL);
    pthread_cond_init(&p->shared.changed, NULL);
    return SIDESTEP_OK;
}

void pipeline_release(struct pipeline *p)
{
    if (p->shared.states == NULL)
        return;
    free(p->shared.states);
    p->shared.states = NULL;
    pthread_cond_destroy(&p->shared.changed);
    pthread_mutex_destroy(&p->shared.lock);
}

static uint8_t *window_buffer(const struct pipeline *p, size_t i)
{
    return p->slots == 0 ? p->pool + p->image->windows[i].offset
                         : p->pool + (i % p->slots) * IMAGE_WINDOW_MAX_BYTES;
}

static void fail_locked(struct pipeline *p, const struct sidestep_error *why)
{
    if (!p->shared.failed)
        p->shared.err = *why;
    p->shared.failed = true;
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->shared.changed);
}

void pipeline_fail(struct pipeline *p, const struct sidestep_error *why)
{
    pthread_mutex_lock(&p->shared.lock);
    fail_locked(p, why);
    pthread_mutex_unlock(&p->shared.lock);
}

void pipeline_progress(struct pipeline *p, uint64_t *staged_bytes, uint64_t *written_bytes)
{
    pthread_mutex_lock(&p->shared.lock);
    *staged_bytes = p->shared.staged_bytes;
    *written_bytes = p->shared.written_bytes;
    pthread_mutex_unlock(&p->shared.lock);
}

/* Locked: is the place of window ${i} free? */
static bool has_place(const struct pipeline *p, size_t i)
{
    return p->slots == 0 || i < p->slots || p->shared.states[i - p->slots] == WINDOW_WRITTEN;
}

/* Take the next window to stage, waiting for its place; false: none left, or failed. */
static bool take_stage(struct pipeline *p, size_t *i)
{
    bool taken = false;

    pthread_mutex_lock(&p->shared.lock);
    *i = p->shared.stage_next;
    if (*i < p->image->window_count && !p->shared.failed) {
        p->shared.stage_next++;
        while (!has_place(p, *i) && !p->shared.failed)
            pthread_cond_wait(&p->shared.changed, &p->shared.lock);
        taken = !p->shared.failed;
    }
    pthread_mutex_unlock(&p->shared.lock);
    return taken;
}

/* What of window ${i} is not on devices. */
static enum sidestep_status stage_host(struct pipeline *p, size_t i, struct sidestep_error *err)
{
    if (p->cow != NULL)
        return cow_stage(p->cow, p->image, i, err);
    if (p->offload != NULL)
        TRY(offload_await_aside(p->offload, err));
    if (p->host_copied)
        image_stage_frame(p->image, i, window_buffer(p, i));
    else
        image_stage(p->image, i, window_buffer(p, i));
    return SIDESTEP_OK;
}

static bool stage_window(struct pipeline *p, size_t i)
{
    struct sidestep_error why = {0};
    enum sidestep_status status = stage_host(p, i, &why);

    if (status == SIDESTEP_OK && p->offload != NULL)
        status = offload_stage(p->offload, i, window_buffer(p, i), &why);
    if (status == SIDESTEP_OK)
        return true;
    pipeline_fail(p, &why);
    return false;
}

/* Count window ${i} as staged; true: it was the last one. */
static bool count_staged(struct pipeline *p, size_t i)
{
    pthread_mutex_lock(&p->shared.lock);
    p->shared.states[i] = WINDOW_STAGED;
    p->shared.staged_bytes += p->image->windows[i].bytes;
    bool last = ++p->shared.staged == p->image->window_count;
    pthread_cond_broadcast(&p->shared.changed);
    pthread_mutex_unlock(&p->shared.lock);
    return last;
}

static void stage_windows(void *context)
{
    struct pipeline *p = context;
    size_t i;

    while (take_stage(p, &i) && stage_window(p, i))
        if (count_staged(p, i) && p->released != NULL)
            p->released(p->context);
}

void pipeline_stage(struct pipeline *p, struct workers *workers)
{
    workers_run(workers, stage_windows, p);
}

void pipeline_hold(struct pipeline *p, struct cow *cow, struct workers *workers,
                   void (*released)(void *context), void *context)
{
    assert(p->slots == 0);
    p->cow = cow;
    p->released = released;
    p->context = context;
    p->stagers = workers;
    cow_arm(cow, p->image, p->pool, workers);
}

void pipeline_offload(struct pipeline *p, struct offload *offload)
{
    p->offload = offload;
}

uint8_t *pipeline_put_aside(struct pipeline *p, uint64_t bytes)
{
    uint8_t *aside = p->pool;

    assert(p->slots != 0);
    bytes = round_up(bytes, IMAGE_ALIGN);
    if (bytes > p->pool_bytes / 2 || p->pool_bytes - bytes < PIPELINE_MIN_POOL_BYTES)
        return NULL;
    p->pool += bytes;
    p->pool_bytes -= bytes;
    p->slots = p->pool_bytes / IMAGE_WINDOW_MAX_BYTES;
    return aside;
}

/* Take windows in the call, for what is in host memory. */
struct host_copy {
    struct pipeline *p;
    atomic_size_t next;
};

static void copy_host(void *context)
{
    struct host_copy *copy = context;
    struct pipeline *p = copy->p;

    for (size_t i; (i = atomic_fetch_add(&copy->next, 1)) < p->image->window_count;)
        image_stage_data(p->image, i, NULL, window_buffer(p, i));
}

void pipeline_leave(struct pipeline *p, struct workers *workers, void (*released)(void *context),
                    void *context)
{
    struct host_copy copy = {.p = p};

    if (p->cow == NULL && p->slots == 0) {
        workers_run(workers, copy_host, &copy);
        p->host_copied = true;
    }
    p->released = released;
    p->context = context;
    p->stagers = workers;
}

void pipeline_start_staging(struct pipeline *p)
{
    p->staging = (struct workers_job){.run = stage_windows, .context = p};
    workers_start(p->stagers, &p->staging, PIPELINE_COPIERS);
}

void pipeline_settle(struct pipeline *p)
{
    if (p->stagers != NULL) {
        stage_windows(p); /* where there is nobody else for it; a no-op else */
        workers_wait(p->stagers, &p->staging);
        p->stagers = NULL;
        if (p->cow != NULL)
            cow_release(p->cow);
    }
    if (p->offload != NULL && atomic_load(&p->stop))
        offload_settle(p->offload);
}

struct writing {
    struct pipeline *p;
    struct store_file *file;
    const struct store_queue_kind *kind;
    unsigned threads;
};

/* One thread of those that write. */
struct writer {
    struct pipeline *p;
    struct store_file *file;
    struct store_queue queue;
    struct store_request requests[STORE_QUEUE_MAX_DEPTH];
    struct store_request *free; /* a list */
};

/* Locked: hash window ${i}, which is taken; the lock is released meanwhile. */
static void hash_window(struct pipeline *p, size_t i)
{
    pthread_mutex_unlock(&p->shared.lock);
    image_hash(p->image, i, window_buffer(p, i));
    pthread_mutex_lock(&p->shared.lock);
    p->shared.states[i] = WINDOW_HASHED;
    while (p->shared.hashed < p->image->window_count &&
           p->shared.states[p->shared.hashed] == WINDOW_HASHED)
        p->shared.hashed++;
    pthread_cond_broadcast(&p->shared.changed);
}

/* Locked: finish window ${i}, which is taken, and start to write it; the lock is released
 * meanwhile. */
static void start_window(struct writer *writer, size_t i)
{
    struct pipeline *p = writer->p;
    const struct image_window *w = &p->image->windows[i];
    struct store_request *request = writer->free;
    struct sidestep_error why = {0};
    uint64_t held_ns = 0;

    pthread_mutex_unlock(&p->shared.lock);
    if (p->neighbour != NULL)
        held_ns = neighbour_take(p->neighbour, w->bytes, p->bytes_per_second, &p->stop);
    if (image_finish(p->image, i, window_buffer(p, i), &why) != SIDESTEP_OK) {
        pipeline_fail(p, &why);
    } else {
        writer->free = request->next;
        *request = (struct store_request){.file = writer->file,
                                          .memory = window_buffer(p, i),
                                          .bytes = w->bytes,
                                          .offset = w->offset,
                                          .is_write = true,
                                          .tag = i};
        store_queue_start(&writer->queue, request);
    }
    pthread_mutex_lock(&p->shared.lock);
    p->shared.held_ns += held_ns;
}

/* Locked: the window of ${request} is written, or the write has failed. */
static void end_window(struct writer *writer, struct store_request *request)
{
    struct pipeline *p = writer->p;

    if (request->status != SIDESTEP_OK) {
        fail_locked(p, &request->err);
    } else {
        /* States before ${hashed} are not looked at for hashing any more. */
        p->shared.states[request->tag] = WINDOW_WRITTEN;
        p->shared.written++;
        p->shared.written_bytes += p->image->windows[request->tag].bytes;
        pthread_cond_broadcast(&p->shared.changed);
    }
    request->next = writer->free;
    writer->free = request;
}

/* Locked: wait for a write of this thread's to end; the lock is released meanwhile. */
static void wait_for_window(struct writer *writer)
{
    struct pipeline *p = writer->p;

    pthread_mutex_unlock(&p->shared.lock);
    struct store_request *request = store_queue_wait(&writer->queue);
    pthread_mutex_lock(&p->shared.lock);
    end_window(writer, request);
}

/* Locked: one step towards the end; what keeps the disk busy comes first. */
static void write_step(struct writer *writer)
{
    struct pipeline *p = writer->p;
    struct store_request *done = store_queue_poll(&writer->queue);

    if (done != NULL)
        end_window(writer, done);
    else if (p->shared.write_next < p->shared.hashed && store_queue_has_room(&writer->queue))
        start_window(writer, p->shared.write_next++);
    else if (p->shared.hash_next < p->image->window_count &&
             p->shared.states[p->shared.hash_next] == WINDOW_STAGED)
        hash_window(p, p->shared.hash_next++);
    else if (writer->queue.in_flight != 0)
        wait_for_window(writer);
    else
        pthread_cond_wait(&p->shared.changed, &p->shared.lock);
}

static void write_windows(void *context)
{
    const struct writing *writing = context;
    struct pipeline *p = writing->p;
    struct writer writer = {.p = p, .file = writing->file};

    if (p->neighbour != NULL)
        neighbour_join(p->neighbour);
    store_queue_open(&writer.queue, writing->kind, writing->threads);
    for (unsigned i = 0; i < writer.queue.depth; i++) {
        writer.requests[i].next = writer.free;
        writer.free = &writer.requests[i];
    }
    pthread_mutex_lock(&p->shared.lock);
    while (!p->shared.failed && p->shared.written < p->image->window_count)
        write_step(&writer);
    p->shared.used_ring = p->shared.used_ring || writer.queue.ring_count != 0;
    pthread_mutex_unlock(&p->shared.lock);
    store_queue_close(&writer.queue); /* after a failure, requests may still read the pool */
    if (p->neighbour != NULL)
        neighbour_leave(p->neighbour);
}

enum sidestep_status pipeline_write(struct pipeline *p, struct store_file *file,
                                    const struct store_queue_kind *kind, struct workers *workers,
                                    struct sidestep_error *err)
{
    struct writing writing = {
        .p = p, .file = file, .kind = kind, .threads = workers_count(workers) + 1};

    if (p->stagers != NULL && workers_count(p->stagers) == 0)
        stage_windows(p);
    workers_run(workers, write_windows, &writing);
    pipeline_settle(p);
    if (!p->shared.failed)
        return SIDESTEP_OK;
    if (err != NULL)
        *err = p->shared.err;
    return (enum sidestep_status)p->shared.err.status;
}
