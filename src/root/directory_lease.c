/* SPDX-License-Identifier: BSD-3-Clause */
/* directory_lease.c -- see lease.h: takes the lock of a series in a directory, and starts its next
 * incarnation. */
#include "root/directory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define LEASE_STATE_NEW "state.new"
#define LEASE_DELETES ", which deletes"
#define LEASE_WAIT_NS UINT64_C(30000000000)
#define LEASE_TRIES 8          /* looks in a row: the text may still be an earlier holder's */
#define LEASE_TRIES_UNKNOWN 64 /* 3 s: a new holder waits for the file system's journal */

static enum sidestep_status report_holder(struct lease *lease, struct sidestep_error *err)
{
    struct lease_holder holder;

    return FAIL(err, SIDESTEP_ELOCKED, "it is in use by %s",
                lease_state_read_holder(lease->lock, &holder));
}

/* How many looks in a row at this text show that the holder does not only delete? */
static unsigned tries_of(struct store_file *lock)
{
    struct lease_holder holder;

    (void)lease_state_read_holder(lock, &holder);
    if (holder.text[0] == '\0')
        return LEASE_TRIES_UNKNOWN;
    return strstr(holder.text, LEASE_DELETES) != NULL ? UINT_MAX : LEASE_TRIES;
}

static enum sidestep_status open_lock(struct lease *lease, struct sidestep_error *err)
{
    enum sidestep_status status = store_file_create(lease->dir, LEASE_LOCK, 0, &lease->lock, err);

    if (status == SIDESTEP_EEXISTS)
        status = WRAP(store_file_open(lease->dir, LEASE_LOCK, STORE_WRITE, &lease->lock, err), err,
                      "open '%s/%s'", FILE_NAME_SERIES_DIR, LEASE_LOCK);
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

/* Take the lock. Waits for a holder that only deletes, because that takes little time. */
static enum sidestep_status await_lock(struct lease *lease, struct sidestep_error *err)
{
    struct clock *clock = clock_system();
    struct backoff backoff = {.max_ms = 100};
    uint64_t until = clock_now(clock) + LEASE_WAIT_NS;
    unsigned looks = 0, tries = 0;
    enum sidestep_status status = try_lock(lease, err);

    while (status == SIDESTEP_ELOCKED) {
        unsigned before = tries;
        tries = tries_of(lease->lock);
        looks = tries == before ? looks + 1 : 1;
        if (clock_now(clock) >= until || looks >= tries)
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
    enum sidestep_status status = await_lock(lease, err);

    if (status == SIDESTEP_ELOCKED)
        return report_holder(lease, err);
    if (status != SIDESTEP_EUNSUPPORTED) /* without locks, the incarnation protects the series */
        TRY(status);
    lease->is_locked = status == SIDESTEP_OK;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text), "process %ld on %s%s\n", (long)getpid(), host,
             starts_run ? "" : LEASE_DELETES);
    /* The text tells others who has the lock, and whether to wait. It protects nothing, so a
     * failure to write it is ignored. The end of a longer one is cut off after the write, so only
     * a new file is ever empty. */
    if (store_file_write_at(lease->lock, text, strlen(text), 0, NULL) == SIDESTEP_OK)
        (void)store_file_truncate(lease->lock, strlen(text), NULL);
    return SIDESTEP_OK;
}

static enum sidestep_status next_incarnation(struct lease *lease, bool is_new,
                                             struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    TRY(lease_choose_next(lease, lease->run_id, lease->incarnation, is_new, err));
    lease_state_format(lease, NULL, &text);
    TRY(buffer_check(&text, err));
    return small_file_replace(lease->dir, LEASE_STATE, LEASE_STATE_NEW, text.bytes, text.length,
                              err);
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

enum sidestep_status directory_take_lease(struct lease *lease, const char *path, bool starts_run,
                                          struct sidestep_error *err)
{
    struct lease_state state = {0};

    TRY(take_lock(lease, starts_run, err));
    enum sidestep_status status = lease_state_read(lease->dir, &state, err);
    if (lease_state_is_lost(status) && !starts_run)
        return SIDESTEP_OK; /* another run's checkpoints: the next run may continue from them */
    if (lease_state_is_lost(status))
        TRY(make_root_durable(lease, path, err));
    else
        TRY(status); /* it may be readable later, so do not start another run */
    memcpy(lease->run_id, state.run_id, sizeof(lease->run_id));
    lease->incarnation = state.incarnation;
    if (!starts_run) /* a deletion by hand changes nothing of what the run keeps */
        memcpy(lease->keeps, state.keeps, sizeof(lease->keeps));
    return next_incarnation(lease, lease_state_is_lost(status), err);
}
