/* SPDX-License-Identifier: BSD-3-Clause */
/* store_sim.c -- the operations on names of the simulated disk. */
#include "support/store_sim_disk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"

enum sidestep_status sim_fail(struct sidestep_error *err, int sys_errno, const char *op,
                              const char *name)
{
    errno = sys_errno;
    return FAIL_SYS(err, "%s '%s' (simulated)", op, name);
}

/* ---- every operation: hook, lock, work, unlock */

void sim_unlock(struct sim **sim)
{
    if (*sim != NULL)
        pthread_mutex_unlock(&(*sim)->lock);
}

/* The disk, locked; NULL: the client is dead. */
struct sim *sim_begin(struct store *store, const char *op, const char *name)
{
    struct sim_client *client = sim_client_of(store);
    struct sim *sim = client->sim;

    if (sim->before_op != NULL)
        sim->before_op(sim->hook_context, client->number, op, name);
    pthread_mutex_lock(&sim->lock);
    if (!client->is_dead)
        return sim;
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

static int check_name(const char *name)
{
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strchr(name, '/') != NULL)
        return EXDEV;
    return strlen(name) < SIM_NAME_BYTES ? 0 : ENAMETOOLONG;
}

/* Find the inode of ${name} in ${at}; SIM_NONE with ${*key} filled if there is none. */
static int look_up(struct sim *sim, struct store_dir *at, const char *name, struct sim_key *key,
                   uint32_t *inode)
{
    int failed = check_name(name);

    if (failed != 0)
        return failed;
    *key = sim_key_of(sim_handle_of(at)->inode, name, strlen(name));
    *inode = sim_find(&sim->now, key);
    return 0;
}

static int look_up_existing(struct sim *sim, struct store_dir *at, const char *name,
                            struct sim_key *key, uint32_t *inode)
{
    int failed = look_up(sim, at, name, key, inode);

    return failed == 0 && *inode == SIM_NONE ? ENOENT : failed;
}

static bool is_empty_dir(const struct sim *sim, uint32_t inode)
{
    for (size_t i = 0; i < sim->now.count; i++)
        if (sim->now.all[i].key.dir == inode)
            return false;
    return true;
}

struct sim_handle *sim_handle_new(struct store *store, uint32_t inode, const char *name)
{
    struct sim_handle *handle = malloc(sizeof(*handle));

    if (handle == NULL)
        return NULL;
    handle->base.dir.store = store;
    handle->inode = inode;
    handle->is_writable = false;
    strncpy(handle->name, name, sizeof(handle->name) - 1);
    handle->name[sizeof(handle->name) - 1] = '\0';
    return handle;
}

/* Walk ${path} down from ${dir}; all components must be directories. */
int sim_walk(const struct sim *sim, uint32_t dir, const char *path, bool is_path, uint32_t *inode)
{
    for (;;) {
        size_t length = strcspn(path, "/");
        if (is_path && length == 0 && path[0] == '\0')
            break;
        if (length == 0 && is_path) {
            path++;
            continue;
        }
        if (length == 0 || (length <= 2 && strspn(path, ".") >= length))
            return EXDEV;
        if (length >= SIM_NAME_BYTES)
            return ENAMETOOLONG;
        if (!sim->inodes[dir].is_dir)
            return ENOTDIR;
        struct sim_key key = sim_key_of(dir, path, length);
        dir = sim_find(&sim->now, &key);
        if (dir == SIM_NONE)
            return ENOENT;
        path += length;
        if (path[0] == '\0')
            break;
        path++;
    }
    *inode = dir;
    return 0;
}

/* ---- directories */

static enum sidestep_status dir_open(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err)
{
    uint32_t inode = SIM_ROOT;

    SIM_BEGIN(store, "dir_open", name);
    int failed = at != NULL ? check_name(name) : 0;
    if (failed == 0)
        failed = sim_walk(sim, at != NULL ? sim_handle_of(at)->inode : SIM_ROOT, name, at == NULL,
                          &inode);
    if (failed == 0 && !sim->inodes[inode].is_dir)
        failed = ENOTDIR;
    if (failed != 0)
        return sim_fail(err, failed, "open directory", name);
    struct sim_handle *handle = sim_handle_new(store, inode, name);
    if (handle == NULL)
        return FAIL_NOMEM(err, sizeof(*handle));
    *out = &handle->base.dir;
    return SIDESTEP_OK;
}

