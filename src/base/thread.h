/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h -- start a named thread with all signals blocked (the trainer's handlers are not ours).
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

#include "base/error.h"

enum sidestep_status thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
                                  void *argument, struct sidestep_error *err);

/* CPUs that this process may use, at least 1. */
unsigned thread_cpu_count(void);

#endif
