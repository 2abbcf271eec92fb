/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_write.c -- the threads that hash the windows of an image and write them; see pipeline.h.
 */
#include "save/pipeline_internal.h"

#include <assert.h>
#include <errno.h>

#include "base/base.h"

/* Windows that are hashed where they lie, before it is their turn to be written. */
#define PIPELINE_LIVE_AHEAD 4u

/* What is written now: one of the image's files. */
struct writing {
    struct pipeline *p;
    struct store_file *file;              /* NULL: see ${choice} */
    const struct pipeline_target *choice; /* NULL: all goes to ${file} ... */
    uint64_t begin;                       /* ... which begins here, in the image */
    const struct pipeline_writers *crew;
};

/* One thread of those that write. */
struct writer {
    struct pipeline *p;
    const struct writing *writing;
    struct store_queue queue;
    struct store_request requests[STORE_QUEUE_MAX_DEPTH];
    struct store_request *free; /* a list */
};

/* Locked. */
static void count_hashed(struct pipeline *p, size_t i)
{
    p->shared.states[i] = WINDOW_HASHED;
    while (p->shared.hashed < p->image->window_count &&
           p->shared.states[p->shared.hashed] == WINDOW_HASHED)
        p->shared.hashed++;
    pthread_cond_broadcast(&p->shared.changed);
}

/* Locked: has window ${i}'s turn to be hashed come, as far as other windows are concerned? */
static bool hash_follows(const struct pipeline *p, size_t i)
{
    return !image_hash_needs_previous(p->image, i) || p->shared.states[i - 1] >= WINDOW_HASHED;
}

bool pipeline_can_hash(const struct pipeline *p)
{
    size_t i = p->shared.hash_next;

    return i < p->image->window_count && p->shared.states[i] == WINDOW_STAGED && hash_follows(p, i);
}

void pipeline_hash_next(struct pipeline *p)
{
    size_t i = p->shared.hash_next++;

    pthread_mutex_unlock(&p->shared.lock);
    image_hash(p->image, i, pool_slots_get(p->places, i));
    pthread_mutex_lock(&p->shared.lock);
    count_hashed(p, i);
}

/* May ${file} take ${bytes} from ${memory}, without a copy by the store's own threads? */
static bool takes_from(const struct writing *writing, const void *memory,
                       const struct image_window *w)
{
    struct store_file *file = writing->file;

    if (file == NULL || store_file_alignment(file) == 0)
        return true; /* it is not written, most likely, or copied by the kernel in any case */
    const struct store_ops *ops = file->store->ops;
    return ops->file_async_fd != NULL &&
           ops->file_async_fd(file, memory, w->bytes, w->offset - writing->begin, true) >= 0;
}

/* Locked: is window ${i} to be hashed and written where it lies?  Not once copiers run: they are
 * faster than those who write. */
static bool is_live(const struct writer *writer, size_t i)
{
    const struct pipeline *p = writer->p;

    if (p->cow == NULL || !p->writers_stage || atomic_load(&p->copiers_run) || i >= p->until)
        return false;
    const uint8_t *memory = cow_zero_copy_address(p->cow, p->image, i);
    return memory != NULL && takes_from(writer->writing, memory, &p->image->windows[i]);
}

/* Locked: is it time for the next one of them?  No more than can soon be written: who writes to the
 * tensor waits for that. */
static bool next_is_live(const struct writer *writer)
{
    const struct pipeline *p = writer->p;
    size_t i = p->shared.hash_next;

    return i == p->shared.stage_next && i - p->shared.write_next < PIPELINE_LIVE_AHEAD &&
           is_live(writer, i) && hash_follows(p, i);
}

