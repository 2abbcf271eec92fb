/* SPDX-License-Identifier: BSD-3-Clause */
/* save_pool.c -- reserves and releases staging pools, and pins them for devices. */
#include <assert.h>

#include "save/save.h"

enum sidestep_status save_pool_reserve(struct sidestep_engine *engine, struct pool *pool,
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

void save_pool_release(struct sidestep_engine *engine, struct pool *pool)
{
    if (pool->bytes != NULL && engine->devices.pinned == pool->bytes)
        devices_unpin_pool(&engine->devices);
    pool_release(pool);
}
