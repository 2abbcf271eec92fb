/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c -- see lock.h. */
#include "base/lock.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#define NS_PER_S 1000000000u

#ifdef SIDESTEP_FAULTS
/* A bit for each kind of lock that this thread holds. */
static _Thread_local uint32_t held;

static void mark_held(enum lock_kind kind)
{
    assert((held & ((UINT32_C(2) << kind) - 1)) == 0);
    held |= UINT32_C(1) << kind;
}

static void mark_released(enum lock_kind kind)
{
    assert((held >> kind & 1) != 0);
    held &= ~(UINT32_C(1) << kind);
}
#else
/* Not in release builds: a fault handler may not touch memory that a library allocates for a
 * thread, because its page may be protected (see snapshot/cow.h). */
static void mark_held(enum lock_kind kind)
{
    (void)kind;
}

static void mark_released(enum lock_kind kind)
{
    (void)kind;
}
#endif

void lock_init(struct lock *lock, enum lock_kind kind)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->kind = kind;
}

void lock_destroy(struct lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

/* The analysis takes what the two functions do from their declarations. */
LOCK_UNCHECKED void lock_acquire(struct lock *lock)
{
    mark_held(lock->kind);
    pthread_mutex_lock(&lock->mutex);
}

LOCK_UNCHECKED void lock_release(struct lock *lock)
{
    mark_released(lock->kind);
    pthread_mutex_unlock(&lock->mutex);
}

void lock_condition_init(struct lock_condition *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&condition->condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void lock_condition_destroy(struct lock_condition *condition)
{
    pthread_cond_destroy(&condition->condition);
}

void lock_wait(struct lock *lock, struct lock_condition *condition)
{
    pthread_cond_wait(&condition->condition, &lock->mutex);
}

bool lock_wait_until(struct lock *lock, struct lock_condition *condition, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                             .tv_nsec = (long)(until_ns % NS_PER_S)};

    return pthread_cond_timedwait(&condition->condition, &lock->mutex, &until) != ETIMEDOUT;
}

void lock_wake_all(struct lock_condition *condition)
{
    pthread_cond_broadcast(&condition->condition);
}
