/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * throttle.h -- background work that gives way to training: low priority, a limit of bandwidth, a
 * pause, one write at a time while others read from the disk; and none of it that costs time while
 * somebody waits for a save.
 */
#ifndef ENGINE_THROTTLE_H
#define ENGINE_THROTTLE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"
#include "engine/disk_activity.h"

#define THROTTLE_MAX_THREADS 80u

struct throttle {
    /* Constant. */
    bool lower; /* priorities */
    struct priority_rights rights;
    uint64_t bytes_per_second; /* 0: no limit */
    bool pinned;
    cpu_set_t cpus;
    bool keeps_pace; /* whoever reads from the disk */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        _Atomic unsigned waiting; /* threads that wait for a save; also read without the lock */
        bool paused;
        pid_t threads[THROTTLE_MAX_THREADS]; /* at work in the background */
        size_t count;
        uint64_t next_ns; /* when the next bytes may go */
        struct disk_activity readers;
    } shared;
};

/* ${cpus}: as "0-3,8", or NULL; EINVAL if it is not that, or none of them may be used. */
enum sidestep_status throttle_init(struct throttle *n, bool lower, uint64_t bytes_per_second,
                                   const char *cpus, struct sidestep_error *err);
void throttle_destroy(struct throttle *n);

/* The calling thread begins, and ends, work in the background. */
void throttle_attach_thread(struct throttle *n);
void throttle_detach_thread(struct throttle *n);
/* The calling thread begins, and ends, to wait for such work.  Any number of threads. */
void throttle_wait_begin(struct throttle *n);
void throttle_wait_end(struct throttle *n);
void throttle_set_paused(struct throttle *n, bool paused);
/* Writes go to a file on ${device} from now on; nobody writes at the moment. */
void throttle_watch_disk(struct throttle *n, uint64_t device);
/* Others read from that disk, and nobody waits: one write at a time is enough.  Takes no lock. */
bool throttle_should_back_off(const struct throttle *n, const atomic_bool *hurry, uint64_t now_ns);
/* Neither does anybody wait, nor is it paused: there is time for what need not be done. */
bool throttle_is_idle(struct throttle *n);
/* The calling thread, which was raised by others, has the priority again that it should have. */
void throttle_restore_priority(struct throttle *n);
/* Before ${bytes} are written: wait until they may be.  ${bytes_per_second} holds, beside the limit
 * of all, unless somebody waits (0: none).  ${hurry}: while that is true, somebody does, too; or
 * NULL.  Returns soon once ${*stop}.  How long it took. */
uint64_t throttle_acquire(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second,
                          const atomic_bool *hurry, const atomic_bool *stop);
/* The same without waiting: false if they may not be written now. */
bool throttle_try_acquire(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second,
                          const atomic_bool *hurry);

#endif