/* Locked: take window ${i} for that; the lock is released meanwhile. */
static void hash_live(struct writer *writer, size_t i)
{
    struct pipeline *p = writer->p;
    struct sidestep_error why = {0};
    bool live, hashed;

    pthread_mutex_unlock(&p->shared.lock);
    hashed = cow_begin_zero_copy(p->cow, p->image, i, &live, &why) == SIDESTEP_OK;
    if (!hashed) {
        pipeline_fail(p, &why);
    } else if (!live && (hashed = pipeline_stage_taken(p, i))) {
        image_hash(p->image, i, pool_slots_get(p->places, i));
    } else if (live && fault_hit("pipeline.early")) {
        (void)cow_end_zero_copy(p->cow, p->image, i, NULL); /* wrong: tests must see that */
    }
    pthread_mutex_lock(&p->shared.lock);
    p->shared.live[i] = live;
    if (hashed)
        count_hashed(p, i);
}

/* Where window ${i} is written from.  Who writes only reads it, but for the tails of items, which
 * no inner window has. */
static uint8_t *window_memory(struct pipeline *p, size_t i)
{
    return p->shared.live[i] ? cow_zero_copy_address(p->cow, p->image, i)
                             : pool_slots_get(p->places, i);
}

/* Where window ${i} goes, once it is finished; NULL: nowhere.  ${*held_ns}: what it was held back
 * for others. */
static enum sidestep_status finish_window(const struct writer *writer, size_t i,
                                          struct store_file **file, uint64_t *held_ns,
                                          struct sidestep_error *err)
{
    const struct writing *writing = writer->writing;
    struct pipeline *p = writer->p;

    *file = writing->file;
    if (writing->choice != NULL)
        TRY(writing->choice->choose(writing->choice->context, i, file, err));
    if (*file != NULL)
        *held_ns = pipeline_acquire_bandwidth(p, p->image->windows[i].bytes);
    return image_finish_window(p->image, i, window_memory(p, i), err);
}

static void count_written(struct pipeline *p, size_t i);

/* Locked: finish window ${i}, which is taken, and start to write it; the lock is released
 * meanwhile. */
static void start_window(struct writer *writer, size_t i)
{
    struct pipeline *p = writer->p;
    const struct image_window *w = &p->image->windows[i];
    struct store_request *request = writer->free;
    struct sidestep_error why = {0};
    struct store_file *file;
    uint64_t held_ns = 0;

    pthread_mutex_unlock(&p->shared.lock);
    enum sidestep_status status = finish_window(writer, i, &file, &held_ns, &why);
    if (status == SIDESTEP_OK && file != NULL) {
        writer->free = request->next;
        *request = (struct store_request){.file = file,
                                          .memory = window_memory(p, i),
                                          .bytes = w->bytes,
                                          .offset = w->offset - writer->writing->begin,
                                          .is_write = true,
                                          .tag = i};
        store_queue_submit(&writer->queue, request);
    }
    pthread_mutex_lock(&p->shared.lock);
    p->shared.held_ns += held_ns;
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(p, &why);
    else if (file == NULL)
        count_written(p, i);
}

void pipeline_window_done(struct pipeline *p, size_t i)
{
    /* States before ${hashed} are not looked at for hashing any more. */
    p->shared.states[i] = WINDOW_WRITTEN;
    pool_slots_return(p->places, i);
    if (p->cow != NULL)
        cow_retry_waiters(p->cow);
    p->shared.written++;
    pthread_cond_broadcast(&p->shared.changed);
}

/* Locked, but not meanwhile: live window ${i} is written, so staged; false: the save has failed. */
static bool end_live(struct pipeline *p, size_t i)
{
    struct sidestep_error why = {0};

    pthread_mutex_unlock(&p->shared.lock);
    if (cow_end_zero_copy(p->cow, p->image, i, &why) == SIDESTEP_OK)
        pipeline_count_staged(p, i);
    else
        pipeline_fail(p, &why);
    pthread_mutex_lock(&p->shared.lock);
    p->shared.live_bytes += p->image->windows[i].bytes;
    return why.status == SIDESTEP_OK;
}

/* Locked: window ${i} is written, or need not be. */
static void count_written(struct pipeline *p, size_t i)
{
    if (p->shared.live[i] && !end_live(p, i))
        return;
    p->shared.written_bytes += p->image->windows[i].bytes;
    pipeline_window_done(p, i);
}

