/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c -- opens, prepares, pauses and closes an engine. */
#include "engine/engine.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "store/store.h"
#include "save/save.h"
#include "series/series.h"

#define ENGINE_DEFAULT_TIMEOUT_MS 600000u
#define ENGINE_MAX_THREADS 64u
/* Defaults of writing threads and of requests in flight.  On the measured disks, none of 4, 8 and
 * 16 was better; disks of large arrays need more than one. */
#define ENGINE_DEFAULT_WRITERS 4u
#define ENGINE_DEFAULT_URING_WRITERS 2u /* with io_uring they only hash */
#define ENGINE_DEFAULT_URING_DEPTH 8u

_Static_assert(sizeof(struct sidestep_engine_options) == 112, "a field was added: apply it below");

#define ENGINE_FLAGS ((uint32_t)SIDESTEP_ENGINE_USER_MODE_FAULTS | SIDESTEP_ENGINE_KEEP_PACE)

/* Release the caller's reference, and what the engine owns. */
static void engine_shut(struct sidestep_engine *engine)
{
    while (engine->series != NULL)
        engine->series = series_shut_down(engine->series);
    saver_finish(engine);
    workers_free(&engine->stagers);
    workers_free(&engine->writers);
    saver_close_offload(engine);
    devices_close(&engine->devices);
    saver_free(engine);
    events_close(&engine->events);
    sight_hosts_release(&engine->hosts);
    engine_release(engine);
}

static enum sidestep_status start_threads(struct sidestep_engine *engine, uint32_t threads,
                                          struct sidestep_error *err)
{
    uint32_t cpus = thread_cpu_count();
    uint32_t stagers = threads != 0 ? threads : (uint32_t)min_u64(cpus, 16);
    uint32_t writers = threads != 0      ? threads
                       : engine->io.ring ? (uint32_t)min_u64(cpus, ENGINE_DEFAULT_URING_WRITERS)
                                         : engine->io.depth;

    /* One less, because the thread that waits for them works, too. */
    TRY(workers_new(stagers - 1, "sidestep-stage", &engine->stagers, err));
    engine->write_threads = writers;
    return workers_new((unsigned)max_u64(writers, stagers) - 1, "sidestep-write", &engine->writers,
                       err);
}

/* Choose the way to storage, by the options and by what this process may use. */
static enum sidestep_status choose_io(struct sidestep_engine *engine, uint32_t io, uint32_t depth,
                                      struct sidestep_error *err)
{
    bool may_ring = io == SIDESTEP_IO_AUTO || io == SIDESTEP_IO_URING;
    int refused = may_ring ? store_ring_probe() : ENOSYS;

    if (io > SIDESTEP_IO_BUFFERED)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "engine options: unknown io %u", io);
    if (depth > STORE_QUEUE_MAX_DEPTH)
        return FAIL(err, SIDESTEP_EINVAL, "engine options: io_depth %u is more than %u", depth,
                    STORE_QUEUE_MAX_DEPTH);
    if (io == SIDESTEP_IO_URING && refused != 0)
        return error_set(err, SIDESTEP_EUNSUPPORTED, refused, HERE,
                         "engine options: io_uring is refused here (see 'sidestep doctor')");
    engine->direct_io = io != SIDESTEP_IO_BUFFERED;
    engine->fills_page_cache = io == SIDESTEP_IO_AUTO;
    engine->io.ring = refused == 0;
    engine->io.depth = depth != 0     ? depth
                       : refused == 0 ? ENGINE_DEFAULT_URING_DEPTH
                                      : ENGINE_DEFAULT_WRITERS;
    return SIDESTEP_OK;
}

static enum sidestep_status apply_options(struct sidestep_engine *engine,
                                          const struct sidestep_engine_options *options,
                                          struct sidestep_error *err)
{
    if ((options->flags & ~ENGINE_FLAGS) != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "engine options: unknown flags 0x%x",
                    options->flags);
    if (options->threads > ENGINE_MAX_THREADS)
        return FAIL(err, SIDESTEP_EINVAL, "engine options: %u threads are more than %u",
                    options->threads, ENGINE_MAX_THREADS);
    TRY(choose_io(engine, (uint32_t)options->io, options->io_depth, err));
    engine->timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : ENGINE_DEFAULT_TIMEOUT_MS;
    return SIDESTEP_OK;
}

static enum sidestep_status engine_open_local(struct sidestep_engine *engine,
                                              const struct sidestep_engine_options *theirs,
                                              struct sidestep_error *err)
{
    struct sidestep_engine_options options;

