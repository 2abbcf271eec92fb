/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.c -- see lease.h: does what leases in directories and buckets have in common. */
#include "root/lease.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "root/root.h"

static enum sidestep_status make_dir(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    enum sidestep_status status = store_dir_make(at, name, err);

    return status == SIDESTEP_EEXISTS ? SIDESTEP_OK : status;
}

enum sidestep_status lease_open_root(struct store *store, const char *root, struct store_dir **dir,
                                     struct sidestep_error *err)
{
    struct commit path = {.store = store};
    enum sidestep_status status = store_dir_open(store, NULL, root, dir, err);

    if (status != SIDESTEP_ENOTFOUND)
        return status;
    status = commit_open(&path, root, err);
    if (status == SIDESTEP_OK)
        status = make_dir(path.parent, path.name, err);
    commit_close(&path);
    TRY(status);
    return store_dir_open(store, NULL, root, dir, err);
}

enum sidestep_status lease_read(struct store_dir *dir, char run_id[SAVE_ID_HEX],
                                uint64_t *incarnation, struct sidestep_error *err)
{
    struct lease_state state;

    TRY(lease_state_read(dir, &state, err));
    memcpy(run_id, state.run_id, SAVE_ID_HEX);
    *incarnation = state.incarnation;
    return SIDESTEP_OK;
}

bool lease_is_held(struct store_dir *dir)
{
    OWNED_FILE *lock = NULL;
    bool is_held = false;

    return store_file_open(dir, LEASE_LOCK, 0, &lock, NULL) == SIDESTEP_OK &&
           store_file_is_locked(lock, &is_held, NULL) == SIDESTEP_OK && is_held;
}

static enum sidestep_status acquire(struct lease *lease, const char *root, bool starts_run,
                                    struct sidestep_error *err)
{
    TRY(lease_open_root(lease->store, root, &lease->root, err));
    if (starts_run)
        TRY(storage_check_network(lease->root, false, err));
    TRY(make_dir(lease->root, FILE_NAME_SERIES_DIR, err));
    TRY(store_dir_open(lease->store, lease->root, FILE_NAME_SERIES_DIR, &lease->dir, err));
    return root_of(lease->store)->take_lease(lease, root, starts_run, err);
}

enum sidestep_status lease_choose_next(struct lease *lease, const char *run_id,
                                       uint64_t incarnation, bool is_new,
                                       struct sidestep_error *err)
{
    const struct lease_elsewhere *elsewhere = &lease->elsewhere;
    uint8_t id[SAVE_ID_BYTES];

    if (!is_new && elsewhere->run_id[0] != '\0' && strcmp(run_id, elsewhere->run_id) != 0)
        return FAIL(err, SIDESTEP_EMISMATCH,
                    "the root has run %s, and its mirror has run %s: give each run a mirror of its "
                    "own; nothing was changed",
                    run_id, elsewhere->run_id);
    /* A lost state starts a new run. Leftovers of the old run are fenced anyway. */
    if (is_new && elsewhere->run_id[0] == '\0') {
        TRY(random_bytes(id, sizeof(id), err));
        hash_to_hex(id, sizeof(id), lease->run_id);
    } else {
        const char *run = is_new ? elsewhere->run_id : run_id;
        memmove(lease->run_id, run, SAVE_ID_HEX);
    }
    if (is_new)
        incarnation = 0;
    lease->incarnation = max_u64(incarnation, elsewhere->incarnation) + 1;
    return SIDESTEP_OK;
}

enum sidestep_status lease_acquire(struct lease *lease, struct store *store, const char *root,
                                   const struct lease_elsewhere *elsewhere, const char *keeps,
                                   struct sidestep_error *err)
{
    *lease = (struct lease){.store = store};
    if (keeps != NULL)
        snprintf(lease->keeps, sizeof(lease->keeps), "%s", keeps);
    if (elsewhere != NULL)
        lease->elsewhere = *elsewhere;
    enum sidestep_status status = acquire(lease, root, true, err);
    if (status != SIDESTEP_OK)
        lease_release(lease);
    return status;
}

