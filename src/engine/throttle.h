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

#include "base/error.h"
#include "base/priority.h"
#include "engine/disk_activity.h"

#define NEIGHBOUR_MAX_THREADS 80u

struct neighbour {
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
        pid_t threads[NEIGHBOUR_MAX_THREADS]; /* at work in the background */
        size_t count;
        uint64_t next_ns; /* when the next bytes may go */
        struct disk_readers readers;
    } shared;
};

/* ${cpus}: as "0-3,8", or NULL; EINVAL if it is not that, or none of them may be used. */
enum sidestep_status neighbour_init(struct neighbour *n, bool lower, uint64_t bytes_per_second,
                                    const char *cpus, struct sidestep_error *err);
void neighbour_destroy(struct neighbour *n);

/* The calling thread begins, and ends, work in the background. */
void neighbour_join(struct neighbour *n);
void neighbour_leave(struct neighbour *n);
/* The calling thread begins, and ends, to wait for such work.  Any number of threads. */
void neighbour_wait_begin(struct neighbour *n);
void neighbour_wait_end(struct neighbour *n);
void neighbour_pause(struct neighbour *n, bool paused);
/* Writes go to a file on ${device} from now on; nobody writes at the moment. */
void neighbour_watch(struct neighbour *n, uint64_t device);
/* Others read from that disk, and nobody waits: one write at a time is enough.  Takes no lock. */
bool neighbour_backs_off(const struct neighbour *n, const atomic_bool *hurry, uint64_t now_ns);
/* Neither does anybody wait, nor is it paused: there is time for what need not be done. */
bool neighbour_is_free(struct neighbour *n);
/* The calling thread, which was raised by others, has the priority again that it should have. */
void neighbour_calm(struct neighbour *n);
/* Before ${bytes} are written: wait until they may be.  ${bytes_per_second} holds, beside the limit
 * of all, unless somebody waits (0: none).  ${hurry}: while that is true, somebody does, too; or
 * NULL.  Returns soon once ${*stop}.  How long it took. */
uint64_t neighbour_take(struct neighbour *n, uint64_t bytes, uint64_t bytes_per_second,
                        const atomic_bool *hurry, const atomic_bool *stop);
/* The same without waiting: false if they may not be written now. */
bool neighbour_try(struct neighbour *n, uint64_t bytes, uint64_t bytes_per_second,
                   const atomic_bool *hurry);

#endif
