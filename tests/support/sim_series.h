/* SPDX-License-Identifier: BSD-3-Clause */
/* sim_series.h -- for tests of a series on the simulated disk: one_rank.h, the disk with a hook
 * before each operation, and the series in RUN, which the test opens. */
#ifndef SUPPORT_SIM_SERIES_H
#define SUPPORT_SIM_SERIES_H

#include "engine/engine.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/store_sim.h"
#include "support/unit.h"

#define RUN "/run"

static struct sim *sim;
static struct sidestep_series *series;

/* For setup and teardown functions of cmocka: 0, or -1. */
static inline int sim_series_begin(void (*before_op)(void *context, int client, const char *op,
                                                     const char *name))
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.io = SIDESTEP_IO_BUFFERED;
    options.snapshot = SIDESTEP_SNAPSHOT_COPY;
    sim = sim_new(0);
    if (sim == NULL || one_rank_begin(&options) != 0)
        return -1;
    sim_set_hook(sim, before_op, NULL);
    engine->store = sim_store(sim, 0);
    return 0;
}

static inline int sim_series_end(void)
{
    int status = sidestep_series_close(&series, &err) == SIDESTEP_OK ? 0 : -1;

    status |= one_rank_end();
    sim_free(&sim);
    return status;
}

/* Prune, and return the number of deleted checkpoints. Any thread may call this. */
static inline size_t prune(void)
{
    struct sidestep_gc_report report = {0};
    struct sidestep_error why = {0};

    if (sidestep_series_prune(series, &report, &why) != SIDESTEP_OK)
        fail_msg("%s", why.message);
    size_t count = report.removed_count;
    sidestep_gc_report_release(&report);
    return count;
}

#endif
