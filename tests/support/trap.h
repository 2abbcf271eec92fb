/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trap.h -- runs a function between two operations of a client of the simulated disk (store_sim.h),
 * so that a test chooses the interleaving.
 */
#ifndef SUPPORT_TRAP_H
#define SUPPORT_TRAP_H

#include <stdatomic.h>
#include <string.h>

#include "support/store_sim.h"

/* ${spring} runs before the next operation ${op} of ${client} on a name that begins with ${name};
 * then the next trap is set. */
struct trap {
    const char *op;
    const char *name;
    void (*spring)(void); /* NULL: nothing */
    const struct trap *next;
    int client;
};
static const struct trap *_Atomic armed;

/* For sim_set_hook(). */
static inline void trap_before_op(void *context, int client, const char *op, const char *name)
{
    const struct trap *trap = atomic_load(&armed);

    (void)context;
    if (trap == NULL || client != trap->client || strcmp(op, trap->op) != 0 ||
        strncmp(name, trap->name, strlen(trap->name)) != 0)
        return;
    atomic_store(&armed, trap->next);
    if (trap->spring != NULL)
        trap->spring();
}

#endif
