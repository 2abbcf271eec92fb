/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor.c -- the threads of a compressing save, and which step each takes next; see
 * compressor.h. */
#include <assert.h>
#include <stdlib.h>

#include "base/base.h"
#include "save/compressor_internal.h"

_Static_assert(SIDESTEP_DTYPE_END <= SIDESTEP_GAINS, "struct sidestep_save_info has room for all");

enum sidestep_status compressor_new(const struct codec *codec, struct clock *clock,
                                    struct compressor **out, struct sidestep_error *err)
{
    struct compressor *compressor = memory_new(1, sizeof(*compressor));

    if (compressor == NULL)
        return FAIL_NOMEM(err, sizeof(*compressor));
    compressor->codec = codec;
    compressor->clock = clock;
    compressor->shared.write_queue_end = &compressor->shared.write_queue;
    *out = compressor;
    return SIDESTEP_OK;
}

void compressor_set_time_limit(struct compressor *compressor, double ns_per_byte)
{
    assert(compressor->p == NULL);
    compressor->ns_per_byte = ns_per_byte;
}

void compressor_buffers_release(struct compressor_buffers *buffers)
{
    for (size_t i = 0; i < buffers->window_count; i++) {
        buffer_release(&buffers->windows[i].out);
        buffer_release(&buffers->windows[i].index);
        free(buffers->windows[i].parts);
    }
    free(buffers->windows);
    pool_release(&buffers->blocks);
    *buffers = (struct compressor_buffers){0};
}

/* Free what only compressor_write() needs. */
static void release_output(struct compressor *compressor)
{
    THREAD_IS(APPENDER); /* the threads have ended */
    hash_stream_free(compressor->output.hash);
    compressor->output.hash = NULL;
    buffer_release(&compressor->output.index);
}

void compressor_free(struct compressor **compressor)
{
    if (*compressor == NULL)
        return;
    release_output(*compressor);
    arena_release(&(*compressor)->arena);
    free(*compressor);
    *compressor = NULL;
}

uint64_t compressor_body_bytes(const struct compressor *compressor)
{
    THREAD_IS(APPENDER);           /* the threads have ended */
    assert(compressor->p != NULL); /* compressor_write() was called */
    return compressor->output.offset;
}

const struct footer_item *compressor_footer_item(const struct compressor *compressor, size_t i)
{
    assert(compressor->p != NULL && i < compressor->p->image->count);
    return &compressor->items[i].footer;
}

const struct compressor_gain *compressor_gains(const struct compressor *compressor)
{
    return compressor->gains;
}

/* Windows that are encoded or wait to be appended: one per thread, and two more. */
static size_t count_windows(unsigned threads)
{
    return (size_t)threads + 2;
}

static size_t count_blocks(const struct store_queue_config *config, unsigned threads)
{
    return COMPRESSOR_WINDOW_BLOCKS + max_u64(config->depth, threads) + 1;
}

/* The counts are the same for each save of an engine, because its number of threads is constant.
 * Clear what a failed save has left in the windows. */
