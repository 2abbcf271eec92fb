/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_parts.c -- opens a series whose root is a directory that each node has for itself.
 *
 * The ranks that see one directory are a group (engine/sight_groups.h). The lowest of them leads:
 * it has the lease of that directory. All leases are of one run and one incarnation, which rank 0
 * chooses when it has seen what each directory knows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "series/series.h"

/* What the directory of a rank that leads knows of its run. */
struct known {
    char run_id[SAVE_ID_HEX]; /* "": nothing */
    uint64_t incarnation;
    bool has_mirror; /* it has had the mirror that this rank names */
    char host[64];
};

/* What is not built yet where saves are made of parts. */
static enum sidestep_status check_supported(const struct sidestep_series *series,
                                            struct sidestep_error *err)
{
    const char *what = series->max_restarts != 0                            ? "max_restarts"
                       : series->retention.keep_best != 0                   ? "keep_best"
                       : (series->flags & SIDESTEP_SERIES_INCREMENTAL) != 0 ? "incremental saves"
                       : (series->flags & SIDESTEP_SERIES_ANY_RUN) != 0
                           ? "checkpoints of other runs"
                           : NULL;

    if (what == NULL)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "each node has a directory for itself at '%s', and %s needs one that all share; "
                "nothing was changed",
                series->root, what);
}

/* Make the root of this rank, if it is missing, and group the ranks. */
static enum sidestep_status find_groups_all(struct sidestep_series *series,
                                            struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    struct store *store = NULL;
    OWNED_DIR *dir = NULL;
    enum sidestep_status status = engine_find_store(series->engine, series->root, &store, err);
    uint64_t is_bucket = status == SIDESTEP_OK && store->ops->layout == STORE_OF_KEYS;

    if (status == SIDESTEP_OK && is_bucket == 0)
        status = lease_open_root(store, series->root, &dir, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_reduce_max_all(comm, &is_bucket, 1, err));
    if (is_bucket != 0) /* all see it; if a rank has another root, the lease shows it */
        return SIDESTEP_OK;
    return sight_group_all(comm, dir, &series->groups, err);
}

static enum sidestep_status read_known(struct sidestep_series *series, struct known *known,
                                       struct sidestep_error *err)
{
    char path[COMMIT_PATH_BYTES];
    struct store *store = NULL;
    OWNED_DIR *dir = NULL;

    *known = (struct known){0};
    known->has_mirror = series->mirror != NULL && series_remembers_mirror(series);
    (void)gethostname(known->host, sizeof(known->host) - 1);
    TRY(engine_find_store(series->engine, series->root, &store, err));
    snprintf(path, sizeof(path), "%s/%s", series->root, FILE_NAME_SERIES_DIR);
    enum sidestep_status status = store_dir_open(store, NULL, path, &dir, err);
    if (status == SIDESTEP_OK)
        status = lease_read(dir, known->run_id, &known->incarnation, err);
    if (status != SIDESTEP_OK && !lease_state_is_lost(status))
        return status;
    if (status != SIDESTEP_OK)
        known->run_id[0] = '\0';
    series->before_parts = known->incarnation;
    return SIDESTEP_OK;
}

/* Rank 0: all directories that know a run must know the same one. */
static enum sidestep_status join_known(const struct sidestep_series *series,
                                       const struct comm_parts *parts,
                                       struct lease_elsewhere *elsewhere,
                                       struct sidestep_error *err)
{
    int32_t first = -1;

    for (int32_t rank = 0; rank < series->engine->comm.size; rank++) {
        struct known known;
        if (parts->sizes[rank] != sizeof(known))
            continue; /* it does not lead */
        memcpy(&known, parts->bytes + parts->offsets[rank], sizeof(known));
        known.run_id[sizeof(known.run_id) - 1] = known.host[sizeof(known.host) - 1] = '\0';
        if (known.run_id[0] == '\0')
            continue;
        if (series->mirror != NULL)
            series->mirror->is_remembered |= known.has_mirror;
        if (first >= 0 && strcmp(known.run_id, elsewhere->run_id) != 0)
            return FAIL(
                err, SIDESTEP_EMISMATCH,
                "the directory of rank %d belongs to run %s, but that of rank %d on %s to "
                "run %s: use a directory of its own for each run, or remove the one that is "
                "left over; nothing was changed",
                first, elsewhere->run_id, rank, known.host, known.run_id);
        if (first < 0) {
            first = rank;
            memcpy(elsewhere->run_id, known.run_id, sizeof(elsewhere->run_id));
        }
        elsewhere->incarnation = max_u64(elsewhere->incarnation, known.incarnation);
    }
    return SIDESTEP_OK;
}

/* Another job may have opened a directory meanwhile. */
static enum sidestep_status check_lease(const struct sidestep_series *series,
                                        const char run_id[SAVE_ID_HEX], uint64_t incarnation,
                                        struct sidestep_error *err)
{
    if (strcmp(series->lease.run_id, run_id) == 0 && series->lease.incarnation == incarnation)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED,
                "another job has opened '%s' on this node at the same time: it is at incarnation "
                "%llu of run %s, and this job at %llu of %s",
                series->root, (unsigned long long)series->lease.incarnation, series->lease.run_id,
                (unsigned long long)incarnation, run_id);
}

/* Rank 0 takes the first lease, the others follow. */
static enum sidestep_status take_leases_all(struct sidestep_series *series,
                                            struct lease_elsewhere *elsewhere,
                                            struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;
    char run_id[SAVE_ID_HEX];

    if (comm->rank == 0)
        status = series_open_lease(series, elsewhere, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(series_share_identity_all(series, err));
    uint64_t incarnation = series->incarnation;
    memcpy(run_id, series->run_id, sizeof(run_id));
    if (comm->rank != 0 && series_leads(series)) {
        memcpy(elsewhere->run_id, run_id, sizeof(run_id));
        elsewhere->incarnation = incarnation - 1;
        status = series_open_lease(series, elsewhere, err);
        if (status == SIDESTEP_OK)
            status = check_lease(series, run_id, incarnation, err);
    }
    return comm_agree_all(comm, status, err);
}

enum sidestep_status series_open_parts_all(struct sidestep_series *series,
                                           struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct lease_elsewhere elsewhere = {0};
    struct known known = {0};

    TRY(find_groups_all(series, err));
    if (!series_leads(series))
        series_free_mirror(series);
    series_set_mirror_parts(series);
    if (!series_has_parts(series))
        return take_leases_all(series, &elsewhere, err);
    enum sidestep_status status = check_supported(series, err);
    if (status == SIDESTEP_OK && series_leads(series))
        status = read_known(series, &known, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_gather_all(comm, &known, series_leads(series) ? sizeof(known) : 0, &parts, err));
    if (comm->rank == 0)
        status = join_known(series, &parts, &elsewhere, err);
    TRY(comm_agree_all(comm, status, err));
    THREAD_IS(CALLER);
    series->engine->saver->has_parts = true;
    return take_leases_all(series, &elsewhere, err);
}
