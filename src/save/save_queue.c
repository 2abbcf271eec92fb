/* SPDX-License-Identifier: BSD-3-Clause */
/* save_queue.c -- the list of saves under way, their slots and pools; see save_queue.h. */
#include "save/save_queue.h"

#include <assert.h>
#include <string.h>

#include "save/save.h"

/* Bits per save in rank 0's verdicts: its state + 1, or 0. */
#define VERDICT_BITS 4u

_Static_assert(SAVE_QUEUE_MAX *VERDICT_BITS <= 64, "the verdicts do not fit into one word");
_Static_assert(SIDESTEP_SAVE_UNKNOWN + 1 < 1 << VERDICT_BITS, "a verdict does not fit");

bool save_queue_contains(const struct sidestep_engine *engine, const struct sidestep_save *save)
{
    for (unsigned i = 0; i < engine->saver->queue.count; i++)
        if (engine->saver->queue.saves[i] == save)
            return true;
    return false;
}

struct sidestep_save *save_queue_newest(const struct sidestep_engine *engine)
{
    return engine->saver->queue.count != 0 ? engine->saver->queue.saves[0] : NULL;
}

/* Saves end in order, so those under way come first in the list. */
static unsigned count_busy(const struct sidestep_engine *engine) ON_THREAD(CALLER)
{
    unsigned busy = 0;

    while (busy < engine->saver->queue.count &&
           !save_runner_has_ended(engine->saver->queue.saves[busy]))
        busy++;
    return busy;
}

struct sidestep_save *save_queue_newest_unfinished(const struct sidestep_engine *engine)
{
    return count_busy(engine) != 0 ? engine->saver->queue.saves[0] : NULL;
}

void save_queue_wait_idle(struct sidestep_engine *engine)
{
    for (unsigned i = engine->saver->queue.count; i > 0; i--)
        save_join_runner(engine->saver->queue.saves[i - 1]);
}

static enum sidestep_status refuse(const struct sidestep_save *earlier, struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EBUSY, "the save of '%s' is still being written",
                earlier->commit.path);
}

static bool is_used(const struct sidestep_engine *engine, const struct save_slot *slot,
                    unsigned busy) ON_THREAD(CALLER)
{
    for (unsigned k = 0; k < busy; k++)
        if (engine->saver->queue.saves[k]->slot == slot)
            return true;
    return false;
}

/* Return the first slot that no save uses; without a queue it is always the same one.  Free pools
 * of slots that were not used for a while. */
static struct save_slot *take_slot(struct sidestep_engine *engine) ON_THREAD(CALLER)
{
    struct save_slot *slot = NULL;
    unsigned busy = count_busy(engine);

    for (size_t i = 0; i < SAVE_QUEUE_MAX; i++) {
        struct save_slot *other = &engine->saver->queue.slots[i];
        if (is_used(engine, other, busy))
            continue;
        if (slot == NULL)
            slot = other;
        else if (engine->saver->save_counter - other->used > SAVE_QUEUE_IDLE_SAVES)
            save_pool_release(engine, &other->pool);
    }
    assert(slot != NULL); /* there are more slots than saves that may be under way */
    slot->used = engine->saver->save_counter;
    return slot;
}

enum sidestep_status save_queue_acquire_slot(struct sidestep_engine *engine,
                                             struct sidestep_save *save, unsigned limit,
                                             bool nowait, struct sidestep_error *err)
{
    struct save_queue *queue = &engine->saver->queue;

    assert(limit <= SIDESTEP_MAX_QUEUE);
    for (unsigned busy; (busy = count_busy(engine)) > limit;) {
        if (nowait)
            return refuse(queue->saves[busy - 1], err);
        save_join_runner(queue->saves[busy - 1]);
    }
    for (unsigned i = queue->count; i > 0; i--)
        if (save_runner_has_ended(queue->saves[i - 1]))
            save_update_compression_policy(queue->saves[i - 1]);
    save->slot = take_slot(engine);
    return SIDESTEP_OK;
}

