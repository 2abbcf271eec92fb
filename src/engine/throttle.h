/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * throttle.h -- keeps background work out of the trainer's way.
 *
 * Background work has low priority, a bandwidth limit, pauses, and one write at a time while others
 * read from the disk.  While a thread waits for a save, only the engine's bandwidth limit stays.
 */
#ifndef ENGINE_THROTTLE_H
#define ENGINE_THROTTLE_H

#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"
#include "engine/disk_activity.h"

#define THROTTLE_MAX_THREADS 80u

struct throttle {
    /* Constant. */
    bool lower; /* lower the priority */
    struct priority_rights rights;
    uint64_t bytes_per_second; /* 0: no limit */
    bool pinned;
    cpu_set_t cpus;
    bool keeps_pace; /* do not back off while others read from the disk */
    struct {
        struct lock lock LOCK_KIND(THROTTLE);
        struct lock_condition changed;
        _Atomic unsigned waiting; /* threads that wait for a save; may be read without the lock */
        bool paused GUARDED_BY(&lock);
        pid_t threads[THROTTLE_MAX_THREADS] GUARDED_BY(&lock); /* background threads at work */
        size_t count GUARDED_BY(&lock);
        uint64_t next_ns GUARDED_BY(&lock); /* when the next bytes may be written */
        struct disk_activity readers GUARDED_BY(&lock);
    } shared;
};

/* ${cpus}: like "0-3,8", or NULL.  EINVAL if it is malformed, or none of them may be used. */
enum sidestep_status throttle_init(struct throttle *n, bool lower, uint64_t bytes_per_second,
                                   const char *cpus, struct sidestep_error *err);
void throttle_destroy(struct throttle *n);

/* The calling thread begins, and ends, background work. */
void throttle_attach_thread(struct throttle *n);
void throttle_detach_thread(struct throttle *n);
/* The calling thread begins, and ends, to wait for background work.  Any number of threads. */
void throttle_wait_begin(struct throttle *n);
void throttle_wait_end(struct throttle *n);
void throttle_set_paused(struct throttle *n, bool paused);
/* Writes go to a file on ${device} from now on.  Call while nobody writes. */
void throttle_watch_disk(struct throttle *n, uint64_t device);
/* Do others read from that disk, and does no thread wait for a save?  Then one write at a time is
 * enough.  Takes no lock. */
bool throttle_should_back_off(const struct throttle *n, const atomic_bool *hurry, uint64_t now_ns);
/* True if no thread waits for a save and nothing is paused: there is time for optional work. */
bool throttle_is_idle(struct throttle *n);
/* Restore the priority of the calling thread after others have raised it. */
void throttle_restore_priority(struct throttle *n);
/* Wait until ${bytes} may be written.  ${bytes_per_second}: one more limit, beside that of the
 * engine, while nobody waits (0: none).  ${hurry}: while true, somebody waits; or NULL.  Returns
 * soon once ${*stop} is set.  Returns the nanoseconds waited. */
uint64_t throttle_acquire(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second,
                          const atomic_bool *hurry, const atomic_bool *stop);
/* The same without waiting: false if they may not be written now. */
bool throttle_try_acquire(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second,
                          const atomic_bool *hurry);

#endif
