/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h -- what saves, loads and series of one engine share.
 *
 * An engine is the handle that a program opens once: communicator, storage, threads, throttle,
 * devices and events.  What only saves need is behind ->saver (save/saver.h).
 *
 * What comes in: options, at sidestep_engine_open() (api/engine.c).
 * What goes out: the context that saves, loads and series get.
 *
 * Ownership: the program owns the handle.  Saves and series hold references, because a program may
 * release them after it has closed the engine; they then still read constant members.
 *
 * Threads: members are constant after opening, or are touched only by the thread that calls
 * collective functions, or have a lock of their own (events, throttle).
 *
 * events.h writes one line of JSON per step of a save.  throttle.h keeps background work out of
 * the trainer's way: priority, bandwidth limit, pauses, and back-off while others read
 * (disk_activity.h).
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"
#include "comm/comm.h"
#include "engine/buckets.h"
#include "engine/event_log.h"
#include "engine/events.h"
#include "engine/sight.h"
#include "engine/sight_groups.h"
#include "engine/throttle.h"
#include "snapshot/snapshot.h"
#include "store/store.h"

struct load_bring;
struct saver; /* save/saver.h */

struct sidestep_engine {
    atomic_uint references; /* the caller's, and one for each save and series */

    /* Constant after sidestep_engine_open(). */
    pid_t pid;
    struct comm comm;
    struct store *store;
    struct buckets buckets; /* object stores; has a lock of its own */
    struct clock *clock;
    bool direct_io;        /* where the file system allows it */
    bool fills_page_cache; /* by loads, where memory is free */
    struct store_queue_config io;
    struct throttle throttle;
    uint64_t timeout_ms;
    struct workers *stagers;
    struct workers *writers;  /* all of them encode */
    struct sight_hosts hosts; /* of the ranks */
    unsigned write_threads;   /* of these, and the caller: those that write without compression */
    struct events events;

    /* Touched only by the thread that calls collective functions, and, while a save is being
     * written, read by its runner. */
    struct devices devices;
    const struct load_bring *bring; /* load/load.h: where files have to be brought; NULL: nowhere */
    struct saver *saver;            /* what saves keep from one to the next */
    struct sidestep_series *series; /* list of the open series */
};

/* Copy options.failure of a save or load, the caller's reason not to take part, into ${err}. */
enum sidestep_status engine_copy_failure(const struct sidestep_error *failure,
                                         struct sidestep_error *err);
/* EFORKED in a child of the process that opened the engine. */
enum sidestep_status engine_check(const struct sidestep_engine *engine, struct sidestep_error *err);

/* The store of ${path}: a bucket if it is a URL. It
 * lives as long as the engine. EINVAL, EPERM, EUNSUPPORTED: object_path.h. */
enum sidestep_status engine_find_store(struct sidestep_engine *engine, const char *path,
                                       struct store **out, struct sidestep_error *err);

void engine_retain(struct sidestep_engine *engine);
void engine_release(struct sidestep_engine *engine);

#endif
