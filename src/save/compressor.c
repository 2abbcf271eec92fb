/* SPDX-License-Identifier: BSD-3-Clause */
/* compressor.c -- see compressor.h: the threads, and what each does next. */
#include <assert.h>
#include <stdlib.h>

#include "base/base.h"
#include "save/compressor_internal.h"

_Static_assert(SIDESTEP_DTYPE_END <= SIDESTEP_GAINS, "struct sidestep_save_info has room for all");

enum sidestep_status compressor_new(const struct codec *codec, struct clock *clock,
                                    struct compressor **out, struct sidestep_error *err)
{
    struct compressor *press = memory_new(1, sizeof(*press));

    if (press == NULL)
        return FAIL_NOMEM(err, sizeof(*press));
    press->codec = codec;
    press->clock = clock;
    press->shared.full_end = &press->shared.full;
    *out = press;
    return SIDESTEP_OK;
}

void compressor_set_time_limit(struct compressor *press, double ns_per_byte)
{
    press->ns_per_byte = ns_per_byte;
}

void compressor_buffers_release(struct compressor_buffers *room)
{
    for (size_t i = 0; i < room->window_count; i++) {
        buffer_release(&room->windows[i].out);
        buffer_release(&room->windows[i].index);
        free(room->windows[i].parts);
    }
    free(room->windows);
    pool_release(&room->blocks);
    *room = (struct compressor_buffers){0};
}

/* What only compressor_write() needs. */
static void release_work(struct compressor *press)
{
    hash_stream_free(press->tail.hash);
    press->tail.hash = NULL;
    buffer_release(&press->tail.index);
}

void compressor_free(struct compressor **press)
{
    if (*press == NULL)
        return;
    release_work(*press);
    arena_release(&(*press)->arena);
    free(*press);
    *press = NULL;
}

uint64_t compressor_body_bytes(const struct compressor *press)
{
    return press->tail.at;
}

const struct footer_item *compressor_footer_item(const struct compressor *press, size_t i)
{
    return &press->items[i].footer;
}

const struct compressor_gain *compressor_gains(const struct compressor *press)
{
    return press->gains;
}

/* Windows that are encoded while others are: one per thread, and some that wait for their turn. */
static size_t count_windows(unsigned threads)
{
    return (size_t)threads + 2;
}

static size_t count_blocks(const struct store_queue_config *kind, unsigned threads)
{
    return COMPRESSOR_WINDOW_BLOCKS + max_u64(kind->depth, threads) + 1;
}

/* The same for each save of an engine: its threads do not change.  What a save that failed has left
 * in a window is of no use to this one. */
