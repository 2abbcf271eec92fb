/* SPDX-License-Identifier: BSD-3-Clause */
/* budget.c -- see budget.h. */
#include "base/budget.h"

#include <assert.h>

void budget_init(struct budget *budget, uint64_t limit)
{
    *budget = (struct budget){.limit = limit};
    pthread_mutex_init(&budget->shared.lock, NULL);
    pthread_cond_init(&budget->shared.given, NULL);
}

void budget_destroy(struct budget *budget)
{
    assert(budget->shared.taken == 0);
    pthread_cond_destroy(&budget->shared.given);
    pthread_mutex_destroy(&budget->shared.lock);
}

void budget_acquire(struct budget *budget, uint64_t amount)
{
    pthread_mutex_lock(&budget->shared.lock);
    while (budget->shared.taken != 0 &&
           (budget->shared.taken > budget->limit || amount > budget->limit - budget->shared.taken))
        pthread_cond_wait(&budget->shared.given, &budget->shared.lock);
    budget->shared.taken += amount;
    if (budget->shared.taken > budget->shared.most)
        budget->shared.most = budget->shared.taken;
    pthread_mutex_unlock(&budget->shared.lock);
}

void budget_return(struct budget *budget, uint64_t amount)
{
    pthread_mutex_lock(&budget->shared.lock);
    assert(amount <= budget->shared.taken);
    budget->shared.taken -= amount;
    pthread_cond_broadcast(&budget->shared.given);
    pthread_mutex_unlock(&budget->shared.lock);
}