    TRY(options_copy(&options, sizeof(options), theirs, "engine options", err));
    TRY(apply_options(engine, &options, err));
    bool keeps_pace = (options.flags & SIDESTEP_ENGINE_KEEP_PACE) != 0;
    TRY(throttle_init(&engine->throttle, !keeps_pace, options.write_bytes_per_second,
                      options.background_cpus, err));
    engine->throttle.keeps_pace = keeps_pace;
    TRY(events_open(&engine->events, &options, engine->comm.rank, &engine->buckets, err));
    TRY(start_threads(engine, options.threads, err));
    return saver_new(engine, &options, err);
}

enum sidestep_status sidestep_engine_open(struct sidestep_engine **out,
                                          const struct sidestep_engine_options *options,
                                          struct sidestep_error *err)
{
    struct sidestep_engine *engine = memory_new(1, sizeof(*engine));
    const struct sidestep_comm *host = options != NULL ? options->comm : NULL;

    if (out == NULL) {
        free(engine);
        return FAIL(err, SIDESTEP_EINVAL, "engine is NULL");
    }
    *out = NULL;
    THREAD_IS(CALLER);
    trace_init();
    if (engine == NULL) /* the collectives of the other ranks then fail */
        return FAIL_NOMEM(err, sizeof(*engine));
    *engine = (struct sidestep_engine){
        .references = 1, .pid = getpid(), .store = store_posix(), .clock = clock_system()};
    events_init(&engine->events);
    buckets_init(&engine->buckets);
    enum sidestep_status status = comm_init(&engine->comm, host, err);
    if (status == SIDESTEP_OK) {
        status = engine_open_local(engine, options, err);
        status = comm_agree_all(&engine->comm, status, err);
        if (status == SIDESTEP_OK)
            status = sight_find_hosts_all(&engine->comm, &engine->hosts, err);
        if (status == SIDESTEP_OK)
            engine->saver->snapshot_policy.ranks_here = engine->hosts.ranks_here;
    }
    if (status != SIDESTEP_OK) {
        engine_shut(engine);
        error_wrap(err, "open engine");
        return status;
    }
    *out = engine;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_engine_prepare(struct sidestep_engine *engine,
                                             const struct sidestep_state_dict *state,
                                             struct sidestep_error *err)
{
    uint64_t bytes = IMAGE_WINDOW_MAX_BYTES;
    bool pin = false;

    THREAD_IS(CALLER);
    TRY(engine_check(engine, err));
    if (state == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "state is NULL");
    turn_wait_idle(&engine->saver->turns); /* queued saves use pools */
    (void)devices_detect_driver(&engine->devices);
    for (size_t i = 0; i < state->count; i++) {
        const struct state_entry *entry = &state->entries[i];
        bytes += entry->is_object ? entry->length
                                  : box_volume(&entry->box) * sidestep_dtype_size(entry->dtype);
        bytes += 2 * image_align();
        int32_t device = -1;
        if (!entry->is_object && entry->reader == NULL)
            TRY(devices_locate(&engine->devices, (uint64_t)(uintptr_t)entry->data,
                               box_volume(&entry->box) != 0, &device, err));
        if (device >= 0)
            TRY(devices_open(&engine->devices, device, err));
        pin = pin || device >= 0;
    }
    snapshot_policy_open(&engine->saver->snapshot_policy);
    engine->saver->snapshot_policy.pool_is_warm = true;
    return slot_prepare_pool(engine, bytes, pin, err);
}

void sidestep_engine_pause(struct sidestep_engine *engine)
{
    if (engine_check(engine, NULL) == SIDESTEP_OK)
        throttle_set_paused(&engine->throttle, true);
}

void sidestep_engine_resume(struct sidestep_engine *engine)
{
    if (engine_check(engine, NULL) == SIDESTEP_OK)
        throttle_set_paused(&engine->throttle, false);
}

enum sidestep_status sidestep_engine_close(struct sidestep_engine **out, struct sidestep_error *err)
{
    struct sidestep_engine *engine = out != NULL ? *out : NULL;

    THREAD_IS(CALLER);
    if (engine == NULL)
        return SIDESTEP_OK;
    *out = NULL;
    if (engine->pid != getpid())
        return engine_check(engine, err); /* its threads are in the parent: leave it alone */
    enum sidestep_status status = turn_drain_all(engine, err);
    engine_shut(engine);
    return status;
}
