/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_world.c -- runs a workload once: tasks are coroutines that stop before every operation on
 * the disk and when they sleep, and a scheduler resumes them by a plan. See model.h.
 *
 * A killed task runs to its end without effect, so that it frees its memory. Reports to it no
 * longer count.
 */
#include "model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/owned.h"

#define STACK_BYTES ((size_t)512 << 10)

struct model model;
static struct world *running; /* the world whose world_run() is active */

void model_enter(enum phase phase)
{
    model.actor->phase = phase;
    model.actor->parent_syncs = 0;
    model.actor->dir_syncs = 0;
}

void model_trace(int client, const char *op, const char *name)
{
    if (model.trace_count == MODEL_MAX_TRACE)
        return;
    struct trace_entry *entry = &model.trace[model.trace_count++];
    entry->client = client;
    entry->op = op;
    strncpy(entry->name, name, sizeof(entry->name) - 1);
    entry->name[sizeof(entry->name) - 1] = '\0';
}

/* ---- in tasks */

static void world_stop(struct world *world, const char *at)
{
    struct task *task = world->current;

    task->at = at;
    if (swapcontext(&task->context, &world->scheduler) != 0)
        abort();
}

/* Between two operations, other tasks may run. */
void world_before_op(void *context, int client, const char *op, const char *name)
{
    struct world *world = context;

    if (world->current == NULL || world->current->actor.is_dead)
        return;
    world_stop(world, op);
    if (!world->current->actor.is_dead)
        model_trace(client, op, name);
    world->step++;
}

static void world_sleep_ms(struct clock *clock, uint64_t ms)
{
    struct world *world = (struct world *)clock;

    if (world->current == NULL || world->current->actor.is_dead) {
        world->now_ms += ms;
        return;
    }
    world->current->wake_ms = world->now_ms + ms;
    world_stop(world, "sleep");
}

static uint64_t world_now_ns(struct clock *clock)
{
    return ((struct world *)clock)->now_ms * 1000000;
}

static void trampoline(unsigned high, unsigned low)
{
    struct task *task = (struct task *)((uintptr_t)high << 32 | low);

    task->main(task);
    task->is_done = true;
    task->at = "end";
}

/* Choose the fault of a sync that loses data. Other processes with the directory open would get the
 * error of a lost sync, too, which the simulated disk does not model. So names are lost only if
 * there is one save. */
static enum fault_kind fault_of_lost_sync(struct world *world, const char *op)
{
    if (strcmp(op, "file_sync") == 0)
        return FAULT_LOST;
    if (strcmp(op, "dir_sync") != 0 || world->saving_count != 1 || world->current->saving == NULL)
        return FAULT_BEFORE;
    world->ledger.is_tainted = true;
    world->ledger.tainted_at = ++world->ledger.tick;
    return FAULT_LOST;
}

/* Is it time for the fault? */
static bool is_due(struct world *world, const char *op)
{
    bool is_write = model_store_is_change(op);

    world->counts.faults++;
    world->counts.writes += is_write;
    return world->plan.pauses_at_fault ? is_write && world->counts.writes == world->plan.fault_at
                                       : world->counts.faults == world->plan.fault_at;
}

static void pause_after_fault(struct world *world)
{
    world->current->is_paused |= world->plan.pauses_at_fault;
}

enum fault_kind world_take_fault(struct sim *sim, const char *op)
{
    struct world *world = running;

    if (world == NULL || world->sim != sim || world->current == NULL ||
        world->current->actor.is_dead || !is_due(world, op))
        return FAULT_NONE;
    enum fault_kind fault = world->plan.fault;
    if (fault == FAULT_LOST && world->bucket == NULL)
        fault = fault_of_lost_sync(world, op);
    model.actor->vote_failed |= model.actor->phase == PHASE_VOTE;
    if (world->bucket != NULL)
        pause_after_fault(world);
    model_trace(world->current->client,
                fault == FAULT_BEFORE  ? "FAILS:"
                : fault == FAULT_AFTER ? "FAILS, WITH ITS EFFECT:"
                                       : "IS LOST:",
                op);
    return fault;
}

int world_fail_after(void)
{
    pause_after_fault(running);
    return running->plan.fault_errno;
}

struct store *world_store(struct task *task)
{
    return task->world->bucket != NULL ? bucket_store(task->world, task->client)
                                       : sim_store(task->world->sim, task->client);
}

struct store *world_setup_store(struct world *world)
{
    return world->bucket != NULL ? bucket_store(world, MODEL_SETUP)
                                 : sim_store(world->sim, MODEL_SETUP);
}

/* ---- making tasks */

struct saving *world_add_saving(struct world *world, const char *name, uint32_t ranks)
{
    struct saving *saving = &world->savings[world->saving_count++];

    assert(world->saving_count <= MODEL_MAX_TASKS);
    *saving = (struct saving){
        .world = world, .ledger = &world->ledger, .votes_no = -1, .cheats = -1, .strays = -1};
    saving->save = ledger_new_save(&world->ledger, name, ranks);
    return saving;
}

struct task *world_add(struct world *world, void (*main)(struct task *task), struct saving *saving,
                       uint32_t rank)
{
    static void *stacks[MODEL_MAX_TASKS];
    size_t i = world->task_count++;
    struct task *task = &world->tasks[i];
    uintptr_t address = (uintptr_t)task;

    assert(i < MODEL_MAX_TASKS);
    if (stacks[i] == NULL)
        stacks[i] = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(stacks[i] != MAP_FAILED);
    *task = (struct task){.world = world, .client = (int)i, .main = main, .saving = saving};
    task->actor.rank = rank;
    task->at = "start";
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = stacks[i];
    task->context.uc_stack.ss_size = STACK_BYTES;
    task->context.uc_link = &world->scheduler;
    makecontext(&task->context, (void (*)(void))(uintptr_t)trampoline, 2, (unsigned)(address >> 32),
                (unsigned)address);
    return task;
}

