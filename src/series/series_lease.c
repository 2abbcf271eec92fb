/* SPDX-License-Identifier: BSD-3-Clause */
/* series_lease.c -- takes the lease of the root of a series, and guards its saves by it. */
#include <string.h>

#include "base/base.h"
#include "selection/selection.h"
#include "series/series.h"

static enum sidestep_status guard_holds(void *context, const struct commit *commit,
                                        struct sidestep_error *err)
{
    struct sidestep_series *series = context;

    TRY(lease_check_root(&series->lease, commit->parent, err));
    return lease_check(&series->lease, err);
}

static enum sidestep_status guard_check(void *context, const struct commit *commit,
                                        struct sidestep_error *err)
{
    struct sidestep_series *series = context;

    series_record_bytes(series, commit->bytes);
    series_write_annotations(series, commit);
    return guard_holds(series, commit, err);
}

enum sidestep_status series_open_lease(struct sidestep_series *series,
                                       const struct lease_elsewhere *known,
                                       struct sidestep_error *err)
{
    struct lease_elsewhere elsewhere = *known;
    char keeps[LEASE_KEEPS_BYTES];

    TRY(engine_find_store(series->engine, series->root, &series->store, err));
    bool is_first = series->engine->comm.rank == 0;
    if (is_first)
        TRY(series_mirror_read(series, &elsewhere, err));
    kept_format_record(&series->retention, &series->naming, keeps);
    TRY(lease_acquire(&series->lease, series->store, series->root, &elsewhere, keeps, err));
    if (is_first)
        TRY(series_mirror_claim(series, err));
    else if (series->mirror != NULL) /* rank 0 has claimed it */
        TRY(series_remember_mirror(series, err));
    memcpy(series->run_id, series->lease.run_id, sizeof(series->run_id));
    series->incarnation = series->lease.incarnation;
    series->guard =
        (struct commit_guard){.check = guard_check, .holds = guard_holds, .context = series};
    struct sweep sweep = {
        .store = series->store, .parent = series->lease.root, .mode = SWEEP_SERIES};
    TRY(root_sweep(&sweep, err));
    TRY(series_estimate_space(series, err));
    TRY(series_start_pruner(series, err));
    return series_start_mirror(series, err);
}

enum sidestep_status series_share_identity_all(struct sidestep_series *series,
                                               struct sidestep_error *err)
{
    struct identity {
        char run_id[SAVE_ID_HEX];
        uint64_t incarnation, has_mirror;
    } identity = {.incarnation = series->incarnation, .has_mirror = series->has_mirror};

    memcpy(identity.run_id, series->run_id, sizeof(identity.run_id));
    TRY(comm_broadcast_all(&series->engine->comm, &identity, sizeof(identity), 0, err));
    memcpy(series->run_id, identity.run_id, sizeof(series->run_id));
    series->incarnation = identity.incarnation;
    series->has_mirror = identity.has_mirror != 0;
    return SIDESTEP_OK;
}
