/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_write.c -- the threads that hash the windows of an image and write them; see
 * pipeline.h. */
#include "save/pipeline_internal.h"

#include <assert.h>
#include <errno.h>

#include "base/base.h"

/* One file of the image while it is written. */
struct write_job {
    struct pipeline *p;
    struct store_file *file;              /* NULL: ${target} chooses */
    const struct pipeline_target *target; /* NULL: everything goes to ${file} */
    uint64_t begin;                       /* offset in the image where ${file} begins */
    const struct pipeline_writers *writers;
};

/* One thread that writes. */
struct writer {
    struct pipeline *p;
    const struct write_job *job;
    struct store_queue queue;
    struct store_request requests[STORE_QUEUE_MAX_DEPTH];
    struct store_request *free; /* list of unused requests */
};

/* Locked: count window ${i} as hashed. */
static void count_hashed(struct pipeline *p, size_t i) REQUIRES(&p->shared.lock)
{
    assert(p->shared.states[i] == WINDOW_STAGED);
    p->shared.states[i] = WINDOW_HASHED;
    while (p->shared.hashed < p->image->window_count &&
           p->shared.states[p->shared.hashed] == WINDOW_HASHED)
        p->shared.hashed++;
    assert(p->shared.hashed <= p->shared.hash_next);
    lock_wake_all(&p->shared.changed);
}

bool pipeline_can_hash(const struct pipeline *p)
{
    size_t i = p->shared.hash_next;

    return i < p->image->window_count && p->shared.states[i] == WINDOW_STAGED;
}

void pipeline_hash_next(struct pipeline *p)
{
    assert(pipeline_can_hash(p));
    size_t i = p->shared.hash_next++;

    lock_release(&p->shared.lock);
    image_hash(p->image, i, pool_slots_get(p->slots, i));
    lock_acquire(&p->shared.lock);
    count_hashed(p, i);
}

/* Finish window ${i} and return the file to write it to (NULL: do not write it).  ${*held_ns}: how
 * long the throttle delayed it. */
static enum sidestep_status finish_window(const struct writer *writer, size_t i,
                                          struct store_file **file, uint64_t *held_ns,
                                          struct sidestep_error *err)
{
    const struct write_job *job = writer->job;
    struct pipeline *p = writer->p;

    *file = job->file;
    if (job->target != NULL)
        TRY(job->target->choose(job->target->context, i, file, err));
    if (*file != NULL)
        *held_ns = pipeline_acquire_bandwidth(p, p->image->windows[i].bytes);
    return image_finish_window(p->image, i, pool_slots_get(p->slots, i), err);
}

void pipeline_window_done(struct pipeline *p, size_t i)
{
    assert(p->shared.written < p->shared.hashed && p->shared.written < p->shared.staged);
    /* Hashing does not read states before ${hashed} any more. */
    p->shared.states[i] = WINDOW_WRITTEN;
    pool_slots_return(p->slots, i);
    if (p->cow != NULL)
        cow_retry_waiters(p->cow);
    p->shared.written++;
    lock_wake_all(&p->shared.changed);
}

/* Locked: window ${i} is written, or need not be. */
static void count_written(struct pipeline *p, size_t i) REQUIRES(&p->shared.lock)
{
    p->shared.written_bytes += p->image->windows[i].bytes;
    pipeline_window_done(p, i);
}

/* Locked: finish window ${i}, which is taken, and start to write it.  Releases the lock in the
 * meantime. */
static void start_window(struct writer *writer, size_t i) REQUIRES(&writer->p->shared.lock)
{
    const struct image_window *w = &writer->p->image->windows[i];
    struct store_request *request = writer->free;
    struct sidestep_error why = {0};
    struct store_file *file;
    uint64_t held_ns = 0;

    assert(request != NULL && i < writer->p->end_window);
    lock_release(&writer->p->shared.lock);
    enum sidestep_status status = finish_window(writer, i, &file, &held_ns, &why);
    if (status == SIDESTEP_OK && file != NULL) {
        writer->free = request->next;
        *request = (struct store_request){.file = file,
                                          .memory = pool_slots_get(writer->p->slots, i),
                                          .bytes = w->bytes,
                                          .offset = w->offset - writer->job->begin,
                                          .is_write = true,
                                          .tag = i};
        store_queue_submit(&writer->queue, request);
    }
    lock_acquire(&writer->p->shared.lock);
    writer->p->shared.held_ns += held_ns;
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(writer->p, &why);
    else if (file == NULL)
        count_written(writer->p, i);
}