static enum sidestep_status prepare_buffers(struct compressor_buffers *buffers, size_t windows,
                                            size_t blocks, struct workers *workers,
                                            struct sidestep_error *err)
{
    TRY(pool_reserve(&buffers->blocks, blocks * COMPRESSOR_BLOCK_BYTES, workers, err));
    if (buffers->windows == NULL) {
        buffers->windows = memory_new(windows, sizeof(*buffers->windows));
        if (buffers->windows == NULL)
            return FAIL_NOMEM(err, windows * sizeof(*buffers->windows));
        buffers->window_count = windows;
    }
    assert(buffers->window_count == windows);
    for (size_t i = 0; i < windows; i++) {
        buffers->windows[i].ready = false;
        buffers->windows[i].out.failed = false;
        buffers->windows[i].index.failed = false;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status prepare(struct compressor *compressor, struct pipeline *p,
                                    struct compressor_buffers *buffers,
                                    const struct store_queue_config *config,
                                    struct workers *workers, struct sidestep_error *err)
{
    unsigned threads = workers_count(workers) + 1;
    size_t blocks = count_blocks(config, threads);

    THREAD_IS(APPENDER); /* no other thread runs yet */
    assert(compressor->p == NULL);
    compressor->p = p;
    compressor->buffers = buffers;
    compressor->shared.encode_next = compressor->shared.append_next =
        p->image->unchanged_file_windows;
    TRY(prepare_buffers(buffers, count_windows(threads), blocks, workers, err));
    compressor->items = arena_new(&compressor->arena, p->image->count, sizeof(*compressor->items));
    compressor->blocks = arena_new(&compressor->arena, blocks, sizeof(*compressor->blocks));
    compressor->output.hash = hash_stream_new();
    if (compressor->items == NULL || compressor->blocks == NULL || compressor->output.hash == NULL)
        return FAIL_NOMEM(err, p->image->count * sizeof(*compressor->items));
    for (size_t i = 0; i < p->image->count; i++)
        compressor->items[i].footer = p->image->items[i].footer;
    for (size_t i = 0; i < blocks; i++) {
        compressor->blocks[i].bytes = buffers->blocks.bytes + i * COMPRESSOR_BLOCK_BYTES;
        compressor->blocks[i].next = compressor->shared.free;
        compressor->shared.free = &compressor->blocks[i];
    }
    compressor->shared.free_count = blocks;
    return SIDESTEP_OK;
}

/* One thread that compresses and writes. */
struct compressor_thread {
    struct compressor *compressor;
    struct store_file *file;
    struct codec_encoder *encoder;
    struct store_queue queue;
    struct store_request requests[STORE_QUEUE_MAX_DEPTH];
    struct store_request *free; /* list of unused requests */
};

/* The functions below release the lock of the pipeline for slow work. */

/* Put ${block} back to the front of the write queue. */
static void return_full_block(struct compressor *compressor, struct compressor_block *block)
    REQUIRES(&compressor->p->shared.lock)
{
    block->next = compressor->shared.write_queue;
    compressor->shared.write_queue = block;
    if (block->next == NULL)
        compressor->shared.write_queue_end = &block->next;
    assert(compressor->shared.writing != 0);
    compressor->shared.writing--;
    lock_wake_all(&compressor->p->shared.changed);
}

/* Take a full block and start to write it.  If the bandwidth limit forbids that now: wait if
 * ${waits}, otherwise return false, because this thread may have windows to encode. */
static bool start_block(struct compressor_thread *thread, bool waits)
    REQUIRES(&thread->compressor->p->shared.lock)
{
    struct compressor_block *block = thread->compressor->shared.write_queue;
    struct store_request *request = thread->free;

    assert(block != NULL && request != NULL);
    thread->compressor->shared.write_queue = block->next;
    if (thread->compressor->shared.write_queue == NULL)
        thread->compressor->shared.write_queue_end = &thread->compressor->shared.write_queue;
    thread->compressor->shared.writing++;
    lock_release(&thread->compressor->p->shared.lock);
    uint64_t held_ns = waits ? pipeline_acquire_bandwidth(thread->compressor->p, block->length) : 0;
    if (!waits && !pipeline_try_acquire_bandwidth(thread->compressor->p, block->length)) {
        lock_acquire(&thread->compressor->p->shared.lock);
        return_full_block(thread->compressor, block);
        return false;
    }
    thread->free = request->next;
    *request = (struct store_request){.file = thread->file,
                                      .memory = block->bytes,
                                      .bytes = block->length,
                                      .offset = block->offset,
                                      .is_write = true,
                                      .tag = (size_t)(block - thread->compressor->blocks)};
    store_queue_submit(&thread->queue, request);
    lock_acquire(&thread->compressor->p->shared.lock);
    thread->compressor->p->shared.held_ns += held_ns;
    return true;
}

static void end_block(struct compressor_thread *thread, struct store_request *request)
    REQUIRES(&thread->compressor->p->shared.lock)
{
    struct compressor_block *block = &thread->compressor->blocks[request->tag];

    if (request->status != SIDESTEP_OK)
        pipeline_fail_locked(thread->compressor->p, &request->err);
    thread->compressor->p->shared.written_bytes += block->length;
    assert(thread->compressor->shared.writing != 0);
    thread->compressor->shared.writing--;
    block->next = thread->compressor->shared.free;
    thread->compressor->shared.free = block;
    thread->compressor->shared.free_count++;
    request->next = thread->free;
    thread->free = request;
    lock_wake_all(&thread->compressor->p->shared.changed);
}

static void wait_for_block(struct compressor_thread *thread)
    REQUIRES(&thread->compressor->p->shared.lock)
{
    lock_release(&thread->compressor->p->shared.lock);
    struct store_request *request = store_queue_wait(&thread->queue);
    lock_acquire(&thread->compressor->p->shared.lock);
    end_block(thread, request);
}

static bool may_encode(const struct compressor *compressor) REQUIRES(&compressor->p->shared.lock)
{
    return compressor->shared.encode_next < compressor->p->shared.hashed &&
           compressor->shared.encode_next <
               compressor->shared.append_next + compressor->buffers->window_count;
}

static void encode_next(struct compressor_thread *thread)
    REQUIRES(&thread->compressor->p->shared.lock)
{
    struct sidestep_error why = {0};
    size_t i = thread->compressor->shared.encode_next++;

    lock_release(&thread->compressor->p->shared.lock);
    enum sidestep_status status = compressor_encode(thread->compressor, thread->encoder, i, &why);
    lock_acquire(&thread->compressor->p->shared.lock);
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(thread->compressor->p, &why);
    assert(!compressor_window_at(thread->compressor, i)->ready);
    compressor_window_at(thread->compressor, i)->ready = true;
    lock_wake_all(&thread->compressor->p->shared.changed);
}

static bool may_append(const struct compressor *compressor) REQUIRES(&compressor->p->shared.lock)
{
    size_t i = compressor->shared.append_next;

    return !compressor->shared.appending && i < compressor->p->image->window_count &&
           compressor_window_at(compressor, i)->ready &&
           compressor->shared.free_count >= COMPRESSOR_WINDOW_BLOCKS;
}

static void append_next(struct compressor *compressor) REQUIRES(&compressor->p->shared.lock)
{
    struct sidestep_error why = {0};
    size_t i = compressor->shared.append_next;

    assert(!compressor->shared.appending && compressor_window_at(compressor, i)->ready);
    compressor->shared.appending = true;
    THREAD_IS(APPENDER); /* until the flag is cleared */
    lock_release(&compressor->p->shared.lock);
    enum sidestep_status status = compressor_append(compressor, i, &why);
    lock_acquire(&compressor->p->shared.lock);
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(compressor->p, &why);
    compressor->shared.appending = false;
    compressor_window_at(compressor, i)->ready = false;
    compressor->shared.append_next++;
    pipeline_window_done(compressor->p, i);
}

static bool is_done(const struct compressor *compressor) REQUIRES(&compressor->p->shared.lock)
{
    return compressor->shared.append_next == compressor->p->image->window_count &&
           compressor->shared.write_queue == NULL && compressor->shared.writing == 0;
}

static bool may_start(struct compressor_thread *thread)
    REQUIRES(&thread->compressor->p->shared.lock)
{
    return thread->compressor->shared.write_queue != NULL && store_queue_has_room(&thread->queue) &&
           pipeline_can_add_request(thread->compressor->p, thread->compressor->shared.writing);
}

/* Take one step.  Steps that keep the disk busy come first. */
static void step(struct compressor_thread *thread) REQUIRES(&thread->compressor->p->shared.lock)
{
    struct store_request *done = store_queue_poll(&thread->queue);

    if (done != NULL)
        end_block(thread, done);
    else if (may_start(thread) && start_block(thread, false))
        return;
    else if (may_append(thread->compressor))
        append_next(thread->compressor);
    else if (may_encode(thread->compressor))
        encode_next(thread);
    else if (pipeline_can_hash(thread->compressor->p))
        pipeline_hash_next(thread->compressor->p);
    else if (pipeline_stage_next(thread->compressor->p))
        return;
    else if (may_start(thread))
        (void)start_block(thread, true);
    else if (thread->queue.in_flight != 0)
        wait_for_block(thread);
    else
        lock_wait(&thread->compressor->p->shared.lock, &thread->compressor->p->shared.changed);
}

struct compress_job {
    struct compressor *compressor;
    struct store_file *file;
    const struct store_queue_config *config;
    unsigned threads;
};

static void compress_windows(void *context)
{
    const struct compress_job *job = context;
    struct compressor *compressor = job->compressor;
    struct pipeline *p = compressor->p;
    struct compressor_thread thread = {.compressor = compressor, .file = job->file};
    struct sidestep_error why = {0};
    struct thread_time began;

    pipeline_writer_begin(p, &began);
    store_queue_open(&thread.queue, job->config, job->threads);
    for (unsigned i = 0; i < thread.queue.depth; i++) {
        thread.requests[i].next = thread.free;
        thread.free = &thread.requests[i];
    }
    if (compressor->codec->encoder_new(compressor->codec, &thread.encoder, &why) != SIDESTEP_OK)
        pipeline_fail(p, &why);
    lock_acquire(&thread.compressor->p->shared.lock);
    while (!p->shared.failed && !is_done(thread.compressor)) {
        step(&thread);
        pipeline_restore_priority(p);
    }
    p->shared.used_ring = p->shared.used_ring || thread.queue.ring_count != 0;
    lock_release(&thread.compressor->p->shared.lock);
    store_queue_close(&thread.queue); /* after a failure, requests may still read the blocks */
    compressor->codec->encoder_free(thread.encoder);
    pipeline_writer_end(p, &began);
}

enum sidestep_status compressor_write(struct compressor *compressor, struct pipeline *p,
                                      struct compressor_buffers *buffers, struct store_file *file,
                                      const struct store_queue_config *config,
                                      struct workers *workers, struct sidestep_error *err)
{
    struct compress_job job = {.compressor = compressor,
                               .file = file,
                               .config = config,
                               .threads = workers_count(workers) + 1};
    struct sidestep_error why = {0};

    if (prepare(compressor, p, buffers, config, workers, &why) == SIDESTEP_OK)
        workers_run(workers, compress_windows, &job);
    else
        pipeline_fail(p, &why);
    release_output(compressor);
    return pipeline_finish(p, err);
}
