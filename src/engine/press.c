/* SPDX-License-Identifier: BSD-3-Clause */
/* press.c -- see press.h: the threads, and what each does next. */
#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "engine/press_inside.h"

_Static_assert(SIDESTEP_DTYPE_END <= SIDESTEP_GAINS, "struct sidestep_save_info has room for all");

enum sidestep_status press_new(const struct codec *codec, struct clock *clock, struct press **out,
                               struct sidestep_error *err)
{
    struct press *press = memory_new(1, sizeof(*press));

    if (press == NULL)
        return FAIL_NOMEM(err, sizeof(*press));
    press->codec = codec;
    press->clock = clock;
    press->shared.full_end = &press->shared.full;
    *out = press;
    return SIDESTEP_OK;
}

void press_set_pace(struct press *press, double ns_per_byte)
{
    press->ns_per_byte = ns_per_byte;
}

/* What only press_write() needs. */
static void release_work(struct press *press)
{
    for (size_t i = 0; i < press->window_count; i++) {
        buffer_release(&press->windows[i].out);
        buffer_release(&press->windows[i].index);
        free(press->windows[i].parts);
    }
    press->window_count = 0;
    hash_stream_free(press->tail.hash);
    press->tail.hash = NULL;
    buffer_release(&press->tail.index);
}

void press_free(struct press **press)
{
    if (*press == NULL)
        return;
    release_work(*press);
    arena_release(&(*press)->arena);
    free(*press);
    *press = NULL;
}

uint64_t press_body_bytes(const struct press *press)
{
    return press->tail.at;
}

const struct footer_item *press_item(const struct press *press, size_t i)
{
    return &press->items[i].footer;
}

const struct press_gain *press_gains(const struct press *press)
{
    return press->gains;
}

/* Windows that are encoded while others are: one per thread, and some that wait for their turn. */
static size_t count_windows(unsigned threads)
{
    return (size_t)threads + 2;
}

static size_t count_blocks(const struct store_queue_kind *kind, unsigned threads)
{
    return PRESS_WINDOW_BLOCKS + max_u64(kind->depth, threads) + 1;
}

uint64_t press_memory_bytes(const struct store_queue_kind *kind, unsigned threads)
{
    return count_windows(threads) * IMAGE_WINDOW_MAX_BYTES +
           count_blocks(kind, threads) * PRESS_BLOCK_BYTES;
}

static enum sidestep_status press_prepare(struct press *press, struct pipeline *p,
                                          struct pool *memory, const struct store_queue_kind *kind,
                                          struct workers *workers, struct sidestep_error *err)
{
    unsigned threads = workers_count(workers) + 1;
    size_t windows = count_windows(threads), blocks = count_blocks(kind, threads);

    press->p = p;
    TRY(pool_reserve(memory, blocks * PRESS_BLOCK_BYTES, workers, err));
    press->items = arena_new(&press->arena, p->image->count, sizeof(*press->items));
    press->windows = arena_new(&press->arena, windows, sizeof(*press->windows));
    press->blocks = arena_new(&press->arena, blocks, sizeof(*press->blocks));
    press->tail.hash = hash_stream_new();
    if (press->items == NULL || press->windows == NULL || press->blocks == NULL ||
        press->tail.hash == NULL)
        return FAIL_NOMEM(err, p->image->count * sizeof(*press->items));
    press->window_count = windows;
    for (size_t i = 0; i < p->image->count; i++)
        press->items[i].footer = p->image->items[i].footer;
    for (size_t i = 0; i < blocks; i++) {
        press->blocks[i].bytes = memory->bytes + i * PRESS_BLOCK_BYTES;
        press->blocks[i].next = press->shared.free;
        press->shared.free = &press->blocks[i];
    }
    press->shared.free_count = blocks;
    return SIDESTEP_OK;
}

/* One thread of those that press. */
struct presser {
    struct press *press;
    struct store_file *file;
    struct codec_encoder *encoder;
    struct store_queue queue;
    struct store_request requests[STORE_QUEUE_MAX_DEPTH];
    struct store_request *free; /* a list */
};

/* The functions below: the pipeline's lock is held; what takes time is done without it. */

static void start_block(struct presser *presser)
{
    struct press *press = presser->press;
    struct pipeline *p = press->p;
    struct press_block *block = press->shared.full;
    struct store_request *request = presser->free;

    press->shared.full = block->next;
    if (press->shared.full == NULL)
        press->shared.full_end = &press->shared.full;
    press->shared.writing++;
    pthread_mutex_unlock(&p->shared.lock);
    uint64_t held_ns = pipeline_give_way(p, block->length);
    presser->free = request->next;
    *request = (struct store_request){.file = presser->file,
                                      .memory = block->bytes,
                                      .bytes = block->length,
                                      .offset = block->offset,
                                      .is_write = true,
                                      .tag = (size_t)(block - press->blocks)};
    store_queue_start(&presser->queue, request);
    pthread_mutex_lock(&p->shared.lock);
    p->shared.held_ns += held_ns;
}

