/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series.c -- a directory of checkpoints of one run.  Rank 0 owns the lock and decides; the other
 * ranks follow what it says in one small broadcast.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/owned.h"
#include "base/random.h"
#include "commit/commit.h"
#include "commit/lease.h"
#include "commit/sweep.h"
#include "engine/engine.h"
#include "engine/list.h"
#include "engine/load.h"
#include "engine/verify.h"

_Static_assert(sizeof(struct sidestep_series_options) == 24, "a field was added: apply it below");

#define SERIES_MAX_PREFIX 64u
#define SERIES_REJECTED_BYTES 2048u

struct sidestep_series {
    struct sidestep_engine *engine; /* our reference */
    struct sidestep_series *next;   /* of the engine's list */
    bool is_shut;                   /* the engine was closed: only the handle is left */
    char root[COMMIT_PATH_BYTES];
    char prefix[SERIES_MAX_PREFIX];
    char run_id[SAVE_ID_HEX]; /* rank 0's, on all ranks */
    uint64_t incarnation;
    struct lease lease; /* rank 0 */
    struct commit_guard guard;
    struct sidestep_save *last; /* our reference to the latest save of this series */
    bool has_committed;         /* a save of this incarnation */
    bool has_unknown;           /* an outcome is UNKNOWN: nothing is deleted */
};

static enum sidestep_status guard_check(void *context, struct sidestep_error *err)
{
    return lease_check(context, err);
}

static enum sidestep_status check_series(const struct sidestep_series *series,
                                         struct sidestep_error *err)
{
    if (series == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "series is NULL");
    TRY(engine_check(series->engine, err));
    if (series->is_shut)
        return FAIL(err, SIDESTEP_EINVAL, "the engine of series '%s' was closed", series->root);
    return SIDESTEP_OK;
}

/*
 * What became of the save before.  Only rank 0's answer is used.  With the first commit of this
 * incarnation, the marks may go that a killed one left in what it had committed.
 */
static void note_outcome(struct sidestep_series *series)
{
    bool had_committed = series->has_committed;

    if (series->last == NULL)
        return;
    enum sidestep_save_state state = save_state(series->last);
    series->has_committed |= state == SIDESTEP_SAVE_COMMITTED;
    series->has_unknown |= state == SIDESTEP_SAVE_UNKNOWN;
    struct sweep sweep = {.store = series->engine->store, .parent = series->lease.root};
    if (!had_committed && series->has_committed && sweep.parent != NULL)
        (void)sweep_children(&sweep, NULL);
}

/* ---- open and close ---- */

static enum sidestep_status take_options(struct sidestep_series *series, const char *root,
                                         const struct sidestep_series_options *theirs,
                                         struct sidestep_error *err)
{
    struct sidestep_series_options options;

    TRY(options_copy(&options, sizeof(options), theirs, "series options", err));
    const char *prefix = options.prefix != NULL ? options.prefix : "step-";
    size_t length = strlen(prefix);
    if (options.flags != 0 || options.reserved != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "series options: unknown flags");
    if (root == NULL || strlen(root) >= sizeof(series->root) - SERIES_MAX_PREFIX - 32)
        return FAIL(err, SIDESTEP_EINVAL, "root is NULL or too long");
    if (length == 0 || length >= sizeof(series->prefix) || strchr(prefix, '/') != NULL ||
        prefix[0] == '.' || isdigit((unsigned char)prefix[length - 1]))
        return FAIL(
            err, SIDESTEP_EINVAL,
            "series prefix '%s': 1 to %u bytes, no slash, not starting with a dot or ending "
            "with a digit",
            prefix, SERIES_MAX_PREFIX - 1);
    memcpy(series->prefix, prefix, length + 1);
    snprintf(series->root, sizeof(series->root), "%s", root);
    return SIDESTEP_OK;
}

/* Take the lock; fence and clear what earlier incarnations left. */
static enum sidestep_status open_lease(struct sidestep_series *series, struct sidestep_error *err)
{
    TRY(lease_take(&series->lease, series->engine->store, series->root, err));
    memcpy(series->run_id, series->lease.run_id, sizeof(series->run_id));
    series->incarnation = series->lease.incarnation;
    series->guard = (struct commit_guard){.check = guard_check, .context = &series->lease};
    struct sweep sweep = {
        .store = series->engine->store, .parent = series->lease.root, .mode = SWEEP_SERIES};
    return sweep_parent(&sweep, err);
}

struct sidestep_series *series_shut(struct sidestep_series *series)
{
    struct sidestep_series *next = series->next;

    if (series->last != NULL) {
        save_join(series->last); /* it needs our guard */
        note_outcome(series);
        save_release(series->last);
        series->last = NULL;
    }
    lease_release(&series->lease);
    series->next = NULL;
    series->is_shut = true;
    return next;
}

