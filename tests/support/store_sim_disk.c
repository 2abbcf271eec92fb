/* SPDX-License-Identifier: BSD-3-Clause */
/* store_sim_disk.c -- names, contents and their durability on the simulated disk. */
#include "support/store_sim_disk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"

/* ---- contents */

struct sim_blob *sim_blob_share(struct sim_blob *blob)
{
    if (blob != NULL)
        __atomic_add_fetch(&blob->refs, 1, __ATOMIC_RELAXED);
    return blob;
}

void sim_blob_release(struct sim_blob *blob)
{
    if (blob != NULL && __atomic_sub_fetch(&blob->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(blob);
}

/* ---- names */

bool sim_reserve(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity)
        return true;
    size_t wanted = count < 16 ? 32 : 2 * count;
    void *grown = reallocarray(*array, wanted, size);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

struct sim_key sim_key_of(uint32_t dir, const char *name, size_t length)
{
    struct sim_key key = {.dir = dir, .hash = 2166136261u ^ dir};

    assert(length < sizeof(key.name));
    for (size_t i = 0; i < length; i++)
        key.hash = (key.hash ^ (unsigned char)name[i]) * 16777619u;
    memcpy(key.name, name, length);
    return key;
}

static bool same_key(const struct sim_key *a, const struct sim_key *b)
{
    return a->hash == b->hash && a->dir == b->dir && strcmp(a->name, b->name) == 0;
}

static struct sim_entry *find_entry(const struct sim_entries *entries, const struct sim_key *key)
{
    for (size_t i = 0; i < entries->count; i++)
        if (same_key(&entries->all[i].key, key))
            return &entries->all[i];
    return NULL;
}

uint32_t sim_find(const struct sim_entries *entries, const struct sim_key *key)
{
    const struct sim_entry *entry = find_entry(entries, key);

    return entry != NULL ? entry->inode : SIM_NONE;
}

static void remove_entry(struct sim_entries *entries, struct sim_entry *entry)
{
    *entry = entries->all[--entries->count];
}

bool sim_reserve_entry(struct sim_entries *entries)
{
    return SIM_RESERVE(entries->all, entries->capacity, entries->count);
}

bool sim_apply(struct sim_entries *entries, const struct sim_op *op)
{
    struct sim_entry *from = find_entry(entries, &op->from);

    if (op->kind == SIM_LINK) {
        if (from != NULL)
            return false;
        entries->all[entries->count++] = (struct sim_entry){.key = op->from, .inode = op->inode};
        return true;
    }
    if (from == NULL || from->inode != op->inode)
        return false;
    if (op->kind == SIM_UNLINK) {
        remove_entry(entries, from);
        return true;
    }
    struct sim_entry *to = find_entry(entries, &op->to);
    if ((to != NULL ? to->inode : SIM_NONE) != op->other)
        return false;
    if (op->kind == SIM_EXCHANGE) {
        from->inode = op->other;
        to->inode = op->inode;
    } else if (to != NULL) {
        to->inode = op->inode;
        remove_entry(entries, from);
    } else {
        from->key = op->to;
    }
    return true;
}

static bool has_two_names(const struct sim_op *op)
{
    return op->kind == SIM_RENAME || op->kind == SIM_EXCHANGE;
}

static bool touches(const struct sim_op *op, const struct sim_key *key)
{
    return same_key(&op->from, key) || (has_two_names(op) && same_key(&op->to, key));
}

static bool share_a_name(const struct sim_op *a, const struct sim_op *b)
{
    return touches(a, &b->from) || (has_two_names(b) && touches(a, &b->to));
}

bool sim_do(struct sim *sim, const struct sim_op *op)
{
    if (!sim_reserve_entry(&sim->now) ||
        !SIM_RESERVE(sim->pending, sim->pending_capacity, sim->pending_count))
        return false;
    bool done = sim_apply(&sim->now, op);
    assert(done);
    sim->pending[sim->pending_count++] = *op;
    return done;
}

uint32_t sim_new_inode(struct sim *sim, bool is_dir)
{
    if (!SIM_RESERVE(sim->inodes, sim->inode_capacity, sim->inode_count))
        return SIM_NONE;
    sim->inodes[sim->inode_count] = (struct sim_inode){.is_dir = is_dir};
    return (uint32_t)sim->inode_count++;
}

/* ---- sync */

static bool sync_fails(struct sim *sim)
{
    return sim->fail_sync_in != 0 && --sim->fail_sync_in == 0;
}

/* Select the operations that a sync of ${dir} covers, and those that they depend on. */
static void select_ops(const struct sim *sim, uint32_t dir, int client, bool *selected)
{
    for (size_t i = sim->pending_count; i-- > 0;) {
        const struct sim_op *op = &sim->pending[i];
        bool belongs = op->from.dir == dir || (has_two_names(op) && op->to.dir == dir);
        if (belongs && (!(sim->flags & SIM_OWN_SYNC) || op->client == client))
            selected[i] = true;
        for (size_t k = 0; selected[i] && k < i; k++)
            selected[k] |= share_a_name(op, &sim->pending[k]);
    }
}

/* An operation that depends on a lost one is lost, too. */
static bool is_blocked(const struct sim *sim, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (sim->pending[k].is_lost && share_a_name(&sim->pending[i], &sim->pending[k]))
            return true;
    return sim->pending[i].is_lost;
}

int sim_sync_names(struct sim *sim, uint32_t dir, int client)
{
    OWNED bool *selected = calloc(sim->pending_count + 1, sizeof(*selected));
    bool fails = sync_fails(sim);
    size_t kept = 0;

    if (selected == NULL)
        return ENOMEM;
    select_ops(sim, dir, client, selected);
    for (size_t i = 0; i < sim->pending_count; i++)
        if (selected[i] && (fails ? sim->fail_sync_lost : is_blocked(sim, i)))
            sim->pending[i].is_lost = true;
    if (fails)
        return EIO;
    for (size_t i = 0; i < sim->pending_count; i++) {
        struct sim_op *op = &sim->pending[i];
        if (!selected[i] || op->is_lost) {
            sim->pending[kept++] = *op;
            continue;
        }
        if (!sim_reserve_entry(&sim->durable))
            return ENOMEM;
        bool done = sim_apply(&sim->durable, op);
        assert(done);
        (void)done;
    }
    sim->pending_count = kept;
    return 0;
}

int sim_sync_contents(struct sim *sim, uint32_t inode)
{
    struct sim_inode *file = &sim->inodes[inode];

    if (sync_fails(sim)) {
        file->is_lost |= sim->fail_sync_lost;
        return EIO;
    }
    if (!file->is_dirty || file->is_lost)
        return 0;
    sim_blob_release(file->durable);
    file->durable = sim_blob_share(file->now);
    file->is_dirty = false;
    return 0;
}

/* ---- disks */

static void init_clients(struct sim *sim, const struct sim *like)
{
    for (int i = 0; i < SIM_MAX_CLIENTS; i++) {
        sim->clients[i].store.ops = &sim_ops;
        sim->clients[i].sim = sim;
        sim->clients[i].number = i;
        sim->clients[i].is_dead = like != NULL && like->clients[i].is_dead;
    }
}

struct sim *sim_new(unsigned flags)
{
    struct sim *sim = calloc(1, sizeof(*sim));

    if (sim == NULL)
        return NULL;
    pthread_mutex_init(&sim->lock, NULL);
    sim->flags = flags;
    init_clients(sim, NULL);
    if (sim_new_inode(sim, true) != SIM_ROOT)
        sim_free(&sim);
    return sim;
}

void sim_free(struct sim **sim_pointer)
{
    struct sim *sim = TAKE(*sim_pointer);

    if (sim == NULL)
        return;
    for (size_t i = 0; i < sim->inode_count; i++) {
        sim_blob_release(sim->inodes[i].now);
        sim_blob_release(sim->inodes[i].durable);
    }
    free(sim->inodes);
    free(sim->now.all);
    free(sim->durable.all);
    free(sim->pending);
    free(sim->locks);
    pthread_mutex_destroy(&sim->lock);
    free(sim);
}

void sim_set_flags(struct sim *sim, unsigned flags)
{
    pthread_mutex_lock(&sim->lock);
    sim->flags = flags;
    pthread_mutex_unlock(&sim->lock);
}

void sim_set_hook(struct sim *sim,
                  void (*before_op)(void *context, int client, const char *op, const char *name),
                  void *context)
{
    sim->before_op = before_op;
    sim->hook_context = context;
}

void sim_fail_sync(struct sim *sim, unsigned nth, bool lost)
{
    pthread_mutex_lock(&sim->lock);
    sim->fail_sync_in = nth;
    sim->fail_sync_lost = lost;
    pthread_mutex_unlock(&sim->lock);
}

static bool copy_array(void **to, size_t *capacity, const void *from, size_t count, size_t size)
{
    if (count == 0)
        return true;
    /* Reserve space to grow, because the copy changes soon. */
    *to = reallocarray(NULL, count + 16, size);
    if (*to == NULL)
        return false;
    *capacity = count + 16;
    memcpy(*to, from, count * size);
    return true;
}
#define COPY_ARRAY(to, capacity, from, count)                                                      \
    copy_array((void **)&(to), &(capacity), (from), (count), sizeof(*(from)))

bool sim_copy_entries(struct sim_entries *to, const struct sim_entries *from)
{
    to->count = from->count;
    return COPY_ARRAY(to->all, to->capacity, from->all, from->count);
}

struct sim *sim_copy_durable(const struct sim *sim)
{
    struct sim *copy = calloc(1, sizeof(*copy));

    if (copy == NULL)
        return NULL;
    pthread_mutex_init(&copy->lock, NULL);
    copy->flags = sim->flags;
    init_clients(copy, sim);
    if (!COPY_ARRAY(copy->inodes, copy->inode_capacity, sim->inodes, sim->inode_count) ||
        !sim_copy_entries(&copy->durable, &sim->durable)) {
        sim_free(&copy);
        return NULL;
    }
    copy->inode_count = sim->inode_count;
    for (size_t i = 0; i < copy->inode_count; i++) {
        (void)sim_blob_share(copy->inodes[i].now);
        (void)sim_blob_share(copy->inodes[i].durable);
    }
    return copy;
}

struct sim *sim_clone(struct sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    struct sim *copy = sim_copy_durable(sim);
    if (copy != NULL &&
        (!sim_copy_entries(&copy->now, &sim->now) ||
         !COPY_ARRAY(copy->pending, copy->pending_capacity, sim->pending, sim->pending_count) ||
         !COPY_ARRAY(copy->locks, copy->lock_capacity, sim->locks, sim->lock_count)))
        sim_free(&copy);
    if (copy != NULL) {
        copy->pending_count = sim->pending_count;
        copy->lock_count = sim->lock_count;
        copy->fail_sync_in = sim->fail_sync_in;
        copy->fail_sync_lost = sim->fail_sync_lost;
    }
    pthread_mutex_unlock(&sim->lock);
    return copy;
}

void sim_client_die(struct sim *sim, int client)
{
    size_t kept = 0;

    pthread_mutex_lock(&sim->lock);
    sim->clients[client].is_dead = true;
    for (size_t i = 0; i < sim->lock_count; i++)
        if (sim->locks[i].client != client)
            sim->locks[kept++] = sim->locks[i];
    sim->lock_count = kept;
    pthread_mutex_unlock(&sim->lock);
}
