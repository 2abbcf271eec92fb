/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h -- starts threads. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"

/* Start a thread with all signals blocked, so that it never runs a handler of the trainer.
 * ${name}: at most 15 characters. */
enum sidestep_status thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
                                  void *argument, struct sidestep_error *err);

/* The quota of the process's cgroups in whole CPUs, as it was at the first call; 0: none. */
unsigned thread_cpu_quota(void);
/* The number of CPUs that this process may use, at least 1: by its affinity and by the quota. */
unsigned thread_cpu_count(void);

/* Time of a thread, in nanoseconds. */
struct thread_time {
    uint64_t ran;    /* on a processor */
    uint64_t waited; /* ready to run, for a processor; 0 if this system does not count it */
};
/* The time of the calling thread so far. */
void thread_time_read(struct thread_time *time);

/* ${wanted}.  If it is 0: the number of CPUs, but at least ${least} and at most ${most}. */
unsigned thread_choose_count(unsigned wanted, unsigned least, unsigned most);

#endif