static void series_free(struct sidestep_series *series)
{
    struct sidestep_series **at = &series->engine->series;

    while (*at != NULL && *at != series)
        at = &(*at)->next;
    if (*at != NULL)
        *at = series_shut(series);
    engine_release(series->engine);
    free(series);
}

struct identity {
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;
};

static enum sidestep_status open_all(struct sidestep_series *series, const char *root,
                                     const struct sidestep_series_options *options,
                                     struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    struct identity identity = {0};
    enum sidestep_status status = take_options(series, root, options, err);

    if (status == SIDESTEP_OK && comm->rank == 0)
        status = open_lease(series, err);
    TRY(comm_vote_all(comm, status, err));
    memcpy(identity.run_id, series->run_id, sizeof(identity.run_id));
    identity.incarnation = series->incarnation;
    TRY(comm_broadcast_all(comm, &identity, sizeof(identity), 0, err));
    memcpy(series->run_id, identity.run_id, sizeof(series->run_id));
    series->incarnation = identity.incarnation;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_open(struct sidestep_engine *engine, const char *root,
                                          const struct sidestep_series_options *options,
                                          struct sidestep_series **out, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1}; /* some failures on the way are no failure of ours */

    TRY(engine_check(engine, err));
    if (out == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "series is NULL");
    *out = NULL;
    struct sidestep_series *series = memory_new(1, sizeof(*series));
    enum sidestep_status status = series != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, sizeof(*series));
    status = comm_vote_all(&engine->comm, status, err);
    if (status != SIDESTEP_OK) {
        free(series);
        return status;
    }
    engine_retain(engine);
    series->engine = engine;
    series->next = engine->series;
    engine->series = series;
    status = open_all(series, root, options, &why);
    if (status != SIDESTEP_OK) {
        series_free(series);
        error_wrap(&why, "open series '%s'", root != NULL ? root : "");
        if (err != NULL)
            *err = why;
        return status;
    }
    *out = series;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_close(struct sidestep_series **out, struct sidestep_error *err)
{
    struct sidestep_series *series = out != NULL ? *out : NULL;

    if (series == NULL)
        return SIDESTEP_OK;
    TRY(engine_check(series->engine, err));
    *out = NULL;
    enum sidestep_status status = SIDESTEP_OK;
    if (series->last != NULL && series->engine->last == series->last)
        status = save_settle_all(series->engine, err);
    series_free(series);
    return status;
}

/* ---- save ---- */

static enum sidestep_status start_all(struct sidestep_series *series, uint64_t step,
                                      const struct sidestep_state_dict *state,
                                      const struct sidestep_save_options *theirs, bool blocking,
                                      struct sidestep_save **save, struct sidestep_error *err)
{
    struct sidestep_save_options options;
    struct save_series part = {.run_id = series->run_id,
                               .incarnation = series->incarnation,
                               .guard = series->engine->comm.rank == 0 ? &series->guard : NULL};
    char path[COMMIT_PATH_BYTES];

    enum sidestep_status status =
        options_copy(&options, sizeof(options), theirs, "save options", err);
    if (status != SIDESTEP_OK) /* let the common path refuse it, on all ranks alike */
        options = (struct sidestep_save_options){.struct_size = sizeof(options), .flags = ~0u};
    options.flags |= SIDESTEP_SAVE_NO_REPLACE;
    options.has_step = 1;
    options.step = step;
    snprintf(path, sizeof(path), "%s/%s%llu", series->root, series->prefix,
             (unsigned long long)step);
    TRY(save_start_all(series->engine, path, state, &options, &part, blocking, save, err));
    if (series->last != NULL) {
        save_join(series->last);
        note_outcome(series);
        save_release(series->last);
    }
    save_retain(*save);
    series->last = *save;
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_series_save_async(struct sidestep_series *series, uint64_t step,
                                                const struct sidestep_state_dict *state,
                                                const struct sidestep_save_options *options,
                                                struct sidestep_save **save,
                                                struct sidestep_error *err)
{
    TRY(check_series(series, err));
    if (save == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "save is NULL");
    return start_all(series, step, state, options, false, save, err);
}

enum sidestep_status sidestep_series_save(struct sidestep_series *series, uint64_t step,
                                          const struct sidestep_state_dict *state,
                                          const struct sidestep_save_options *options,
                                          struct sidestep_save_info *info,
                                          struct sidestep_error *err)
{
    struct sidestep_save *save = NULL;

