/* SPDX-License-Identifier: BSD-3-Clause */
/* store_sim_file.c -- the operations on files of the simulated disk. */
#include "support/store_sim_disk.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)16 << 20)

static enum sidestep_status file_handle(struct store *store, uint32_t inode, const char *name,
                                        bool is_writable, struct store_file **out,
                                        struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_new(store, inode, name);

    if (handle == NULL)
        return FAIL_NOMEM(err, sizeof(*handle));
    handle->is_writable = is_writable;
    *out = &handle->base.file;
    return SIDESTEP_OK;
}

enum sidestep_status sim_file_create(struct store_dir *at, const char *name, uint32_t flags,
                                     struct store_file **out, struct sidestep_error *err)
{
    uint32_t inode;

    (void)flags;
    SIM_BEGIN(at->store, "file_create", name);
    int failed = sim_make(sim, at, name, false, &inode);
    if (failed != 0)
        return sim_fail(err, failed, "create", name);
    return file_handle(at->store, inode, name, true, out, err);
}

enum sidestep_status sim_file_open(struct store_dir *at, const char *name, uint32_t flags,
                                   struct store_file **out, struct sidestep_error *err)
{
    uint32_t inode;

    SIM_BEGIN(at->store, "file_open", name);
    int failed = sim_walk(sim, sim_handle_of(at)->inode, name, false, &inode);
    if (failed != 0)
        return sim_fail(err, failed, "open", name);
    if (sim->inodes[inode].is_dir)
        return FAIL(err, SIDESTEP_EUNSAFE, "open '%s': not a regular file (simulated)", name);
    return file_handle(at->store, inode, name, (flags & STORE_WRITE) != 0, out, err);
}

enum sidestep_status sim_file_allocate(struct store_file *file, uint64_t bytes,
                                       struct sidestep_error *err)
{
    const char *name = sim_handle_of(file)->name;

    SIM_BEGIN(file->store, "file_allocate", name);
    return bytes <= MAX_FILE_BYTES ? SIDESTEP_OK : sim_fail(err, EFBIG, "reserve space", name);
}

/* Resize the contents of ${inode}, and unshare them. New bytes are zero. */
static int resize(struct sim_inode *inode, size_t size)
{
    struct sim_blob *old = inode->now, *own = old;
    size_t old_size = old != NULL ? old->size : 0;

    if (old == NULL || __atomic_load_n(&old->refs, __ATOMIC_ACQUIRE) != 1 || size > old_size)
        own = malloc(sizeof(*own) + size);
    if (own == NULL)
        return ENOMEM;
    if (own != old) {
        own->refs = 1;
        if (old != NULL)
            memcpy(own->bytes, old->bytes, size < old_size ? size : old_size);
        sim_blob_release(old);
    }
    if (size > old_size)
        memset(own->bytes + old_size, 0, size - old_size);
    own->size = size;
    inode->now = own;
    inode->is_dirty = true;
    return 0;
}

enum sidestep_status sim_file_write_at(struct store_file *file, const void *from, size_t bytes,
                                       uint64_t offset, struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(file);

    SIM_BEGIN(file->store, "file_write_at", handle->name);
    struct sim_inode *inode = &sim->inodes[handle->inode];
    size_t size = inode->now != NULL ? inode->now->size : 0;
    if (!handle->is_writable)
        return sim_fail(err, EBADF, "write", handle->name);
    if (offset > MAX_FILE_BYTES || bytes > MAX_FILE_BYTES - offset)
        return sim_fail(err, EFBIG, "write", handle->name);
    if (bytes == 0)
        return SIDESTEP_OK;
    int failed = resize(inode, offset + bytes > size ? offset + bytes : size);
    if (failed != 0)
        return sim_fail(err, failed, "write", handle->name);
    memcpy(inode->now->bytes + offset, from, bytes);
    return SIDESTEP_OK;
}

enum sidestep_status sim_file_read_at(struct store_file *file, void *to, size_t bytes,
                                      uint64_t offset, struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(file);

    SIM_BEGIN(file->store, "file_read_at", handle->name);
    const struct sim_inode *inode = &sim->inodes[handle->inode];
    size_t size = inode->now != NULL ? inode->now->size : 0;
    if (bytes != 0 && (offset > size || bytes > size - offset))
        return FAIL(err, SIDESTEP_ECORRUPT, "read '%s': file ends at %zu (simulated)", handle->name,
                    size);
    if (bytes != 0)
        memcpy(to, inode->now->bytes + offset, bytes);
    return SIDESTEP_OK;
}