enum sidestep_status save_queue_wait_for_path(struct sidestep_engine *engine,
                                              struct sidestep_save *save, bool nowait,
                                              struct sidestep_error *err)
{
    for (unsigned i = count_busy(engine); i > 0; i--) {
        struct sidestep_save *earlier = engine->saver->queue.saves[i - 1];
        if (strcmp(earlier->commit.path, save->commit.path) != 0)
            continue;
        if (nowait)
            return refuse(earlier, err);
        save_join_runner(earlier);
    }
    return SIDESTEP_OK;
}

/* ---- memory */

static bool has_room(const struct sidestep_engine *engine, const struct save_slot *slot,
                     uint64_t bytes) ON_THREAD(CALLER)
{
    uint64_t others = 0;

    if (engine->saver->pool_cap == 0 || slot->pool.length >= bytes)
        return true;
    for (size_t i = 0; i < SAVE_QUEUE_MAX; i++)
        if (&engine->saver->queue.slots[i] != slot)
            others += engine->saver->queue.slots[i].pool.length;
    return others <= engine->saver->pool_cap && bytes <= engine->saver->pool_cap - others;
}

static void exchange_pools(struct save_slot *a, struct save_slot *b)
{
    struct pool pool = a->pool;

    assert(a != b);
    a->pool = b->pool;
    b->pool = pool;
}

/* Give the pool of one unused slot to ${slot}, or free that pool if it is too small.  False: no
 * unused slot has a pool. */
static bool reuse_pool(struct sidestep_engine *engine, struct save_slot *slot, uint64_t bytes)
    ON_THREAD(CALLER)
{
    unsigned busy = count_busy(engine);

    for (size_t i = 0; i < SAVE_QUEUE_MAX; i++) {
        struct save_slot *other = &engine->saver->queue.slots[i];
        if (other == slot || other->pool.length == 0 || is_used(engine, other, busy))
            continue;
        if (other->pool.length >= bytes)
            exchange_pools(slot, other);
        else
            save_pool_release(engine, &other->pool);
        return true;
    }
    return false;
}

/* Let ${save} wait for the oldest save under way.  False: there is none. */
static bool wait_for_oldest(struct sidestep_engine *engine, struct sidestep_save *save)
    ON_THREAD(CALLER)
{
    unsigned busy = count_busy(engine);
    uint64_t from = clock_now(engine->clock);

    if (busy == 0)
        return false;
    save_join_runner(engine->saver->queue.saves[busy - 1]);
    lock_acquire(&save->shared.lock);
    save->shared.info.wait_ns += clock_now(engine->clock) - from;
    lock_release(&save->shared.lock);
    return true;
}

enum sidestep_status save_queue_reserve_pool(struct sidestep_engine *engine,
                                             struct sidestep_save *save, uint64_t bytes,
                                             bool at_once, bool pin, struct sidestep_error *err)
{
    struct save_slot *slot = save->slot;
    struct workers *workers = at_once ? engine->stagers : NULL;
    bool nowait = (save->options.flags & SIDESTEP_SAVE_NOWAIT) != 0;

    assert(slot != NULL);
    while (!has_room(engine, slot, bytes)) {
        if (reuse_pool(engine, slot, bytes))
            continue;
        if (nowait && count_busy(engine) != 0)
            return refuse(engine->saver->queue.saves[0], err);
        if (!wait_for_oldest(engine, save))
            break;
    }
    for (;;) {
        enum sidestep_status status =
            save_pool_reserve(engine, &slot->pool, bytes, workers, pin, err);
        if (status != SIDESTEP_ENOMEM || nowait || !wait_for_oldest(engine, save))
            return status;
        while (slot->pool.length < bytes && reuse_pool(engine, slot, bytes)) {
        }
    }
}

/* ---- how saves end */

enum sidestep_status save_queue_take_unreported_error(struct sidestep_engine *engine,
                                                      uint64_t *place, struct sidestep_error *err)
{
    for (unsigned i = engine->saver->queue.count; i > 0; i--) {
        enum sidestep_status status =
            save_take_unreported_error(engine->saver->queue.saves[i - 1], err);
        if (status == SIDESTEP_OK)
            continue;
        if (place != NULL)
            *place = i;
        return status;
    }
    return SIDESTEP_OK;
}