static enum sidestep_status room_prepare(struct compressor_buffers *room, size_t windows,
                                         size_t blocks, struct workers *workers,
                                         struct sidestep_error *err)
{
    TRY(pool_reserve(&room->blocks, blocks * COMPRESSOR_BLOCK_BYTES, workers, err));
    if (room->windows == NULL) {
        room->windows = memory_new(windows, sizeof(*room->windows));
        if (room->windows == NULL)
            return FAIL_NOMEM(err, windows * sizeof(*room->windows));
        room->window_count = windows;
    }
    assert(room->window_count == windows);
    for (size_t i = 0; i < windows; i++) {
        room->windows[i].ready = false;
        room->windows[i].out.failed = false;
        room->windows[i].index.failed = false;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status press_prepare(struct compressor *press, struct pipeline *p,
                                          struct compressor_buffers *room,
                                          const struct store_queue_config *kind,
                                          struct workers *workers, struct sidestep_error *err)
{
    unsigned threads = workers_count(workers) + 1;
    size_t blocks = count_blocks(kind, threads);

    press->p = p;
    press->room = room;
    press->shared.encode_next = press->shared.append_next = p->image->kept_windows;
    TRY(room_prepare(room, count_windows(threads), blocks, workers, err));
    press->items = arena_new(&press->arena, p->image->count, sizeof(*press->items));
    press->blocks = arena_new(&press->arena, blocks, sizeof(*press->blocks));
    press->tail.hash = hash_stream_new();
    if (press->items == NULL || press->blocks == NULL || press->tail.hash == NULL)
        return FAIL_NOMEM(err, p->image->count * sizeof(*press->items));
    for (size_t i = 0; i < p->image->count; i++)
        press->items[i].footer = p->image->items[i].footer;
    for (size_t i = 0; i < blocks; i++) {
        press->blocks[i].bytes = room->blocks.bytes + i * COMPRESSOR_BLOCK_BYTES;
        press->blocks[i].next = press->shared.free;
        press->shared.free = &press->blocks[i];
    }
    press->shared.free_count = blocks;
    return SIDESTEP_OK;
}

/* One thread of those that press. */
struct presser {
    struct compressor *press;
    struct store_file *file;
    struct codec_encoder *encoder;
    struct store_queue queue;
    struct store_request requests[STORE_QUEUE_MAX_DEPTH];
    struct store_request *free; /* a list */
};

/* The functions below: the pipeline's lock is held; what takes time is done without it. */

/* It is to be written next. */
static void give_back_full(struct compressor *press, struct compressor_block *block)
{
    block->next = press->shared.full;
    press->shared.full = block;
    if (block->next == NULL)
        press->shared.full_end = &block->next;
    press->shared.writing--;
    pthread_cond_broadcast(&press->p->shared.changed);
}

/* Take a block and begin to write it.  Where a limit forbids that now: wait (${patient}), or false,
 * for there may be windows to encode meanwhile. */
static bool start_block(struct presser *presser, bool patient)
{
    struct compressor *press = presser->press;
    struct pipeline *p = press->p;
    struct compressor_block *block = press->shared.full;
    struct store_request *request = presser->free;

    press->shared.full = block->next;
    if (press->shared.full == NULL)
        press->shared.full_end = &press->shared.full;
    press->shared.writing++;
    pthread_mutex_unlock(&p->shared.lock);
    uint64_t held_ns = patient ? pipeline_acquire_bandwidth(p, block->length) : 0;
    if (!patient && !pipeline_try_acquire_bandwidth(p, block->length)) {
        pthread_mutex_lock(&p->shared.lock);
        give_back_full(press, block);
        return false;
    }
    presser->free = request->next;
    *request = (struct store_request){.file = presser->file,
                                      .memory = block->bytes,
                                      .bytes = block->length,
                                      .offset = block->offset,
                                      .is_write = true,
                                      .tag = (size_t)(block - press->blocks)};
    store_queue_submit(&presser->queue, request);
    pthread_mutex_lock(&p->shared.lock);
    p->shared.held_ns += held_ns;
    return true;
}

static void end_block(struct presser *presser, struct store_request *request)
{
    struct compressor *press = presser->press;
    struct pipeline *p = press->p;
    struct compressor_block *block = &press->blocks[request->tag];

    if (request->status != SIDESTEP_OK)
        pipeline_fail_locked(p, &request->err);
    p->shared.written_bytes += block->length;
    press->shared.writing--;
    block->next = press->shared.free;
    press->shared.free = block;
    press->shared.free_count++;
    request->next = presser->free;
    presser->free = request;
    pthread_cond_broadcast(&p->shared.changed);
}

static void wait_for_block(struct presser *presser)
{
    struct pipeline *p = presser->press->p;

    pthread_mutex_unlock(&p->shared.lock);
    struct store_request *request = store_queue_wait(&presser->queue);
    pthread_mutex_lock(&p->shared.lock);
    end_block(presser, request);
}

static struct compressed_window *window_at(const struct compressor *press, size_t i)
{
    return &press->room->windows[i % press->room->window_count];
}

static bool may_encode(const struct compressor *press)
{
    return press->shared.encode_next < press->p->shared.hashed &&
           press->shared.encode_next < press->shared.append_next + press->room->window_count;
}

static void encode_next(struct presser *presser)
{
    struct compressor *press = presser->press;
    struct pipeline *p = press->p;
    struct sidestep_error why = {0};
    size_t i = press->shared.encode_next++;

    pthread_mutex_unlock(&p->shared.lock);
    enum sidestep_status status = compressor_encode(press, presser->encoder, i, &why);
    pthread_mutex_lock(&p->shared.lock);
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(p, &why);
    window_at(press, i)->ready = true;
    pthread_cond_broadcast(&p->shared.changed);
}

static bool may_append(const struct compressor *press)
{
    size_t i = press->shared.append_next;

    return !press->shared.appending && i < press->p->image->window_count &&
           window_at(press, i)->ready && press->shared.free_count >= COMPRESSOR_WINDOW_BLOCKS;
}

static void append_next(struct compressor *press)
{
    struct pipeline *p = press->p;
    struct sidestep_error why = {0};
    size_t i = press->shared.append_next;

    press->shared.appending = true;
    pthread_mutex_unlock(&p->shared.lock);
    enum sidestep_status status = compressor_append(press, i, &why);
    pthread_mutex_lock(&p->shared.lock);
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(p, &why);
    press->shared.appending = false;
    window_at(press, i)->ready = false;
    press->shared.append_next++;
    pipeline_window_done(p, i);
}

static bool is_done(const struct compressor *press)
{
    return press->shared.append_next == press->p->image->window_count &&
           press->shared.full == NULL && press->shared.writing == 0;
}

static bool may_start(struct presser *presser)
{
    struct compressor *press = presser->press;

    return press->shared.full != NULL && store_queue_has_room(&presser->queue) &&
           pipeline_can_add_request(press->p, press->shared.writing);
}

/* One step towards the end; what keeps the disk busy comes first. */
static void step(struct presser *presser)
{
    struct compressor *press = presser->press;
    struct pipeline *p = press->p;
    struct store_request *done = store_queue_poll(&presser->queue);

    if (done != NULL)
        end_block(presser, done);
    else if (may_start(presser) && start_block(presser, false))
        return;
    else if (may_append(press))
        append_next(press);
    else if (may_encode(press))
        encode_next(presser);
    else if (pipeline_can_hash(p))
        pipeline_hash_next(p);
    else if (pipeline_stage_next(p))
        return;
    else if (may_start(presser))
        (void)start_block(presser, true);
    else if (presser->queue.in_flight != 0)
        wait_for_block(presser);
    else
        pthread_cond_wait(&p->shared.changed, &p->shared.lock);
}

struct pressing {
    struct compressor *press;
    struct store_file *file;
    const struct store_queue_config *kind;
    unsigned threads;
};

static void press_windows(void *context)
{
    const struct pressing *pressing = context;
    struct compressor *press = pressing->press;
    struct pipeline *p = press->p;
    struct presser presser = {.press = press, .file = pressing->file};
    struct sidestep_error why = {0};

    pipeline_writer_begin(p);
    store_queue_open(&presser.queue, pressing->kind, pressing->threads);
    for (unsigned i = 0; i < presser.queue.depth; i++) {
        presser.requests[i].next = presser.free;
        presser.free = &presser.requests[i];
    }
    if (press->codec->encoder_new(press->codec, &presser.encoder, &why) != SIDESTEP_OK)
        pipeline_fail(p, &why);
    pthread_mutex_lock(&p->shared.lock);
    while (!p->shared.failed && !is_done(press)) {
        step(&presser);
        pipeline_restore_priority(p);
    }
    p->shared.used_ring = p->shared.used_ring || presser.queue.ring_count != 0;
    pthread_mutex_unlock(&p->shared.lock);
    store_queue_close(&presser.queue); /* after a failure, requests may still read the blocks */
    press->codec->encoder_free(presser.encoder);
    pipeline_writer_end(p);
}

enum sidestep_status compressor_write(struct compressor *press, struct pipeline *p,
                                      struct compressor_buffers *room, struct store_file *file,
                                      const struct store_queue_config *kind,
                                      struct workers *workers, struct sidestep_error *err)
{
    struct pressing pressing = {
        .press = press, .file = file, .kind = kind, .threads = workers_count(workers) + 1};
    struct sidestep_error why = {0};

    if (press_prepare(press, p, room, kind, workers, &why) == SIDESTEP_OK)
        workers_run(workers, press_windows, &pressing);
    else
        pipeline_fail(p, &why);
    release_work(press);
    return pipeline_finish(p, err);
}
