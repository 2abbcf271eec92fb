/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * budget.h -- a sum that threads share, of memory, say: who wants more than is left waits for
 * others to give back.  One who wants more than there ever is gets it alone.
 */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <pthread.h>
#include <stdint.h>

struct budget {
    uint64_t limit;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t given;
        uint64_t taken; /* more than ${limit} in one hand only */
        uint64_t most;  /* that ${taken} ever was */
    } shared;
};

void budget_init(struct budget *budget, uint64_t limit);
/* Everything was given back. */
void budget_destroy(struct budget *budget);
/* A thread that has taken some takes no more before it has given that back. */
void budget_acquire(struct budget *budget, uint64_t amount);
void budget_return(struct budget *budget, uint64_t amount);

#endif
