/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_posix_lock.c -- locks that die with their holder, and only with their holder.
 *
 * An open-file-description lock lives as long as any descriptor of that description, so a child
 * made by fork() (a data loader's worker) would keep a killed trainer's locks alive.  Children
 * therefore close the descriptors that carry locks, at once, by a fork handler; that needs a list
 * of them, which is the one mutable static of this folder.
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
    pthread_mutex_t lock;
    int *fds;
    size_t count;
    size_t room;
    int handler_errno;
} held = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&held.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&held.lock);
}

static void after_fork_in_child(void)
{
    for (size_t i = 0; i < held.count; i++)
        (void)close(held.fds[i]);
    held.count = 0;
    pthread_mutex_unlock(&held.lock);
}

static void install_handlers(void)
{
    held.handler_errno = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static enum sidestep_status remember(int fd, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    pthread_once(&held.once, install_handlers);
    if (held.handler_errno != 0)
        return error_set(err, SIDESTEP_ENOMEM, held.handler_errno, HERE, "pthread_atfork");
    pthread_mutex_lock(&held.lock);
    if (held.count == held.room) {
        size_t room = held.room != 0 ? held.room * 2 : 16;
        int *fds = memory_resize(held.fds, room, sizeof(*fds));
        if (fds == NULL) {
            status = FAIL_NOMEM(err, room * sizeof(*fds));
        } else {
            held.fds = fds;
            held.room = room;
        }
    }
    if (status == SIDESTEP_OK)
        held.fds[held.count++] = fd;
    pthread_mutex_unlock(&held.lock);
    return status;
}

void store_posix_lock_untrack(int fd)
{
    pthread_mutex_lock(&held.lock);
    for (size_t i = 0; i < held.count; i++)
        if (held.fds[i] == fd) {
            held.fds[i] = held.fds[--held.count];
            break;
        }
    if (held.count == 0) { /* nothing is left behind when the last engine has closed */
        free(held.fds);
        held.fds = NULL;
        held.room = 0;
    }
    pthread_mutex_unlock(&held.lock);
}

/* By errno: held by another, or no locks here, or what storage says. */
static enum sidestep_status fail_lock(const char *name, struct sidestep_error *err)
{
    switch (errno) {
    case EAGAIN:
    case EACCES:
        return error_set(err, SIDESTEP_ELOCKED, errno, HERE, "lock '%s': held by another", name);
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

    TRY(remember(fd, err));
    if (TEMP_FAILURE_RETRY(fault_hit("posix.lock") ? -1 : fcntl(fd, F_OFD_SETLK, &lock)) == 0)
        return SIDESTEP_OK;
    int sys_errno = errno;
    store_posix_lock_untrack(fd);
    errno = sys_errno;
    return fail_lock(name, err);
}

/* Unlike taking an exclusive lock, asking for one needs no descriptor for writing. */
enum sidestep_status store_posix_lock_is_held(int fd, const char *name, bool *is_locked,
                                              struct sidestep_error *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (TEMP_FAILURE_RETRY(fault_hit("posix.lock") ? -1 : fcntl(fd, F_OFD_GETLK, &lock)) != 0)
        return fail_lock(name, err);
    *is_locked = lock.l_type != F_UNLCK;
    return SIDESTEP_OK;
}