enum sidestep_status sim_file_truncate(struct store_file *file, uint64_t bytes,
                                       struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(file);

    SIM_BEGIN(file->store, "file_truncate", handle->name);
    int failed = !handle->is_writable     ? EINVAL
                 : bytes > MAX_FILE_BYTES ? EFBIG
                                          : resize(&sim->inodes[handle->inode], (size_t)bytes);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "truncate", handle->name);
}

enum sidestep_status sim_file_sync(struct store_file *file, struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(file);

    SIM_BEGIN(file->store, "file_sync", handle->name);
    int failed = sim_sync_contents(sim, handle->inode);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "sync", handle->name);
}

enum sidestep_status sim_file_stat(struct store_file *file, struct store_stat *out,
                                   struct sidestep_error *err)
{
    SIM_BEGIN(file->store, "file_stat", sim_handle_of(file)->name);
    sim_fill_stat(sim, sim_handle_of(file)->inode, out);
    return SIDESTEP_OK;
}

size_t sim_file_alignment(struct store_file *file)
{
    (void)file;
    return 0;
}

static struct sim_lock *lock_held_by(struct sim *sim, const struct sim_handle *handle)
{
    for (size_t i = 0; i < sim->lock_count; i++)
        if (sim->locks[i].holder == handle)
            return &sim->locks[i];
    return NULL;
}

static bool is_locked_by_another(struct sim *sim, const struct sim_handle *handle, bool exclusive)
{
    for (size_t i = 0; i < sim->lock_count; i++)
        if (sim->locks[i].holder != handle && sim->locks[i].inode == handle->inode &&
            (exclusive || sim->locks[i].is_exclusive))
            return true;
    return false;
}

static int lock(struct sim *sim, struct sim_handle *handle, bool exclusive)
{
    struct sim_lock *mine = lock_held_by(sim, handle);

    if (exclusive && !handle->is_writable)
        return EBADF;
    if (is_locked_by_another(sim, handle, exclusive))
        return EAGAIN;
    if (mine == NULL) {
        if (!SIM_RESERVE(sim->locks, sim->lock_capacity, sim->lock_count))
            return ENOMEM;
        mine = &sim->locks[sim->lock_count++];
    }
    *mine = (struct sim_lock){
        .inode = handle->inode,
        .client = sim_client_of(handle->base.file.store)->number,
        .is_exclusive = exclusive,
        .holder = handle,
    };
    return 0;
}

enum sidestep_status sim_file_lock(struct store_file *file, bool exclusive,
                                   struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(file);

    SIM_BEGIN(file->store, "file_lock", handle->name);
    if (sim->flags & SIM_NO_LOCKS)
        return error_set(err, SIDESTEP_EUNSUPPORTED, ENOLCK, HERE, "lock '%s' (simulated)",
                         handle->name);
    int failed = lock(sim, handle, exclusive);
    if (failed == EAGAIN)
        return error_set(err, SIDESTEP_ELOCKED, EAGAIN, HERE,
                         "lock '%s': held by another (simulated)", handle->name);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "lock", handle->name);
}

enum sidestep_status sim_file_is_locked(struct store_file *file, bool *is_locked,
                                        struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(file);

    SIM_BEGIN(file->store, "file_is_locked", handle->name);
    if (sim->flags & SIM_NO_LOCKS)
        return error_set(err, SIDESTEP_EUNSUPPORTED, ENOLCK, HERE, "ask about '%s' (simulated)",
                         handle->name);
    *is_locked = is_locked_by_another(sim, handle, true);
    return SIDESTEP_OK;
}

/* Works also for dead clients, and without the hook, because error paths close handles. */
void sim_file_discard(struct store_file *file)
{
    struct sim_handle *handle = sim_handle_of(file);
    struct sim *sim = sim_client_of(file->store)->sim;

    pthread_mutex_lock(&sim->lock);
    struct sim_lock *held = lock_held_by(sim, handle);
    if (held != NULL)
        *held = sim->locks[--sim->lock_count];
    pthread_mutex_unlock(&sim->lock);
    free(handle);
}

static enum sidestep_status close_begin(struct store_file *file, struct sidestep_error *err)
{
    SIM_BEGIN(file->store, "file_close", sim_handle_of(file)->name);
    return SIDESTEP_OK;
}

enum sidestep_status sim_file_close(struct store_file *file, struct sidestep_error *err)
{
    enum sidestep_status status = close_begin(file, err);

    sim_file_discard(file);
    return status;
}