static void end_block(struct presser *presser, struct store_request *request)
{
    struct press *press = presser->press;
    struct pipeline *p = press->p;
    struct press_block *block = &press->blocks[request->tag];

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

static bool may_encode(const struct press *press)
{
    return press->shared.encode_next < press->p->shared.hashed &&
           press->shared.encode_next < press->shared.append_next + press->window_count;
}

static void encode_next(struct presser *presser)
{
    struct press *press = presser->press;
    struct pipeline *p = press->p;
    struct sidestep_error why = {0};
    size_t i = press->shared.encode_next++;

    pthread_mutex_unlock(&p->shared.lock);
    enum sidestep_status status = press_encode(press, presser->encoder, i, &why);
    pthread_mutex_lock(&p->shared.lock);
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(p, &why);
    press->windows[i % press->window_count].ready = true;
    pthread_cond_broadcast(&p->shared.changed);
}

static bool may_append(const struct press *press)
{
    size_t i = press->shared.append_next;

    return !press->shared.appending && i < press->p->image->window_count &&
           press->windows[i % press->window_count].ready &&
           press->shared.free_count >= PRESS_WINDOW_BLOCKS;
}

static void append_next(struct press *press)
{
    struct pipeline *p = press->p;
    struct sidestep_error why = {0};
    size_t i = press->shared.append_next;

    press->shared.appending = true;
    pthread_mutex_unlock(&p->shared.lock);
    enum sidestep_status status = press_append(press, i, &why);
    pthread_mutex_lock(&p->shared.lock);
    if (status != SIDESTEP_OK)
        pipeline_fail_locked(p, &why);
    press->shared.appending = false;
    press->windows[i % press->window_count].ready = false;
    press->shared.append_next++;
    pipeline_window_done(p, i);
}

static bool is_done(const struct press *press)
{
    return press->shared.append_next == press->p->image->window_count &&
           press->shared.full == NULL && press->shared.writing == 0;
}

/* One step towards the end; what keeps the disk busy comes first. */
static void step(struct presser *presser)
{
    struct press *press = presser->press;
    struct pipeline *p = press->p;
    struct store_request *done = store_queue_poll(&presser->queue);

    if (done != NULL)
        end_block(presser, done);
    else if (press->shared.full != NULL && store_queue_has_room(&presser->queue))
        start_block(presser);
    else if (may_append(press))
        append_next(press);
    else if (may_encode(press))
        encode_next(presser);
    else if (pipeline_may_hash(p))
        pipeline_hash_next(p);
    else if (pipeline_stage_one(p))
        return;
    else if (presser->queue.in_flight != 0)
        wait_for_block(presser);
    else
        pthread_cond_wait(&p->shared.changed, &p->shared.lock);
}

struct pressing {
    struct press *press;
    struct store_file *file;
    const struct store_queue_kind *kind;
    unsigned threads;
};

static void press_windows(void *context)
{
    const struct pressing *pressing = context;
    struct press *press = pressing->press;
    struct pipeline *p = press->p;
    struct presser presser = {.press = press, .file = pressing->file};
    struct sidestep_error why = {0};

    pipeline_join(p);
    store_queue_open(&presser.queue, pressing->kind, pressing->threads);
    for (unsigned i = 0; i < presser.queue.depth; i++) {
        presser.requests[i].next = presser.free;
        presser.free = &presser.requests[i];
    }
    if (press->codec->encoder_new(&presser.encoder, &why) != SIDESTEP_OK)
        pipeline_fail(p, &why);
    pthread_mutex_lock(&p->shared.lock);
    while (!p->shared.failed && !is_done(press)) {
        step(&presser);
        pipeline_calm(p);
    }
    p->shared.used_ring = p->shared.used_ring || presser.queue.ring_count != 0;
    pthread_mutex_unlock(&p->shared.lock);
    store_queue_close(&presser.queue); /* after a failure, requests may still read the blocks */
    press->codec->encoder_free(presser.encoder);
    pipeline_leave(p);
}

enum sidestep_status press_write(struct press *press, struct pipeline *p, struct pool *memory,
                                 struct store_file *file, const struct store_queue_kind *kind,
                                 struct workers *workers, struct sidestep_error *err)
{
    struct pressing pressing = {
        .press = press, .file = file, .kind = kind, .threads = workers_count(workers) + 1};
    struct sidestep_error why = {0};

    if (press_prepare(press, p, memory, kind, workers, &why) == SIDESTEP_OK)
        workers_run(workers, press_windows, &pressing);
    else
        pipeline_fail(p, &why);
    release_work(press);
    return pipeline_end(p, err);
}
