/* SPDX-License-Identifier: BSD-3-Clause */
/* model_plan.c -- plans the disturbances of a run by its number: faults, pauses, kills, and the
 * order of the tasks; see model.h. */
#include "model.h"

#include <errno.h>

#include "base/owned.h"

#define MAX_RENAMES 8 /* of a run, at which processes are killed */

/* What an operation reports that took place: a server of NFS makes a file, and then finds no space
 * for its attributes, or answers the repetition of a request whose answer was lost. */
static const int errors_after[] = {ENOSPC, EIO, EEXIST, ENOENT, EACCES, EDQUOT, EROFS};

static void plan_effect(struct plan *plan, uint64_t number)
{
    plan->fault = FAULT_AFTER;
    plan->fault_errno = errors_after[number % ARRAY_LENGTH(errors_after)];
}

static void plan_fault(struct plan *plan, uint64_t number, unsigned faults)
{
    uint64_t at = number / 3;

    plan_effect(plan, at + at / faults); /* at each operation, another one each time */
    plan->fault_at = (unsigned)(1 + at % faults);
    plan->fault = (enum fault_kind)(FAULT_BEFORE + number % 3);
}

/* One task: plan every fault at every operation, one after the other. */
static void plan_alone(struct world *world, uint64_t run, const struct counts *plain)
{
    if ((world->workload->traits & WORKLOAD_NO_FAULTS) == 0 && run % 8 != 7)
        plan_fault(&world->plan, run / 8 * 7 + run % 8, plain->faults + 1);
}

/* A write takes place and reports an error, and its task hears of that after all others. */
static void plan_late_error(struct plan *plan, uint64_t number, const struct counts *plain)
{
    unsigned writes = plain->writes + 1;

    plan_effect(plan, number + number / writes);
    plan->fault_at = (unsigned)(1 + number % writes);
    plan->pauses_at_fault = true;
}

/* Several tasks: plan a pause at every critical operation, and a late error at every write, one
 * after the other. Then random plans. */
static void plan_together(struct world *world, uint64_t run, const struct counts *plain)
{
    struct plan *plan = &world->plan;
    struct prng *prng = &world->prng;
    unsigned kind = (unsigned)(run % 8), criticals = plain->criticals + 1;
    uint64_t pause = run / 8 * 3 + kind - 1;
    bool has_faults = (world->workload->traits & WORKLOAD_NO_FAULTS) == 0;

    if (kind >= 5 || kind == 0)
        plan->stays = 4u << 2 * prng_below(prng, 3);
    if (kind >= 1 && kind <= 3) {
        plan->pauses[0] = (unsigned)(1 + pause % criticals);
        if (pause >= criticals)
            plan->pauses[1] = (unsigned)prng_below(prng, criticals);
    }
    if (kind == 5 || kind == 7) {
        plan->kills_after_rename = kind == 5;
        plan->kill_at = (unsigned)(1 + prng_below(prng, kind == 5 ? MAX_RENAMES : criticals));
        plan->kill_mask = kind == 5
                              ? 1u << prng_below(prng, world->task_count)
                              : 1u + (unsigned)prng_below(prng, (1u << world->task_count) - 2);
    }
    if (kind == 4 && has_faults)
        plan_late_error(plan, run / 8, plain);
    else if (kind >= 6 && has_faults)
        plan_fault(plan, prng_next(prng) >> 8, plain->faults + 1);
}

void explore_plan(const struct explore *x, struct world *world, uint64_t run)
{
    if (run != 0 && world->task_count == 1)
        plan_alone(world, run, &x->plain);
    else if (run != 0)
        plan_together(world, run, &x->plain);
}