static void dir_close(struct store_dir *dir)
{
    free(sim_handle_of(dir));
}

int sim_make(struct sim *sim, struct store_dir *at, const char *name, bool is_dir, uint32_t *made)
{
    struct sim_op op = {.kind = SIM_LINK, .client = sim_client_of(at->store)->number};
    uint32_t there;
    int failed = look_up(sim, at, name, &op.from, &there);

    op.other = SIM_NONE;
    if (failed != 0)
        return failed;
    if (sim->inodes[sim_handle_of(at)->inode].is_removed)
        return ENOENT;
    if (there != SIM_NONE)
        return EEXIST;
    op.inode = *made = sim_new_inode(sim, is_dir);
    return op.inode != SIM_NONE && sim_do(sim, &op) ? 0 : ENOMEM;
}

static enum sidestep_status dir_make(struct store_dir *at, const char *name,
                                     struct sidestep_error *err)
{
    uint32_t inode;

    SIM_BEGIN(at->store, "dir_make", name);
    int failed = sim_make(sim, at, name, true, &inode);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "make directory", name);
}

static int remove_name(struct sim *sim, struct store_dir *at, const char *name, bool is_dir)
{
    struct sim_op op = {.kind = SIM_UNLINK, .client = sim_client_of(at->store)->number};
    int failed = look_up_existing(sim, at, name, &op.from, &op.inode);

    op.other = SIM_NONE;
    if (failed != 0)
        return failed;
    if (sim->inodes[op.inode].is_dir != is_dir)
        return is_dir ? ENOTDIR : EISDIR;
    if (is_dir && !is_empty_dir(sim, op.inode))
        return ENOTEMPTY;
    if (!sim_do(sim, &op))
        return ENOMEM;
    sim->inodes[op.inode].is_removed = is_dir;
    return 0;
}

static enum sidestep_status dir_remove(struct store_dir *at, const char *name,
                                       struct sidestep_error *err)
{
    SIM_BEGIN(at->store, "dir_remove", name);
    int failed = remove_name(sim, at, name, true);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "remove directory", name);
}

static enum sidestep_status name_unlink(struct store_dir *at, const char *name,
                                        struct sidestep_error *err)
{
    SIM_BEGIN(at->store, "unlink", name);
    int failed = remove_name(sim, at, name, false);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "unlink", name);
}

/* Copy the names of a directory, each with its NUL. */
static enum sidestep_status copy_names(struct store_dir *dir, char **names, size_t *bytes,
                                       struct sidestep_error *err)
{
    uint32_t inode = sim_handle_of(dir)->inode;

    SIM_BEGIN(dir->store, "dir_list", sim_handle_of(dir)->name);
    *names = malloc((sim->now.count + 1) * SIM_NAME_BYTES);
    if (*names == NULL)
        return FAIL_NOMEM(err, sim->now.count * SIM_NAME_BYTES);
    for (size_t i = 0; i < sim->now.count; i++) {
        const struct sim_key *key = &sim->now.all[i].key;
        if (key->dir == inode)
            *bytes += (size_t)(stpcpy(*names + *bytes, key->name) - (*names + *bytes)) + 1;
    }
    return SIDESTEP_OK;
}

/* Works on a copy: ${each} and other clients may change the directory meanwhile. */
static enum sidestep_status dir_list(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err)
{
    OWNED char *names = NULL;
    size_t bytes = 0;

    TRY(copy_names(dir, &names, &bytes, err));
    for (size_t at = 0; at < bytes; at += strlen(names + at) + 1)
        if (!each(context, names + at))
            break;
    return SIDESTEP_OK;
}

static enum sidestep_status dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    struct sim_handle *handle = sim_handle_of(dir);

    SIM_BEGIN(dir->store, "dir_sync", handle->name);
    int failed = sim_sync_names(sim, handle->inode, sim_client_of(dir->store)->number);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "sync directory", handle->name);
}

