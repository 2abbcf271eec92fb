/* SPDX-License-Identifier: BSD-3-Clause */
/* store_sim_crash.c -- power loss of the simulated disk: what may be lost, and what is left. */
#include "support/store_sim_disk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

size_t sim_pending_count(const struct sim *sim)
{
    return sim->pending_count;
}

static bool can_have_name(const struct sim *sim, uint32_t inode)
{
    for (size_t i = 0; i < sim->durable.count; i++)
        if (sim->durable.all[i].inode == inode)
            return true;
    for (size_t i = 0; i < sim->pending_count; i++)
        if (sim->pending[i].inode == inode || sim->pending[i].other == inode)
            return true;
    return false;
}

/* A file whose contents a power loss may change visibly. */
static bool is_open_question(const struct sim *sim, uint32_t inode)
{
    return !sim->inodes[inode].is_dir && sim->inodes[inode].is_dirty && can_have_name(sim, inode);
}

size_t sim_dirty_count(const struct sim *sim)
{
    size_t count = 0;

    for (uint32_t i = 0; i < sim->inode_count; i++)
        count += is_open_question(sim, i);
    return count;
}

static struct sim_blob *first_half(const struct sim_blob *blob)
{
    size_t size = blob != NULL ? blob->size / 2 : 0;
    struct sim_blob *half = size != 0 ? malloc(sizeof(*half) + size) : NULL;

    if (half == NULL)
        return NULL;
    *half = (struct sim_blob){.refs = 1, .size = size};
    memcpy(half->bytes, blob->bytes, size);
    return half;
}

static struct sim_blob *contents_after(const struct sim_inode *file, enum sim_contents choice)
{
    switch (choice) {
    case SIM_OLD:
        return sim_blob_share(file->durable);
    case SIM_NEW:
        return sim_blob_share(file->now);
    case SIM_TORN:
        return first_half(file->now);
    case SIM_EMPTY:
        break;
    }
    return NULL;
}

static void settle(struct sim_inode *inode, enum sim_contents choice)
{
    struct sim_blob *left = contents_after(inode, choice);

    sim_blob_release(inode->now);
    sim_blob_release(inode->durable);
    *inode = (struct sim_inode){.is_dir = inode->is_dir,
                                .is_here = inode->is_here,
                                .now = left,
                                .durable = sim_blob_share(left)};
}

/* Pending operation i stays if keep(context, i), and dirty file i gets contents(context, i). */
static struct sim *crash(struct sim *sim, bool (*keep)(void *context, size_t op),
                         enum sim_contents (*contents)(void *context, size_t file), void *context)
{
    size_t file = 0;

    pthread_mutex_lock(&sim->lock);
    struct sim *left = sim_copy_durable(sim);
    for (size_t i = 0; left != NULL && i < sim->pending_count; i++) {
        if (!sim_reserve_entry(&left->durable))
            sim_free(&left);
        else if (keep(context, i))
            (void)sim_apply(&left->durable, &sim->pending[i]);
    }
    if (left != NULL && !sim_copy_entries(&left->now, &left->durable))
        sim_free(&left);
    for (uint32_t i = 0; left != NULL && i < left->inode_count; i++)
        settle(&left->inodes[i], is_open_question(sim, i) ? contents(context, file++) : SIM_OLD);
    for (int i = 0; left != NULL && i < SIM_MAX_CLIENTS; i++)
        left->clients[i].is_dead = false;
    pthread_mutex_unlock(&sim->lock);
    return left;
}

struct choice_bits {
    uint64_t ops;
    uint64_t files;
};

static bool keep_by_bits(void *context, size_t op)
{
    const struct choice_bits *bits = context;

    return op >= 64 || (bits->ops >> op & 1) != 0;
}

static enum sim_contents contents_by_bits(void *context, size_t file)
{
    const struct choice_bits *bits = context;

    return file >= 32 ? SIM_NEW : (enum sim_contents)(bits->files >> 2 * file & 3);
}

struct sim *sim_crash_bits(struct sim *sim, uint64_t ops, uint64_t files)
{
    struct choice_bits bits = {.ops = ops, .files = files};

    return crash(sim, keep_by_bits, contents_by_bits, &bits);
}

/* ---- looking */

static const struct sim_entry *entry_of_dir(const struct sim *sim, uint32_t dir)
{
    for (size_t i = 0; i < sim->now.count; i++)
        if (sim->now.all[i].inode == dir)
            return &sim->now.all[i];
    return NULL;
}

/* Hash from an entry up to the root; false: one of its directories has no name. */
static bool hash_path(const struct sim *sim, const struct sim_entry *entry, uint64_t *hash)
{
    while (entry->key.dir != SIM_ROOT) {
        *hash = XXH3_64bits_withSeed(entry->key.name, strlen(entry->key.name), *hash);
        entry = entry_of_dir(sim, entry->key.dir);
        if (entry == NULL)
            return false;
    }
    *hash = XXH3_64bits_withSeed(entry->key.name, strlen(entry->key.name), *hash);
    return true;
}

/* A sum over the entries, because their order means nothing. */
uint64_t sim_hash(const struct sim *sim)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < sim->now.count; i++) {
        const struct sim_entry *entry = &sim->now.all[i];
        const struct sim_inode *inode = &sim->inodes[entry->inode];
        uint64_t hash = inode->is_dir;
        if (inode->now != NULL)
            hash = XXH3_64bits_withSeed(inode->now->bytes, inode->now->size, 2);
        if (hash_path(sim, entry, &hash))
            sum += hash;
    }
    return sum;
}

static void print_path(const struct sim *sim, const struct sim_key *key, FILE *to)
{
    const struct sim_entry *parent = key->dir != SIM_ROOT ? entry_of_dir(sim, key->dir) : NULL;

    if (parent != NULL)
        fprintf(to, "%s (#%" PRIu32 ")/%s", parent->key.name, key->dir, key->name);
    else
        fprintf(to, "#%" PRIu32 "/%s", key->dir, key->name);
}

void sim_print(const struct sim *sim, FILE *to)
{
    static const char *const kinds[] = {"link", "unlink", "rename", "exchange"};

    for (size_t i = 0; i < sim->now.count; i++) {
        const struct sim_entry *entry = &sim->now.all[i];
        const struct sim_inode *inode = &sim->inodes[entry->inode];
        fprintf(to, "  ");
        print_path(sim, &entry->key, to);
        fprintf(to, " #%" PRIu32 " %zu bytes%s%s\n", entry->inode,
                inode->now != NULL ? inode->now->size : 0, inode->is_dirty ? " dirty" : "",
                inode->is_dir ? " directory" : "");
    }
    for (size_t i = 0; i < sim->pending_count; i++) {
        const struct sim_op *op = &sim->pending[i];
        fprintf(to, "  pending %zu: client %d %s ", i, op->client, kinds[op->kind]);
        print_path(sim, &op->from, to);
        if (op->kind == SIM_RENAME || op->kind == SIM_EXCHANGE) {
            fprintf(to, " to ");
            print_path(sim, &op->to, to);
        }
        fprintf(to, "%s\n", op->is_lost ? ", lost" : "");
    }
}