/* Locked: the window of ${request} is written, or the write has failed. */
static void end_window(struct writer *writer, struct store_request *request)
    REQUIRES(&writer->p->shared.lock)
{
    if (request->status != SIDESTEP_OK)
        pipeline_fail_locked(writer->p, &request->err);
    else
        count_written(writer->p, request->tag);
    request->next = writer->free;
    writer->free = request;
}

/* Locked: wait until a write of this thread ends.  Releases the lock in the meantime. */
static void wait_for_window(struct writer *writer) REQUIRES(&writer->p->shared.lock)
{
    lock_release(&writer->p->shared.lock);
    struct store_request *request = store_queue_wait(&writer->queue);
    lock_acquire(&writer->p->shared.lock);
    end_window(writer, request);
}

/* Locked: take one step.  Steps that keep the disk busy come first. */
static void write_step(struct writer *writer) REQUIRES(&writer->p->shared.lock)
{
    struct store_request *done = store_queue_poll(&writer->queue);

    if (done != NULL) {
        end_window(writer, done);
    } else if (pipeline_can_start_write(writer->p) && store_queue_has_room(&writer->queue)) {
        start_window(writer, writer->p->shared.write_next++);
    } else if (pipeline_can_hash(writer->p)) {
        pipeline_hash_next(writer->p);
    } else if (pipeline_stage_next(writer->p)) {
        return;
    } else if (writer->queue.in_flight != 0) {
        wait_for_window(writer);
    } else {
        lock_wait(&writer->p->shared.lock, &writer->p->shared.changed);
    }
}

static void write_windows(void *context)
{
    const struct write_job *job = context;
    struct pipeline *p = job->p;
    struct writer writer = {.p = p, .job = job};
    struct thread_time began;

    pipeline_writer_begin(p, &began);
    store_queue_open(&writer.queue, job->writers->config, job->writers->threads);
    for (unsigned i = 0; i < writer.queue.depth; i++) {
        writer.requests[i].next = writer.free;
        writer.free = &writer.requests[i];
    }
    lock_acquire(&writer.p->shared.lock);
    while (!p->shared.failed && p->shared.written < p->end_window) {
        write_step(&writer);
        pipeline_restore_priority(p);
    }
    p->shared.used_ring = p->shared.used_ring || writer.queue.ring_count != 0;
    lock_release(&writer.p->shared.lock);
    store_queue_close(&writer.queue); /* after a failure, requests may still read the pool */
    pipeline_writer_end(p, &began);
}

static enum sidestep_status first_failure(struct pipeline *p, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&p->shared.lock);
    if (p->shared.failed) {
        error_copy(err, &p->shared.err);
        status = (enum sidestep_status)p->shared.err.status;
    }
    lock_release(&p->shared.lock);
    return status;
}

enum sidestep_status pipeline_finish(struct pipeline *p, struct sidestep_error *err)
{
    pipeline_finish_staging(p);
    return first_failure(p, err);
}

enum sidestep_status pipeline_write_unchanged(struct pipeline *p,
                                              const struct pipeline_target *target,
                                              const struct pipeline_writers *writers,
                                              struct sidestep_error *err)
{
    struct write_job job = {.p = p, .target = target, .writers = writers};

    assert(p->image->unchanged_file_windows != 0);
    p->end_window = p->image->unchanged_file_windows;
    workers_run_limited(writers->workers, writers->threads, write_windows, &job);
    p->end_window = p->image->window_count;
    return first_failure(p, err);
}

enum sidestep_status pipeline_write(struct pipeline *p, struct store_file *file,
                                    const struct pipeline_writers *writers,
                                    struct sidestep_error *err)
{
    struct write_job job = {
        .p = p, .file = file, .begin = p->image->unchanged_file_bytes, .writers = writers};

    assert(p->end_window == p->image->window_count);
    workers_run_limited(writers->workers, writers->threads, write_windows, &job);
    return pipeline_finish(p, err);
}