void sim_fill_stat(const struct sim *sim, uint32_t number, struct store_stat *out)
{
    const struct sim_inode *inode = &sim->inodes[number];

    *out = (struct store_stat){
        .kind = inode->is_dir    ? STORE_DIRECTORY
                : inode->is_here ? STORE_HERE
                                 : STORE_FILE,
        .size = inode->now != NULL ? inode->now->size : 0,
        .device = 1,
        .inode = number + 1,
    };
}

static enum sidestep_status dir_stat(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err)
{
    SIM_BEGIN(dir->store, "dir_stat", sim_handle_of(dir)->name);
    sim_fill_stat(sim, sim_handle_of(dir)->inode, out);
    return SIDESTEP_OK;
}

static enum sidestep_status dir_traits(struct store_dir *dir, struct store_traits *out,
                                       struct sidestep_error *err)
{
    SIM_BEGIN(dir->store, "dir_traits", sim_handle_of(dir)->name);
    *out = (struct store_traits){.type_name = "sim"};
    return SIDESTEP_OK;
}

static const struct sim_key *find_key(const struct sim *sim, uint32_t inode)
{
    for (size_t i = 0; i < sim->now.count; i++)
        if (sim->now.all[i].inode == inode)
            return &sim->now.all[i].key;
    return NULL;
}

/* Build the path from its end. */
static enum sidestep_status dir_path(struct store_dir *dir, char *path, size_t bytes,
                                     struct sidestep_error *err)
{
    uint32_t inode = sim_handle_of(dir)->inode;
    size_t at = bytes - 1;

    SIM_BEGIN(dir->store, "dir_path", sim_handle_of(dir)->name);
    path[at] = '\0';
    while (inode != SIM_ROOT) {
        const struct sim_key *key = find_key(sim, inode);
        size_t length = key != NULL ? strlen(key->name) : 0;
        if (key == NULL || length >= at)
            return sim_fail(err, key == NULL ? ENOENT : ENAMETOOLONG, "path of", "directory");
        at -= length;
        memcpy(path + at, key->name, length);
        path[--at] = '/';
        inode = key->dir;
    }
    memmove(path, path + at, bytes - at);
    return SIDESTEP_OK;
}

/* ---- names */

static enum sidestep_status name_stat(struct store_dir *at, const char *name,
                                      struct store_stat *out, struct sidestep_error *err)
{
    struct sim_key key;
    uint32_t inode;

    SIM_BEGIN(at->store, "stat", name);
    int failed = look_up_existing(sim, at, name, &key, &inode);
    if (failed != 0)
        return sim_fail(err, failed, "stat", name);
    sim_fill_stat(sim, inode, out);
    return SIDESTEP_OK;
}

/* Is ${dir} ${ancestor}, or below it? */
static bool is_below(const struct sim *sim, uint32_t dir, uint32_t ancestor)
{
    while (dir != ancestor && dir != SIM_ROOT) {
        size_t i = 0;
        while (i < sim->now.count && sim->now.all[i].inode != dir)
            i++;
        if (i == sim->now.count)
            return false;
        dir = sim->now.all[i].key.dir;
    }
    return dir == ancestor;
}

/* May ${op} put what it moves where ${op->other} is, by the rules of rename(2)? */
static int check_target(const struct sim *sim, const struct sim_op *op, enum store_rename_mode mode)
{
    bool is_dir = sim->inodes[op->inode].is_dir;

    if (is_dir && is_below(sim, op->to.dir, op->inode))
        return EINVAL;
    if (mode == STORE_EXCHANGE)
        return op->other == SIM_NONE ? ENOENT : 0;
    if (op->other == SIM_NONE)
        return 0;
    if (mode == STORE_NOREPLACE)
        return EEXIST;
    if (sim->inodes[op->other].is_dir != is_dir)
        return is_dir ? ENOTDIR : EISDIR;
    return is_dir && !is_empty_dir(sim, op->other) ? ENOTEMPTY : 0;
}

