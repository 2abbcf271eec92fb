/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * budget.h -- limits what threads use together, of memory for example.
 *
 * A thread that asks for more than is left waits until others return enough.  A thread that asks
 * for more than the limit waits until nobody else has any.
 */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stdint.h>

#include "base/lock.h"

struct budget {
    uint64_t limit;
    struct {
        struct lock lock LOCK_KIND(BUDGET);
        struct lock_condition returned;
        uint64_t used GUARDED_BY(&lock); /* more than ${limit} only if one thread has all of it */
        uint64_t peak GUARDED_BY(&lock); /* the largest ${used} so far */
    } shared;
};

void budget_init(struct budget *budget, uint64_t limit);
/* All of it must have been returned. */
void budget_destroy(struct budget *budget);
/* Wait for ${amount}.  A thread that has some must return it first, or it waits for itself. */
void budget_acquire(struct budget *budget, uint64_t amount);
void budget_return(struct budget *budget, uint64_t amount);

#endif
