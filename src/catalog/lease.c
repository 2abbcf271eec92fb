/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.c -- takes the lock of a series and counts its incarnations; see lease.h. */
#include "catalog/lease.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "catalog/lease_objects.h"
#include "commit/commit.h"
#include "object/object.h"

#define LEASE_LOCK "lock"
#define LEASE_STATE_NEW "state.new"
#define LEASE_MAX_BYTES 4096u
#define LEASE_DELETES ", which deletes"
#define LEASE_WAIT_NS UINT64_C(30000000000)
#define LEASE_TRIES 4 /* a new holder may not have written yet whether it only deletes */

static enum sidestep_status make_dir(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    enum sidestep_status status = store_dir_make(at, name, err);

    return status == SIDESTEP_EEXISTS ? SIDESTEP_OK : status;
}

/* Open ROOT, and make it in its parent if it is missing. */
static enum sidestep_status open_root(struct lease *lease, const char *root,
                                      struct sidestep_error *err)
{
    struct commit path = {.store = lease->store};
    enum sidestep_status status = store_dir_open(lease->store, NULL, root, &lease->root, err);

    if (status != SIDESTEP_ENOTFOUND)
        return status;
    status = commit_open(&path, root, err);
    if (status == SIDESTEP_OK)
        status = make_dir(path.parent, path.name, err);
    commit_close(&path);
    TRY(status);
    return store_dir_open(lease->store, NULL, root, &lease->root, err);
}

struct holder {
    char text[LEASE_MAX_BYTES + 1];
};

/* Read the text that the holder wrote into the lock file, such as "process 4711 on node-3". */
static const char *read_holder(struct store_file *lock, struct holder *holder)
{
    struct store_stat stat;

    *holder = (struct holder){0};
    if (store_file_stat(lock, &stat, NULL) == SIDESTEP_OK && stat.size != 0 &&
        stat.size <= LEASE_MAX_BYTES)
        (void)store_file_read_at(lock, holder->text, stat.size, 0, NULL);
    holder->text[strcspn(holder->text, "\n")] = '\0';
    return holder->text[0] != '\0' ? holder->text : "another process";
}

static enum sidestep_status report_holder(struct lease *lease, struct sidestep_error *err)
{
    struct holder holder;

    return FAIL(err, SIDESTEP_ELOCKED, "it is in use by %s", read_holder(lease->lock, &holder));
}

static bool is_deleting(struct store_file *lock)
{
    struct holder holder;

    return strstr(read_holder(lock, &holder), LEASE_DELETES) != NULL;
}

static enum sidestep_status open_lock(struct lease *lease, struct sidestep_error *err)
{
    enum sidestep_status status = store_file_create(lease->dir, LEASE_LOCK, 0, &lease->lock, err);

    if (status == SIDESTEP_EEXISTS)
        status = store_file_open(lease->dir, LEASE_LOCK, STORE_WRITE, &lease->lock, err);
    return status;
}

/* Try to take the lock. Opens the file again if it was removed before it was locked. */
static enum sidestep_status try_lock(struct lease *lease, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_ENOTFOUND;

    for (unsigned attempt = 0; status == SIDESTEP_ENOTFOUND && attempt < LEASE_TRIES; attempt++) {
        if (lease->lock == NULL)
            TRY(open_lock(lease, err));
        status = lock_file_acquire(lease->dir, LEASE_LOCK, lease->lock, err);
        if (status == SIDESTEP_ENOTFOUND)
            store_file_discard(TAKE(lease->lock));
    }
    return status;
}

/* Take the lock. A run that starts waits for a holder that only deletes, because that takes little
 * time. */
static enum sidestep_status await_lock(struct lease *lease, bool starts_run,
                                       struct sidestep_error *err)
{
    struct clock *clock = clock_system();
    struct backoff backoff = {.max_ms = 100};
    uint64_t until = clock_now(clock) + LEASE_WAIT_NS;
    enum sidestep_status status = try_lock(lease, err);

    for (unsigned attempt = 1; status == SIDESTEP_ELOCKED && starts_run; attempt++) {
        if (clock_now(clock) >= until || (attempt >= LEASE_TRIES && !is_deleting(lease->lock)))
            break;
        backoff_sleep(&backoff, clock);
        status = try_lock(lease, err);
    }
    return status;
}

static enum sidestep_status take_lock(struct lease *lease, bool starts_run,
                                      struct sidestep_error *err)
{
    char text[160], host[64] = "?";
    enum sidestep_status status = await_lock(lease, starts_run, err);

    if (status == SIDESTEP_ELOCKED)
        return report_holder(lease, err);
    if (status != SIDESTEP_EUNSUPPORTED) /* without locks the incarnation alone protects us */
        TRY(status);
    lease->is_locked = status == SIDESTEP_OK;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text), "process %ld on %s%s\n", (long)getpid(), host,
             starts_run ? "" : LEASE_DELETES);
    if (store_file_truncate(lease->lock, 0, NULL) ==
        SIDESTEP_OK) /* information for people; failing to write it does not matter */
        (void)store_file_write_at(lease->lock, text, strlen(text), 0, NULL);
    return SIDESTEP_OK;
}