    TRY(check_series(series, err));
    TRY(start_all(series, step, state, options, true, &save, err));
    return save_finish_all(&save, info, err);
}

/* ---- load ---- */

/* Is this one of the series' names: prefix and a number without leading zeroes? */
static bool is_member(const struct sidestep_series *series, const char *name, uint64_t *step)
{
    size_t prefix = strlen(series->prefix);
    char again[NAMES_MAX];
    int64_t number = list_number_of(name);

    if (strncmp(name, series->prefix, prefix) != 0 || number < 0)
        return false;
    snprintf(again, sizeof(again), "%s%lld", series->prefix, (long long)number);
    *step = (uint64_t)number;
    return strcmp(again, name) == 0;
}

/* The choice of rank 0. */
struct choice {
    uint64_t step;
    char rejected[SERIES_REJECTED_BYTES];
};

struct choosing {
    struct sidestep_series *series;
    struct choice *choice;
};

static void note_rejected(struct choice *choice, const char *why)
{
    size_t used = strlen(choice->rejected);

    snprintf(choice->rejected + used, sizeof(choice->rejected) - used, "%s%s",
             used != 0 ? "; " : "", why);
}

/* Set aside as .bad what is ours and does not verify; others are only passed over. */
static enum sidestep_status quarantine(void *context, const struct sidestep_listed *entry,
                                       const struct sidestep_error *why, struct sidestep_error *err)
{
    struct choosing *choosing = context;
    struct lease *lease = &choosing->series->lease;
    char bad[NAMES_MAX];
    json_t *fields = json_pack("{s:s, s:s}", "path", entry->path, "message", why->message);

    note_rejected(choosing->choice, why->message);
    events_emit(&choosing->series->engine->events, "rejected", fields);
    bool is_damage = why->status == SIDESTEP_ECORRUPT || why->status == SIDESTEP_EUNSAFE;
    if (entry->save_id == NULL || !is_damage)
        return SIDESTEP_OK;
    names_format(NAMES_BAD, entry->save_id, 0, 0, bad);
    TRY(lease_check(lease, err));
    if (store_rename(lease->root, entry->name, lease->root, bad, STORE_NOREPLACE, NULL) !=
        SIDESTEP_OK)
        return SIDESTEP_OK; /* it will be rejected again */
    return store_dir_sync(lease->root, err);
}

/* What is chosen is durable: its commit may have been cut short before that.  Its name is by the
 * sync of the root; what was committed in place, by one of its own directory. */
static enum sidestep_status sync_member(struct sidestep_series *series, const char *name,
                                        struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    TRY(store_dir_open(series->engine->store, series->lease.root, name, &dir, err));
    return store_dir_sync(dir, err);
}

/* Rank 0: the newest member of the series that passes ${mode}. */
static enum sidestep_status choose(struct sidestep_series *series, enum sidestep_verify_mode mode,
                                   struct choice *choice, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list all = {0};
    OWNED struct sidestep_listed *members = NULL;
    struct sidestep_list list = {0};
    struct choosing choosing = {.series = series, .choice = choice};
    size_t chosen = 0;

    TRY(store_dir_sync(series->lease.root, err));
    TRY(list_candidates(series->engine->store, series->root, &all, err));
    members = memory_new(all.count, sizeof(*members));
    if (members == NULL)
        return FAIL_NOMEM(err, all.count * sizeof(*members));
    for (size_t i = 0; i < all.count; i++) {
        uint64_t step;
        if (all.entries[i].state == SIDESTEP_BAD || /* what is set aside is not "nothing yet" */
            (all.entries[i].state == SIDESTEP_COMMITTED &&
             is_member(series, all.entries[i].name, &step)))
            members[list.count++] = all.entries[i];
    }
    for (size_t i = 0; i < list.count; i++) /* by name, which is what the caller sees */
        members[i].step = list_number_of(members[i].name);
    list_sort(members, list.count);
    list.entries = members;
    TRY(list_choose(series->engine->store, &list, mode, series->engine->stagers, quarantine,
                    &choosing, &chosen, err));
    TRY(sync_member(series, members[chosen].name, err));
    return is_member(series, members[chosen].name, &choice->step)
               ? SIDESTEP_OK
               : FAIL(err, SIDESTEP_ENOTFOUND, "'%s'", members[chosen].name);
}

/* After a load that failed: 1 if rank 0 finds, by a second look past the cache, that the checkpoint
 * is damaged; then the next older one has its turn. */
static enum sidestep_status is_damaged_all(struct sidestep_series *series, const char *path,
                                           uint64_t *damaged, struct sidestep_error *err)
{
    *damaged = 0;
    if (series->engine->comm.rank == 0) {
        struct sidestep_error why = {0};
        enum sidestep_status status =
            verify_path(series->engine->store, path, SIDESTEP_VERIFY_BEFORE, STORE_UNCACHED,
                        series->engine->stagers, &why);
        *damaged = status == SIDESTEP_ECORRUPT || status == SIDESTEP_EUNSAFE;
    }
    return comm_max_all(&series->engine->comm, damaged, 1, err);
}

static enum sidestep_status
load_once_all(struct sidestep_series *series, struct sidestep_state_dict *state,
              const struct sidestep_load_options *options, enum sidestep_verify_mode choose_by,
              struct choice *choice, bool *again, struct sidestep_load_report *report,
              struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    struct sidestep_error why = {0};
    char path[COMMIT_PATH_BYTES];
    enum sidestep_status status = SIDESTEP_OK;
    uint64_t damaged = 0;

    *again = false;
    if (comm->rank == 0)
        status = choose(series, choose_by, choice, err);
    TRY(comm_vote_all(comm, status, err));
    TRY(comm_broadcast_all(comm, choice, sizeof(*choice), 0, err));
    choice->rejected[sizeof(choice->rejected) - 1] = '\0';
    snprintf(path, sizeof(path), "%s/%s%llu", series->root, series->prefix,
             (unsigned long long)choice->step);
    status = load_path_all(series->engine, path, state, options, 0, report, &why);
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    if (choose_by != SIDESTEP_VERIFY_BEFORE) {
        TRY(is_damaged_all(series, path, &damaged, err));
        *again = damaged != 0;
    }
    if (err != NULL)
        *err = why;
    return status;
}

enum sidestep_status sidestep_series_load(struct sidestep_series *series,
                                          struct sidestep_state_dict *state,
                                          const struct sidestep_load_options *theirs,
                                          uint64_t *step, struct sidestep_load_report *report,
                                          char rejected[2048], struct sidestep_error *err)
{
    struct sidestep_load_options options;
    struct choice choice = {0};
    bool again = false;

    TRY(check_series(series, err));
    enum sidestep_status status = load_options_take(&options, theirs, err);
    if (status == SIDESTEP_OK && (state == NULL || step == NULL))
        status = FAIL(err, SIDESTEP_EINVAL, "%s is NULL", state == NULL ? "state" : "step");
    TRY(comm_vote_all(&series->engine->comm, status, err));
    enum sidestep_verify_mode choose_by = options.verify == SIDESTEP_VERIFY_BEFORE
                                              ? SIDESTEP_VERIFY_BEFORE
                                              : SIDESTEP_VERIFY_STRUCTURE;
    do {
        status = load_once_all(series, state, &options, choose_by, &choice, &again, report, err);
        choose_by = SIDESTEP_VERIFY_BEFORE; /* data was found damaged: from now on read all first */
    } while (status != SIDESTEP_OK && again);
    if (rejected != NULL)
        memcpy(rejected, choice.rejected, sizeof(choice.rejected));
    if (status != SIDESTEP_OK) {
        error_wrap(err, "resume from series '%s'", series->root);
        return status;
    }
    *step = choice.step;
    return SIDESTEP_OK;
}

/* ---- delete ---- */

static enum sidestep_status may_delete(struct sidestep_series *series, uint64_t step,
                                       struct sidestep_error *err)
{
    struct choice newest = {0};

