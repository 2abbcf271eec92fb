/* SPDX-License-Identifier: BSD-3-Clause */
/* budget.c -- see budget.h. */
#include "base/budget.h"

#include <assert.h>

void budget_init(struct budget *budget, uint64_t limit)
{
    *budget = (struct budget){.limit = limit};
    lock_init(&budget->shared.lock, LOCK_BUDGET);
    lock_condition_init(&budget->shared.returned);
}

void budget_destroy(struct budget *budget)
{
    lock_alone(&budget->shared.lock);
    assert(budget->shared.used == 0);
    lock_condition_destroy(&budget->shared.returned);
    lock_destroy(&budget->shared.lock);
}

void budget_acquire(struct budget *budget, uint64_t amount)
{
    lock_acquire(&budget->shared.lock);
    while (budget->shared.used != 0 &&
           (budget->shared.used > budget->limit || amount > budget->limit - budget->shared.used))
        lock_wait(&budget->shared.lock, &budget->shared.returned);
    budget->shared.used += amount;
    if (budget->shared.used > budget->shared.peak)
        budget->shared.peak = budget->shared.used;
    lock_release(&budget->shared.lock);
}

void budget_return(struct budget *budget, uint64_t amount)
{
    lock_acquire(&budget->shared.lock);
    assert(amount <= budget->shared.used);
    budget->shared.used -= amount;
    lock_wake_all(&budget->shared.returned);
    lock_release(&budget->shared.lock);
}
