/* SPDX-License-Identifier: BSD-3-Clause */
/* save_plan_all.c -- plans a save with all ranks: tables go to rank 0, plans come back. */
#include <assert.h>

#include "base/base.h"
#include "save/save.h"

static enum sidestep_status build_plans(const struct sidestep_engine *engine,
                                        const struct comm_parts *tables, struct buffer *plans,
                                        struct comm_parts *out, struct sidestep_error *err)
{
    const struct comm *comm = &engine->comm;
    OWNED const void **table_addresses = memory_new((size_t)comm->size, sizeof(*table_addresses));

    assert(comm->rank == 0);
    out->sizes = memory_new((size_t)comm->size, sizeof(*out->sizes));
    out->offsets = memory_new((size_t)comm->size, sizeof(*out->offsets));
    if (table_addresses == NULL || out->sizes == NULL || out->offsets == NULL)
        return FAIL_NOMEM(err, (size_t)comm->size * sizeof(*table_addresses));
    for (int32_t rank = 0; rank < comm->size; rank++)
        table_addresses[rank] = tables->bytes + tables->offsets[rank];
    TRY(save_plan_build(table_addresses, tables->sizes, (uint32_t)comm->size, engine->hosts.of_rank,
                        plans, out->sizes, err));
    for (int32_t rank = 1; rank < comm->size; rank++)
        out->offsets[rank] = out->offsets[rank - 1] + out->sizes[rank - 1];
    out->bytes = TAKE(plans->bytes);
    return SIDESTEP_OK;
}

enum sidestep_status save_plan_all(struct sidestep_engine *engine,
                                   const struct sidestep_state_dict *state, const bool *replicated,
                                   struct sidestep_error *err)
{
    struct comm *comm = &engine->comm;
    OWNED_BUFFER table = {0};
    OWNED_BUFFER plans = {0};
    OWNED_BY(comm_parts_release) struct comm_parts tables = {0};
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    OWNED void *mine = NULL;
    size_t bytes = 0;

    engine->saver->layout_digest = 0;
    save_plan_release(&engine->saver->plan);
    enum sidestep_status status = save_plan_table_encode(state, replicated, &table, err);
    status = comm_agree_all(comm, status, err);
    if (status == SIDESTEP_OK)
        status = comm_gather_all(comm, table.bytes, table.length, &tables, err);
    if (status == SIDESTEP_OK) {
        if (comm->rank == 0)
            status = build_plans(engine, &tables, &plans, &parts, err);
        status = comm_agree_all(comm, status, err);
    }
    if (status == SIDESTEP_OK)
        status = comm_scatter_all(comm, &parts, &mine, &bytes, err);
    if (status == SIDESTEP_OK) {
        status = save_plan_decode(mine, bytes, state, &engine->saver->plan, err);
        status = comm_agree_all(comm, status, err);
    }
    return WRAP(status, err, "plan the save");
}