/* ---- the scheduler */

static bool is_awake(const struct world *world, const struct task *task)
{
    return !task->is_done && task->wake_ms <= world->now_ms;
}

/* Pick the first task from ${from} on that is awake. If all sleep, pick the task that wakes first.
 * Paused tasks come last. */
static struct task *pick_plain(struct world *world, size_t from)
{
    struct task *first = NULL;
    struct task *paused = NULL;

    for (size_t i = 0; i < world->task_count; i++) {
        struct task *task = &world->tasks[(from + i) % world->task_count];
        if (task->is_paused && !task->is_done)
            paused = task;
        else if (is_awake(world, task))
            return task;
        else if (!task->is_done && (first == NULL || task->wake_ms < first->wake_ms))
            first = task;
    }
    if (first == NULL && paused != NULL)
        paused->is_paused = false;
    return first != NULL ? first : paused;
}

static struct task *pick_random(struct world *world, struct task *last)
{
    if (last != NULL && is_awake(world, last) && prng_below(&world->prng, world->plan.stays) != 0)
        return last;
    size_t from = prng_below(&world->prng, world->task_count);
    for (size_t i = 0; i < world->task_count; i++) {
        struct task *task = &world->tasks[(from + i) % world->task_count];
        if (!task->is_done && (is_awake(world, task) || prng_below(&world->prng, 3) == 0))
            return task;
    }
    return pick_plain(world, from);
}

static struct task *pick(struct world *world, struct task *last)
{
    size_t from = last != NULL ? (size_t)(last - world->tasks) : 0;
    struct task *task = world->plan.stays != 0 ? pick_random(world, last) : pick_plain(world, from);

    if (task != NULL && task->wake_ms > world->now_ms)
        world->now_ms = task->wake_ms;
    return task;
}

static void resume(struct world *world, struct task *task)
{
    struct actor *before = model.actor;

    world->current = task;
    model.actor = &task->actor;
    if (swapcontext(&world->scheduler, &task->context) != 0)
        abort();
    model.actor = before;
    world->current = NULL;
}

static void kill(struct world *world, unsigned mask)
{
    for (size_t i = 0; i < world->task_count; i++)
        if ((mask >> i & 1) != 0 && !world->tasks[i].is_done && !world->tasks[i].actor.is_dead) {
            model_trace(world->tasks[i].client, "KILLED", "");
            world->tasks[i].actor.is_dead = true;
            if (world->bucket != NULL)
                object_sim_die(world->bucket, world->tasks[i].client);
            else
                sim_client_die(world->sim, world->tasks[i].client);
            if (world->tasks[i].saving != NULL && world->tasks[i].actor.rank == 0)
                ledger_end(&world->ledger, world->tasks[i].saving->save);
            world->was_killed = true;
        }
}

/* Run killed tasks to their end, so that they free their memory. */
static void run_killed_to_end(struct world *world)
{
    for (size_t i = 0; i < world->task_count; i++)
        while (world->tasks[i].actor.is_dead && !world->tasks[i].is_done)
            resume(world, &world->tasks[i]);
}

static bool is_critical(const char *op)
{
    static const char *const ops[] = {"dir_make",    "dir_sync",  "rename", "unlink",
                                      "file_create", "file_lock", "put",    "delete"};

    for (size_t i = 0; i < ARRAY_LENGTH(ops); i++)
        if (strcmp(op, ops[i]) == 0)
            return true;
    return false;
}

/* Disturb ${task}, which has done ${op} and is about to do another operation. */
static void disturb(struct world *world, struct task *task, const char *op)
{
    struct plan *plan = &world->plan;

    world->counts.criticals += is_critical(op);
    world->renames += strcmp(op, "rename") == 0;
    if (plan->kills_after_rename ? strcmp(op, "rename") == 0 && world->renames == plan->kill_at
                                 : is_critical(op) && world->counts.criticals == plan->kill_at)
        kill(world, plan->kill_mask);
    for (size_t i = 0; i < ARRAY_LENGTH(plan->pauses) && is_critical(task->at); i++)
        if (plan->pauses[i] == world->counts.criticals + 1) {
            task->is_paused = true;
            plan->pauses[i] = 0;
        }
}

void world_start_clock(struct world *world)
{
    world->clock = (struct clock){.now_ns = world_now_ns, .sleep_ms = world_sleep_ms};
}

void world_run(struct world *world)
{
    struct task *task = NULL;
    uint32_t tick = world->ledger.tick;
    struct world *outer = running;

    running = world;
    world_start_clock(world);
    if (world->bucket != NULL)
        object_sim_set_hook(world->bucket, bucket_before_request, world);
    else
        sim_set_hook(world->sim, world_before_op, world);
    while ((task = pick(world, task)) != NULL) {
        const char *op = task->at;
        resume(world, task);
        world->told = world->ledger.tick != tick;
        bool changed = model_store_is_change(op) || world->told;
        tick = world->ledger.tick;
        if (changed && !world->after_change(world))
            kill(world, ~0u);
        disturb(world, task, op);
        run_killed_to_end(world);
    }
    if (world->bucket != NULL)
        object_sim_set_hook(world->bucket, NULL, NULL);
    else
        sim_set_hook(world->sim, NULL, NULL);
    running = outer;
}
