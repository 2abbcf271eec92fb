/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_posix_lock.c -- locks that end with the process that took them.
 *
 * An open-file-description lock lasts as long as any descriptor of that description.  So a child
 * made by fork(), such as a data loader's worker, would keep the locks of a killed trainer.
 * Therefore a fork handler closes the descriptors with locks in each child.  It needs a list of
 * them, which is the only mutable static of this folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "store/store_posix.h"

static struct {
    pthread_once_t once;
    int handler_errno; /* set by ${once} */
    struct lock lock LOCK_KIND(STORE);
    int *fds GUARDED_BY(&lock);
    size_t count GUARDED_BY(&lock);
    size_t capacity GUARDED_BY(&lock);
} held = {.once = PTHREAD_ONCE_INIT, .lock = LOCK_INITIALIZER(STORE)};

static void before_fork(void) ACQUIRE(&held.lock)
{
    lock_acquire(&held.lock);
}

static void after_fork_in_parent(void) RELEASE(&held.lock)
{
    lock_release(&held.lock);
}

static void after_fork_in_child(void) RELEASE(&held.lock)
{
    for (size_t i = 0; i < held.count; i++)
        (void)close(held.fds[i]);
    held.count = 0;
    lock_release(&held.lock);
}

static void install_handlers(void)
{
    held.handler_errno = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static enum sidestep_status track(int fd, struct sidestep_error *err)
{
    pthread_once(&held.once, install_handlers);
    if (held.handler_errno != 0)
        return error_set(err, SIDESTEP_ENOMEM, held.handler_errno, HERE, "pthread_atfork");
    lock_acquire(&held.lock);
    size_t bytes = (held.count + 1) * sizeof(*held.fds);
    int *fds = memory_grow(held.fds, &held.capacity, held.count, sizeof(*fds));
    if (fds != NULL) {
        held.fds = fds;
        held.fds[held.count++] = fd;
    }
    lock_release(&held.lock);
    return fds != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, bytes);
}

void store_posix_lock_untrack(int fd)
{
    lock_acquire(&held.lock);
    for (size_t i = 0; i < held.count; i++)
        if (held.fds[i] == fd) {
            held.fds[i] = held.fds[--held.count];
            break;
        }
    if (held.count == 0) { /* the last engine may have closed: leave no memory */
        free(held.fds);
        held.fds = NULL;
        held.capacity = 0;
    }
    lock_release(&held.lock);
}

/* Fail by errno: another handle holds the lock, or the storage has no locks, or it failed. */
static enum sidestep_status fail_lock(const char *name, struct sidestep_error *err)
{
    switch (errno) {
    case EAGAIN:
    case EACCES:
        return error_set(err, SIDESTEP_ELOCKED, errno, HERE, "lock '%s': held by another handle",
                         name);
    case ENOLCK:
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE, "lock '%s'", name);
    default:
        return FAIL_SYS(err, "lock '%s'", name);
    }
}

enum sidestep_status store_posix_lock_acquire(int fd, const char *name, bool exclusive,
                                              struct sidestep_error *err)
{
    struct flock lock = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};

    TRY(track(fd, err));
    if (TEMP_FAILURE_RETRY(fault_hit("posix.lock") ? -1 : fcntl(fd, F_OFD_SETLK, &lock)) == 0)
        return SIDESTEP_OK;
    int sys_errno = errno;
    store_posix_lock_untrack(fd);
    errno = sys_errno;
    return fail_lock(name, err);
}

/* A descriptor must be open for writing to take an exclusive lock, but not to ask for one. */
enum sidestep_status store_posix_lock_is_held(int fd, const char *name, bool *is_locked,
                                              struct sidestep_error *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (TEMP_FAILURE_RETRY(fault_hit("posix.lock") ? -1 : fcntl(fd, F_OFD_GETLK, &lock)) != 0)
        return fail_lock(name, err);
    *is_locked = lock.l_type != F_UNLCK;
    return SIDESTEP_OK;
}