/* Locked, but not meanwhile: the window of ${request} could not be written.  Where its memory was
 * taken away, the reason names the tensor instead of the file. */
static void fail_window(struct pipeline *p, const struct store_request *request)
{
    bool no_memory = request->err.sys_errno == EFAULT && p->shared.live[request->tag];

    if (!no_memory || end_live(p, request->tag))
        pipeline_fail_locked(p, &request->err);
}

/* Locked: the window of ${request} is written, or the write has failed. */
static void end_window(struct writer *writer, struct store_request *request)
{
    struct pipeline *p = writer->p;

    if (request->status != SIDESTEP_OK)
        fail_window(p, request);
    else
        count_written(p, request->tag);
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

    if (done != NULL) {
        end_window(writer, done);
    } else if (pipeline_can_start_write(p) && store_queue_has_room(&writer->queue)) {
        start_window(writer, p->shared.write_next++);
    } else if (pipeline_can_hash(p)) {
        pipeline_hash_next(p);
    } else if (next_is_live(writer)) {
        p->shared.stage_next++;
        hash_live(writer, p->shared.hash_next++);
    } else if (!is_live(writer, p->shared.stage_next) && pipeline_stage_next(p)) {
        return;
    } else if (writer->queue.in_flight != 0) {
        wait_for_window(writer);
    } else {
        pthread_cond_wait(&p->shared.changed, &p->shared.lock);
    }
}

static void write_windows(void *context)
{
    const struct writing *writing = context;
    struct pipeline *p = writing->p;
    struct writer writer = {.p = p, .writing = writing};

    pipeline_writer_begin(p);
    store_queue_open(&writer.queue, writing->crew->kind, writing->crew->threads);
    for (unsigned i = 0; i < writer.queue.depth; i++) {
        writer.requests[i].next = writer.free;
        writer.free = &writer.requests[i];
    }
    pthread_mutex_lock(&p->shared.lock);
    while (!p->shared.failed && p->shared.written < p->until) {
        write_step(&writer);
        pipeline_restore_priority(p);
    }
    p->shared.used_ring = p->shared.used_ring || writer.queue.ring_count != 0;
    pthread_mutex_unlock(&p->shared.lock);
    store_queue_close(&writer.queue); /* after a failure, requests may still read the pool */
    pipeline_writer_end(p);
}

static enum sidestep_status first_failure(const struct pipeline *p, struct sidestep_error *err)
{
    if (!p->shared.failed)
        return SIDESTEP_OK;
    error_copy(err, &p->shared.err);
    return (enum sidestep_status)p->shared.err.status;
}

enum sidestep_status pipeline_finish(struct pipeline *p, struct sidestep_error *err)
{
    pipeline_finish_staging(p);
    return first_failure(p, err);
}

enum sidestep_status pipeline_write_unchanged(struct pipeline *p,
                                              const struct pipeline_target *choice,
                                              const struct pipeline_writers *crew,
                                              struct sidestep_error *err)
{
    struct writing writing = {.p = p, .choice = choice, .crew = crew};

    assert(p->image->kept_windows != 0);
    p->until = p->image->kept_windows;
    workers_run_limited(crew->workers, crew->threads, write_windows, &writing);
    p->until = p->image->window_count;
    /* Others may be staging still. */
    pthread_mutex_lock(&p->shared.lock);
    enum sidestep_status status = first_failure(p, err);
    pthread_mutex_unlock(&p->shared.lock);
    return status;
}

enum sidestep_status pipeline_write(struct pipeline *p, struct store_file *file,
                                    const struct pipeline_writers *crew, struct sidestep_error *err)
{
    struct writing writing = {.p = p, .file = file, .begin = p->image->kept_bytes, .crew = crew};

    workers_run_limited(crew->workers, crew->threads, write_windows, &writing);
    return pipeline_finish(p, err);
}
