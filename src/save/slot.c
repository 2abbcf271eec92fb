/* SPDX-License-Identifier: BSD-3-Clause */
/* slot.c -- slots, their pools, and engines that share memory; see slot.h. */
#include "save/slot.h"

#include <assert.h>
#include <stdio.h>

#include "save/save.h"

/* What a save, and the program beside it, may need besides the pool. */
#define BESIDE_POOL_BYTES ((uint64_t)64 << 20)

static bool is_used(const struct turns *turns, const struct save_slot *slot) ON_THREAD(CALLER)
{
    for (unsigned i = turn_count(turns); i > 0; i--)
        if (turns->saves[i - 1]->slot == slot)
            return true;
    return false;
}

/* Unpin ${pool} and return it to the system. */
static void free_pool(struct sidestep_engine *engine, struct pool *pool)
{
    if (pool->bytes != NULL && engine->devices.pinned == pool->bytes)
        devices_unpin_pool(&engine->devices);
    pool_release(pool);
}

/* Make ${pool} at least ${bytes} large. */
static enum sidestep_status enlarge_pool(struct sidestep_engine *engine, struct pool *pool,
                                         uint64_t bytes, struct workers *workers, bool pin,
                                         struct sidestep_error *err)
{
    int node = -1;

    if (bytes > pool->length) {
        if (engine->devices.pinned == pool->bytes)
            devices_unpin_pool(&engine->devices);
        node = pin ? devices_numa_node(&engine->devices) : -1;
    }
    TRY(pool_reserve_on_node(pool, bytes, node, workers, err));
    assert(pool->length >= bytes);
    if (pin)
        (void)devices_pin_pool(&engine->devices, pool);
    return SIDESTEP_OK;
}

/* Without a queue it is always the first one. */
struct save_slot *slot_take(struct sidestep_engine *engine)
{
    struct saver *saver = engine->saver;
    struct save_slot *slot = NULL;

    for (size_t i = 0; i < TURN_MAX_SAVES; i++) {
        struct save_slot *other = &saver->slots[i];
        if (is_used(&saver->turns, other))
            continue;
        if (slot == NULL)
            slot = other;
        else if (saver->save_counter - other->used > SLOT_IDLE_SAVES)
            free_pool(engine, &other->pool);
    }
    assert(slot != NULL); /* there are more slots than saves that may be under way */
    slot->used = saver->save_counter;
    return slot;
}

static bool has_room(const struct saver *saver, const struct save_slot *slot, uint64_t bytes)
    ON_THREAD(CALLER)
{
    uint64_t others = 0;

    if (saver->pool_cap == 0 || slot->pool.length >= bytes)
        return true;
    for (size_t i = 0; i < TURN_MAX_SAVES; i++)
        if (&saver->slots[i] != slot)
            others += saver->slots[i].pool.length;
    return others <= saver->pool_cap && bytes <= saver->pool_cap - others;
}

/* Give the pool of one unused slot to that of ${save}, or free that pool if it is too small.
 * False: no unused slot has a pool. */
static bool reuse_pool(struct sidestep_save *save, uint64_t bytes) ON_THREAD(CALLER)
{
    struct saver *saver = save->saver;

    for (size_t i = 0; i < TURN_MAX_SAVES; i++) {
        struct save_slot *other = &saver->slots[i];
        if (other == save->slot || other->pool.length == 0 || is_used(&saver->turns, other))
            continue;
        if (other->pool.length >= bytes) {
            struct pool pool = other->pool;
            other->pool = save->slot->pool;
            save->slot->pool = pool;
        } else
            free_pool(save->engine, &other->pool);
        return true;
    }
    return false;
}

enum sidestep_status slot_reserve_pool(struct sidestep_save *save, uint64_t bytes, bool at_once,
                                       bool pin, struct sidestep_error *err)
{
    struct pool *pool = &save->slot->pool;
    struct workers *workers = at_once ? save->engine->stagers : NULL;
    unsigned busy;

    while (!has_room(save->saver, save->slot, bytes)) {
        if (reuse_pool(save, bytes))
            continue;
        if ((busy = turn_count(&save->saver->turns)) == 0)
            break;
        TRY(turn_wait(save, busy - 1, NULL, err));
    }
    for (;;) {
        enum sidestep_status status = enlarge_pool(save->engine, pool, bytes, workers, pin, err);
        if (status != SIDESTEP_ENOMEM || (busy = turn_count(&save->saver->turns)) == 0 ||
            turn_wait(save, busy - 1, NULL, NULL) != SIDESTEP_OK)
            return status;
        while (pool->length < bytes && reuse_pool(save, bytes)) {
        }
    }
}

uint64_t slot_fit_pool(const struct sidestep_engine *engine, const struct pool *pool,
                       uint64_t wanted, char reason[SLOT_REASON_BYTES])
{
    uint64_t cap = engine->saver->pool_cap;

    if (cap != 0 || wanted <= pool->length)
        return cap != 0 ? min_u64(wanted, cap) : wanted;
    uint64_t room = cgroup_memory_room(); /* beside the pool, which a larger one replaces */
    uint64_t share = room / engine->hosts.ranks_here;
    share -= min_u64(share, max_u64(share / 8, BESIDE_POOL_BYTES));
    share = round_down(share, image_align());
    if (wanted - pool->length <= share)
        return wanted;
    snprintf(reason, SLOT_REASON_BYTES, "%llu MiB of memory are left here, for %u rank%s",
             (unsigned long long)(room >> 20), engine->hosts.ranks_here,
             engine->hosts.ranks_here != 1 ? "s" : "");
    return max_u64(max_u64(share, pool->length), PIPELINE_MIN_POOL_BYTES);
}

enum sidestep_status slot_prepare_pool(struct sidestep_engine *engine, uint64_t bytes, bool pin,
                                       struct sidestep_error *err)
{
    struct pool *pool = &engine->saver->slots[0].pool;
    char reason[SLOT_REASON_BYTES];

    bytes = slot_fit_pool(engine, pool, bytes, reason);
    return enlarge_pool(engine, pool, bytes, engine->stagers, pin, err);
}

void slot_begin_memory_turn(struct sidestep_save *save)
{
    if (save->saver->memory_turn == NULL)
        return;
    assert(!save->has_memory_turn);
    while (sem_wait(save->saver->memory_turn) != 0) {
        /* EINTR, by a signal of the program */
    }
    save->has_memory_turn = true;
}

void slot_end_memory_turn(struct sidestep_save *save)
{
    if (!save->has_memory_turn)
        return;
    save->has_memory_turn = false;
    compressor_buffers_release(&save->saver->compressor_buffers);
    pool_trim(&save->slot->pool, save->slot->pool.bytes);
    (void)sem_post(save->saver->memory_turn);
}