void save_queue_mark_reported(struct sidestep_engine *engine, uint64_t place)
{
    if (place != 0 && place <= engine->saver->queue.count)
        save_mark_reported(engine->saver->queue.saves[place - 1]);
}

uint64_t save_queue_pack_verdicts(const struct sidestep_engine *engine)
{
    uint64_t verdicts = 0;

    for (unsigned i = 0; i < engine->saver->queue.count; i++)
        verdicts |= (uint64_t)(save_get_state(engine->saver->queue.saves[i]) + 1)
                    << (i * VERDICT_BITS);
    return verdicts;
}

/* Has save ${i} ended on rank 0?  Sets ${*state}. */
static bool has_ended(uint64_t verdicts, unsigned i, enum sidestep_save_state *state)
{
    assert(i < SAVE_QUEUE_MAX);
    uint64_t verdict = verdicts >> (i * VERDICT_BITS) & ((1u << VERDICT_BITS) - 1);

    *state = verdict != 0 ? (enum sidestep_save_state)(verdict - 1) : SIDESTEP_SAVE_STAGING;
    return save_state_is_final(*state);
}

void save_queue_apply_verdicts(struct sidestep_engine *engine, uint64_t verdicts)
{
    enum sidestep_save_state state;

    for (unsigned i = engine->saver->queue.count; i > 0; i--)
        if (has_ended(verdicts, i - 1, &state)) {
            save_join_runner(engine->saver->queue.saves[i - 1]); /* it ends soon */
            save_apply_verdict(engine->saver->queue.saves[i - 1], state);
        }
}

void save_queue_remove_ended(struct sidestep_engine *engine, uint64_t verdicts)
{
    struct save_queue *queue = &engine->saver->queue;
    enum sidestep_save_state state;
    unsigned count = 0;

    for (unsigned i = 0; i < queue->count; i++) {
        if (!has_ended(verdicts, i, &state)) {
            queue->saves[count++] = queue->saves[i];
            continue;
        }
        if (engine->comm.rank == 0)
            commit_remove_outcome(&queue->saves[i]->commit);
        save_release(queue->saves[i]);
    }
    queue->count = count;
}

void save_queue_add(struct sidestep_engine *engine, struct sidestep_save *save)
{
    struct save_queue *queue = &engine->saver->queue;
    struct sidestep_save *before = save_queue_newest_unfinished(engine);

    assert(queue->count < SAVE_QUEUE_MAX);
    assert(save->previous == NULL && !save_queue_contains(engine, save));
    if (before != NULL) {
        save_retain(before);
        save->previous = before;
        lock_acquire(&save->shared.lock);
        save->shared.info.flags |= SIDESTEP_SAVE_QUEUED;
        lock_release(&save->shared.lock);
    }
    memmove(queue->saves + 1, queue->saves, queue->count * sizeof(queue->saves[0]));
    save_retain(save);
    queue->saves[0] = save;
    queue->count++;
}

enum sidestep_status save_queue_drain_all(struct sidestep_engine *engine,
                                          struct sidestep_error *err)
{
    struct save_queue *queue = &engine->saver->queue;
    uint64_t verdicts = 0;

    save_queue_wait_idle(engine);
    if (engine->comm.rank == 0)
        verdicts = save_queue_pack_verdicts(engine);
    enum sidestep_status status = comm_reduce_max_all(&engine->comm, &verdicts, 1, err);
    if (status == SIDESTEP_OK)
        save_queue_apply_verdicts(engine, verdicts);
    for (unsigned i = 0; engine->comm.rank == 0 && i < queue->count; i++)
        commit_remove_outcome(&queue->saves[i]->commit);
    enum sidestep_status unreported =
        save_queue_take_unreported_error(engine, NULL, status == SIDESTEP_OK ? err : NULL);
    return status != SIDESTEP_OK ? status : unreported;
}

void save_queue_release(struct sidestep_engine *engine)
{
    struct save_queue *queue = &engine->saver->queue;

    for (unsigned i = queue->count; i > 0; i--)
        save_release(queue->saves[i - 1]);
    queue->count = 0;
}
