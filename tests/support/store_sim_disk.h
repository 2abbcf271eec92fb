/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_sim_disk.h -- the state of the simulated disk, in flat arrays, so that a clone takes a few
 * copies. It has two sets of names, the current and the durable ones. The pending operations
 * lead from the durable names to the current ones.
 */
#ifndef SUPPORT_STORE_SIM_DISK_H
#define SUPPORT_STORE_SIM_DISK_H

#include <pthread.h>

#include "support/store_sim.h"

#define SIM_ROOT 0u
#define SIM_NONE UINT32_MAX

/* Bytes of a file, shared by disks and by the two states of a file; NULL: an empty file. */
struct sim_blob {
    unsigned refs; /* atomic */
    size_t size;
    unsigned char bytes[];
};

struct sim_inode {
    bool is_dir;
    bool is_here;    /* a symbolic link to its directory */
    bool is_removed; /* a removed directory: nothing can be created in it */
    bool is_dirty;
    bool is_lost; /* a sync failed: later ones do nothing */
    struct sim_blob *now;
    struct sim_blob *durable;
};

struct sim_key {
    uint32_t dir; /* inode */
    uint32_t hash;
    char name[SIM_NAME_BYTES];
};
struct sim_entry {
    struct sim_key key;
    uint32_t inode;
};
struct sim_entries {
    struct sim_entry *all; /* in no order */
    size_t count;
    size_t capacity;
};

enum sim_op_kind { SIM_LINK, SIM_UNLINK, SIM_RENAME, SIM_EXCHANGE };
struct sim_op {
    enum sim_op_kind kind;
    int client;
    bool is_lost;
    struct sim_key from; /* SIM_LINK, SIM_UNLINK: the name */
    struct sim_key to;   /* SIM_RENAME, SIM_EXCHANGE */
    uint32_t inode;      /* at ${from}: before, or, SIM_LINK, after */
    uint32_t other;      /* at ${to} before; SIM_NONE: nothing */
};

struct sim_lock {
    uint32_t inode;
    int client;
    bool is_exclusive;
    const void *holder; /* handle */
};

struct sim_client {
    struct store store;
    struct sim *sim;
    int number;
    bool is_dead;
};

struct sim {
    pthread_mutex_t lock;
    unsigned flags;
    struct sim_inode *inodes;
    size_t inode_count, inode_capacity;
    struct sim_entries now, durable;
    struct sim_op *pending;
    size_t pending_count, pending_capacity;
    struct sim_lock *locks;
    size_t lock_count, lock_capacity;
    unsigned fail_sync_in; /* 0: never */
    bool fail_sync_lost;
    void (*before_op)(void *context, int client, const char *op, const char *name);
    void *hook_context;
    struct sim_client clients[SIM_MAX_CLIENTS];
};

extern const struct store_ops sim_ops;

/* Call these with sim->lock held. Reserve one more element; false: out of memory. */
bool sim_reserve(void **array, size_t *capacity, size_t count, size_t size);
#define SIM_RESERVE(array, capacity, count)                                                        \
    sim_reserve((void **)&(array), &(capacity), (count), sizeof(*(array)))

struct sim_blob *sim_blob_share(struct sim_blob *blob);
void sim_blob_release(struct sim_blob *blob);
struct sim_key sim_key_of(uint32_t dir, const char *name, size_t length);
/* Inode, or SIM_NONE. */
uint32_t sim_find(const struct sim_entries *entries, const struct sim_key *key);
bool sim_reserve_entry(struct sim_entries *entries);
bool sim_copy_entries(struct sim_entries *to, const struct sim_entries *from);
/* False: the names are not as the operation left them, so it cannot have happened. Needs room for
 * one more entry. */
bool sim_apply(struct sim_entries *entries, const struct sim_op *op);
/* A copy with the same inodes and durable names, and no others. */
struct sim *sim_copy_durable(const struct sim *sim);
/* A new inode; SIM_NONE: out of memory. */
uint32_t sim_new_inode(struct sim *sim, bool is_dir);
/* Do an operation that was checked, and record it as pending; false: no memory, not done. */
bool sim_do(struct sim *sim, const struct sim_op *op);
/* 0, or the errno of a sync that fails. */
int sim_sync_names(struct sim *sim, uint32_t dir, int client);
int sim_sync_contents(struct sim *sim, uint32_t inode);

/* ---- store_sim.c: what all operations share */

struct sim_handle {
    union {
        struct store_dir dir;
        struct store_file file;
    } base; /* first: a handle is cast to either */
    uint32_t inode;
    bool is_writable;
    char name[SIM_NAME_BYTES];
};

static inline struct sim_handle *sim_handle_of(const void *base)
{
    return (struct sim_handle *)(uintptr_t)base;
}
static inline struct sim_client *sim_client_of(struct store *store)
{
    return (struct sim_client *)(void *)store;
}

/* Begin an operation: run the hook, take the lock; the lock is released with the scope. */
struct sim *sim_begin(struct store *store, const char *op, const char *name);
void sim_unlock(struct sim **sim);
#define SIM_BEGIN(store, op, name)                                                                 \
    __attribute__((cleanup(sim_unlock))) struct sim *sim = sim_begin((store), (op), (name));       \
    if (sim == NULL)                                                                               \
    return sim_fail(err, EIO, op ": this client is dead", (name))
enum sidestep_status sim_fail(struct sidestep_error *err, int sys_errno, const char *op,
                              const char *name);

struct sim_handle *sim_handle_new(struct store *store, uint32_t inode, const char *name);
/* Walk ${path} down from ${dir}; 0 or an errno. ${is_path}: it may have extra slashes, or be
 * empty. */
int sim_walk(const struct sim *sim, uint32_t dir, const char *path, bool is_path, uint32_t *inode);
/* A new inode under a new name; 0 or an errno. */
int sim_make(struct sim *sim, struct store_dir *at, const char *name, bool is_dir, uint32_t *made);
void sim_fill_stat(const struct sim *sim, uint32_t number, struct store_stat *out);

/* ---- store_sim_file.c */

enum sidestep_status sim_file_create(struct store_dir *at, const char *name, uint32_t flags,
                                     struct store_file **out, struct sidestep_error *err);
enum sidestep_status sim_file_open(struct store_dir *at, const char *name, uint32_t flags,
                                   struct store_file **out, struct sidestep_error *err);
enum sidestep_status sim_file_allocate(struct store_file *file, uint64_t bytes,
                                       struct sidestep_error *err);
enum sidestep_status sim_file_write_at(struct store_file *file, const void *from, size_t bytes,
                                       uint64_t offset, struct sidestep_error *err);
enum sidestep_status sim_file_read_at(struct store_file *file, void *to, size_t bytes,
                                      uint64_t offset, struct sidestep_error *err);
enum sidestep_status sim_file_truncate(struct store_file *file, uint64_t bytes,
                                       struct sidestep_error *err);
enum sidestep_status sim_file_sync(struct store_file *file, struct sidestep_error *err);
enum sidestep_status sim_file_stat(struct store_file *file, struct store_stat *out,
                                   struct sidestep_error *err);
size_t sim_file_alignment(struct store_file *file);
enum sidestep_status sim_file_is_locked(struct store_file *file, bool *is_locked,
                                        struct sidestep_error *err);
enum sidestep_status sim_file_lock(struct store_file *file, bool exclusive,
                                   struct sidestep_error *err);
void sim_file_discard(struct store_file *file);
enum sidestep_status sim_file_close(struct store_file *file, struct sidestep_error *err);

#endif