static int rename_in(struct sim *sim, struct sim_op *op, enum store_rename_mode mode)
{
    int failed = check_target(sim, op, mode);

    if (failed != 0 || op->inode == op->other)
        return failed;
    if (!sim_do(sim, op))
        return ENOMEM;
    if (op->kind == SIM_RENAME && op->other != SIM_NONE)
        sim->inodes[op->other].is_removed = sim->inodes[op->other].is_dir;
    return 0;
}

static enum sidestep_status name_rename(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *err)
{
    struct sim_op op = {
        .kind = mode == STORE_EXCHANGE ? SIM_EXCHANGE : SIM_RENAME,
        .client = sim_client_of(from_dir->store)->number,
    };

    SIM_BEGIN(from_dir->store, "rename", from);
    if ((mode == STORE_NOREPLACE && (sim->flags & SIM_NO_NOREPLACE)) ||
        (mode == STORE_EXCHANGE && (sim->flags & SIM_NO_EXCHANGE)))
        return error_set(err, SIDESTEP_EUNSUPPORTED, EINVAL, HERE, "rename '%s' (simulated)", from);
    int failed = look_up_existing(sim, from_dir, from, &op.from, &op.inode);
    if (failed == 0)
        failed = look_up(sim, to_dir, to, &op.to, &op.other);
    if (failed == 0 && sim->inodes[sim_handle_of(to_dir)->inode].is_removed)
        failed = ENOENT;
    if (failed == 0)
        failed = rename_in(sim, &op, mode);
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "rename", from);
}

static enum sidestep_status name_link(struct store_dir *from_dir, const char *from,
                                      struct store_dir *to_dir, const char *to,
                                      struct sidestep_error *err)
{
    struct sim_op op = {.kind = SIM_LINK, .client = sim_client_of(from_dir->store)->number};
    struct sim_key key;
    uint32_t there = SIM_NONE;

    SIM_BEGIN(from_dir->store, "link", from);
    if (strcmp(from, ".") == 0) {
        int made = sim_make(sim, to_dir, to, false, &there);
        if (made != 0)
            return sim_fail(err, made, "symbolic link", to);
        sim->inodes[there].is_here = true;
        return SIDESTEP_OK;
    }
    if (sim->flags & SIM_NO_LINKS)
        return error_set(err, SIDESTEP_EUNSUPPORTED, EOPNOTSUPP, HERE, "link '%s' (simulated)",
                         from);
    int failed = look_up_existing(sim, from_dir, from, &key, &op.inode);
    op.other = SIM_NONE;
    if (failed == 0 && sim->inodes[op.inode].is_dir)
        failed = EXDEV;
    if (failed == 0)
        failed = look_up(sim, to_dir, to, &op.from, &there);
    if (failed == 0 && sim->inodes[sim_handle_of(to_dir)->inode].is_removed)
        failed = ENOENT;
    if (failed == 0 && there != SIM_NONE)
        failed = EEXIST;
    if (failed == 0 && !sim_do(sim, &op))
        failed = ENOMEM;
    return failed == 0 ? SIDESTEP_OK : sim_fail(err, failed, "link", from);
}

const struct store_ops sim_ops = {
    .name = "sim",
    .dir_open = dir_open,
    .dir_close = dir_close,
    .dir_make = dir_make,
    .dir_remove = dir_remove,
    .dir_list = dir_list,
    .dir_sync = dir_sync,
    .dir_stat = dir_stat,
    .dir_traits = dir_traits,
    .dir_path = dir_path,
    .stat = name_stat,
    .rename = name_rename,
    .unlink = name_unlink,
    .link = name_link,
    .file_create = sim_file_create,
    .file_open = sim_file_open,
    .file_allocate = sim_file_allocate,
    .file_write_at = sim_file_write_at,
    .file_read_at = sim_file_read_at,
    .file_truncate = sim_file_truncate,
    .file_sync = sim_file_sync,
    .file_stat = sim_file_stat,
    .file_alignment = sim_file_alignment,
    .file_lock = sim_file_lock,
    .file_is_locked = sim_file_is_locked,
    .file_close = sim_file_close,
    .file_discard = sim_file_discard,
};

struct store *sim_store(struct sim *sim, int client)
{
    assert(client >= 0 && client < SIM_MAX_CLIENTS);
    return &sim->clients[client].store;
}