/* The text is "run <id> incarnation <n>"; on object stores, lines with token and holder follow. */
static enum sidestep_status read_state(struct store_dir *dir, struct lease_state *state,
                                       struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    TRY(small_file_read(dir, LEASE_STATE, 0, LEASE_MAX_BYTES, &text, err));
    buffer_put_u8(&text, 0);
    TRY(buffer_check(&text, err));
    return lease_state_parse((const char *)text.bytes, state, err);
}

enum sidestep_status lease_read(struct store_dir *dir, char run_id[SAVE_ID_HEX],
                                uint64_t *incarnation, struct sidestep_error *err)
{
    struct lease_state state;

    TRY(read_state(dir, &state, err));
    memcpy(run_id, state.run_id, SAVE_ID_HEX);
    *incarnation = state.incarnation;
    return SIDESTEP_OK;
}

static bool is_lost(enum sidestep_status status)
{
    return status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT;
}

static enum sidestep_status next_incarnation(struct lease *lease, bool is_new,
                                             struct sidestep_error *err)
{
    uint8_t id[SAVE_ID_BYTES];
    char text[128];

    /* A lost state starts a new run. That is safe: save ids differ, and leftovers of the old run
     * are fenced all the same. */
    if (is_new) {
        TRY(random_bytes(id, sizeof(id), err));
        hash_to_hex(id, sizeof(id), lease->run_id);
        lease->incarnation = 0;
    }
    lease->incarnation++;
    snprintf(text, sizeof(text), "run %s incarnation %llu\n", lease->run_id,
             (unsigned long long)lease->incarnation);
    return small_file_replace(lease->dir, LEASE_STATE, LEASE_STATE_NEW, text, strlen(text), err);
}

/*
 * Sync the root and its parent. While there is no state, the directories may be new: their maker
 * may have been killed before their names were durable. Then a power loss would take all that is
 * committed in them.
 */
static enum sidestep_status make_root_durable(struct lease *lease, const char *root,
                                              struct sidestep_error *err)
{
    struct commit path = {.store = lease->store};

    TRY(store_dir_sync(lease->root, err));
    enum sidestep_status status = commit_open(&path, root, err);
    if (status == SIDESTEP_OK)
        status = store_dir_sync(path.parent, err);
    else if (status == SIDESTEP_EPERM || status == SIDESTEP_EINVAL)
        status = SIDESTEP_OK; /* sidestep did not make it: its parent is unreadable, or it is "/" */
    commit_close(&path);
    return status;
}

/* ${starts_run}: start a run if there is none yet. */
static enum sidestep_status acquire(struct lease *lease, const char *root, bool starts_run,
                                    struct sidestep_error *err)
{
    TRY(open_root(lease, root, err));
    TRY(make_dir(lease->root, FILE_NAME_SERIES_DIR, err));
    TRY(store_dir_open(lease->store, lease->root, FILE_NAME_SERIES_DIR, &lease->dir, err));
    if (object_store_client(lease->store) != NULL)
        return starts_run ? lease_objects_acquire(lease, err) : SIDESTEP_OK;
    TRY(take_lock(lease, starts_run, err));
    enum sidestep_status status = lease_read(lease->dir, lease->run_id, &lease->incarnation, err);
    if (is_lost(status) && !starts_run)
        return SIDESTEP_OK; /* another run's checkpoints: the next run may continue from them */
    if (is_lost(status))
        TRY(make_root_durable(lease, root, err));
    else
        TRY(status); /* it may be readable later, so do not start another run */
    return next_incarnation(lease, is_lost(status), err);
}

enum sidestep_status lease_acquire(struct lease *lease, struct store *store, const char *root,
                                   struct sidestep_error *err)
{
    *lease = (struct lease){.store = store};
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
    OWNED_FILE *lock = NULL; /* opened by name: it may be another file than ours */
    struct holder of_lock;
    const char *who = holder[0] != '\0' ? holder : "another process";

    if (holder[0] == '\0' && store_file_open(lease->dir, LEASE_LOCK, 0, &lock, NULL) == SIDESTEP_OK)
        who = read_holder(lock, &of_lock);
    return FAIL(err, SIDESTEP_EABORTED,
                "incarnation %llu of this series has ended: it was taken over by %s; checkpoints "
                "that were committed are safe, and this run can commit no more",
                (unsigned long long)lease->incarnation, who);
}

enum sidestep_status lease_check(struct lease *lease, struct sidestep_error *err)
{
    struct lease_state state = {0};
    enum sidestep_status status = read_state(lease->dir, &state, err);

    if (status == SIDESTEP_OK && strcmp(state.run_id, lease->run_id) == 0 &&
        state.incarnation == lease->incarnation &&
        (lease->token[0] == '\0' || strcmp(state.token, lease->token) == 0))
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK && !is_lost(status))
        return status;
    return report_successor(lease, state.holder, err);
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