    if (series->last != NULL && !save_has_ended(save_state(series->last)))
        return FAIL(err, SIDESTEP_ELOCKED, "a save is in flight");
    note_outcome(series);
    if (!series->has_committed || series->has_unknown)
        return FAIL(err, SIDESTEP_ELOCKED, "%s",
                    series->has_unknown ? "the outcome of a save is unknown"
                                        : "this incarnation has committed nothing yet");
    TRY(choose(series, SIDESTEP_VERIFY_STRUCTURE, &newest, err));
    if (newest.step == step)
        return FAIL(err, SIDESTEP_ELOCKED, "it is the newest that is valid");
    return lease_check(&series->lease, err);
}

static enum sidestep_status delete_step(struct sidestep_series *series, uint64_t step,
                                        struct sidestep_error *err)
{
    struct store_dir *root = series->lease.root;
    uint8_t id[SAVE_ID_BYTES];
    char name[NAMES_MAX], hex[SAVE_ID_HEX], trash[NAMES_MAX];
    struct store_stat stat;

    snprintf(name, sizeof(name), "%s%llu", series->prefix, (unsigned long long)step);
    TRY(store_stat(root, name, &stat, err));
    TRY(may_delete(series, step, err));
    TRY(random_bytes(id, sizeof(id), err));
    hash_to_hex(id, sizeof(id), hex);
    TRY(sweep_to_trash(root, name, hex, err));
    names_format(NAMES_TRASH, hex, 0, 0, trash);
    return sweep_empty_trash(root, trash, NULL, err);
}

enum sidestep_status sidestep_series_delete(struct sidestep_series *series, uint64_t step,
                                            struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    TRY(check_series(series, err));
    if (series->engine->comm.rank == 0)
        status = delete_step(series, step, err);
    status = comm_vote_all(&series->engine->comm, status, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "delete '%s/%s%llu'", series->root, series->prefix,
                   (unsigned long long)step);
    return status;
}