enum sidestep_status lease_acquire_to_delete(struct lease *lease, struct store *store,
                                             const char *root, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};

    *lease = (struct lease){.store = store};
    enum sidestep_status status = acquire(lease, root, false, &why);
    if (status == SIDESTEP_ENOSPC && lease->is_locked)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK) {
        lease_release(lease);
        error_copy(err, &why);
    }
    return status;
}

static enum sidestep_status report_successor(struct lease *lease, const char *holder,
                                             struct sidestep_error *err)
{
    OWNED_FILE *lock = NULL; /* opened by name, because it may be another file than lease->lock */
    struct lease_holder of_lock;
    const char *who = holder[0] != '\0' ? holder : "another process";

    if (holder[0] == '\0' && store_file_open(lease->dir, LEASE_LOCK, 0, &lock, NULL) == SIDESTEP_OK)
        who = lease_state_read_holder(lock, &of_lock);
    return FAIL(err, SIDESTEP_EABORTED,
                "incarnation %llu of this series has ended: it was taken over by %s; checkpoints "
                "that were committed are safe, and this run can commit no more",
                (unsigned long long)lease->incarnation, who);
}

enum sidestep_status lease_check(struct lease *lease, struct sidestep_error *err)
{
    struct lease_state state = {0};
    enum sidestep_status status = lease_state_read(lease->dir, &state, err);

    if (status == SIDESTEP_OK && strcmp(state.run_id, lease->run_id) == 0 &&
        state.incarnation == lease->incarnation &&
        (lease->token[0] == '\0' || strcmp(state.token, lease->token) == 0))
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK && !lease_state_is_lost(status))
        return status;
    return report_successor(lease, state.holder, err);
}

/* Look once. ${*deepest}: the last directory on the way to the state that could be opened. */
static bool look_for_state(struct lease *lease, const char *root, const char *run_id,
                           uint64_t incarnation, struct store_dir **deepest)
{
    struct lease_state state = {0};
    enum sidestep_status status = store_dir_open(lease->store, NULL, root, &lease->root, NULL);

    *deepest = lease->root;
    if (status == SIDESTEP_OK)
        status = store_dir_open(lease->store, lease->root, FILE_NAME_SERIES_DIR, &lease->dir, NULL);
    if (status == SIDESTEP_OK) {
        *deepest = lease->dir;
        status = lease_state_read(lease->dir, &state, NULL);
    }
    if (status == SIDESTEP_OK)
        return strcmp(state.run_id, run_id) == 0 && state.incarnation >= incarnation;
    return status != SIDESTEP_ENOTFOUND;
}

bool lease_is_visible(struct store *store, struct clock *clock, const char *root,
                      const char *run_id, uint64_t incarnation, uint64_t limit_ns)
{
    struct refresh_wait wait = {.clock = clock, .limit_ns = limit_ns, .backoff = {.max_ms = 100}};

    for (;;) {
        struct lease lease = {.store = store};
        struct commit path = {.store = store};
        struct store_dir *deepest = NULL;
        bool sees = look_for_state(&lease, root, run_id, incarnation, &deepest);
        if (!sees && deepest == NULL && commit_open(&path, root, NULL) == SIDESTEP_OK)
            deepest = path.parent;
        bool again = !sees && refresh_wait_again(&wait, deepest);
        commit_close(&path);
        lease_release(&lease);
        if (!again)
            return sees;
    }
}

enum sidestep_status lease_check_root(struct lease *lease, struct store_dir *root,
                                      struct sidestep_error *err)
{
    struct store_stat ours, theirs;

    TRY(store_dir_stat(lease->root, &ours, err));
    TRY(store_dir_stat(root, &theirs, err));
    if (ours.device == theirs.device && ours.inode == theirs.inode)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EABORTED,
                "the root was moved or replaced since this run has opened it");
}

void lease_release(struct lease *lease)
{
    store_file_discard(TAKE(lease->lock));
    store_dir_close(TAKE(lease->dir));
    store_dir_close(TAKE(lease->root));
}
