/* SPDX-License-Identifier: BSD-3-Clause */
/* replicas.c -- compares tensors that all ranks have; see replicas.h. */
#include "save/replicas.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "save/save.h"
#include "snapshot/snapshot.h"

/* Of a tensor that this rank cannot read: greater than any word of another rank. */
#define NO_HASH UINT64_MAX

void replicas_forget(struct replicas *replicas)
{
    arena_release(&replicas->arena);
    *replicas = (struct replicas){.wanted = replicas->wanted,
                                  .min_bytes = replicas->min_bytes,
                                  .outvoted = {replicas->outvoted[0], replicas->outvoted[1]}};
}

void replicas_release(struct replicas *replicas)
{
    replicas_forget(replicas);
}

bool replicas_are_wanted(const struct replicas *replicas, const struct sidestep_engine *engine,
                         bool still, bool copies)
{
    if (engine->comm.size == 1 || replicas->wanted == SIDESTEP_REPLICAS_LOWEST ||
        replicas->outvoted[still])
        return false;
    if (replicas->wanted == SIDESTEP_REPLICAS_SHARE)
        return true;
    /* The ranks of one host write to one link, or one disk.  One of them can keep it busy. */
    return engine->hosts.count > 1 && (still || copies);
}

void replicas_note_outvoted(struct replicas *replicas, bool still)
{
    replicas->outvoted[still] = true;
}

static uint64_t entry_bytes(const struct state_entry *entry)
{
    return box_volume(&entry->box) * sidestep_dtype_size(entry->dtype);
}

/* ---- hashes */

struct hash_job {
    const struct replica_block *blocks;
    uint64_t *hashes;
    size_t count;
    atomic_size_t next;
};

static void hash_blocks(void *context)
{
    struct hash_job *job = context;

    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->count;)
        job->hashes[i] = hash_block(job->blocks[i].bytes, job->blocks[i].length);
}

/* Can this rank read the bytes of ${entry} as they are in the file, and without a signal? */
static bool is_readable(struct sidestep_engine *engine, struct file_memory *files,
                        const struct state_entry *entry)
{
    uint64_t bytes = entry_bytes(entry);
    int32_t device = -1;

    if (bytes == 0 || entry->reader != NULL || (entry->flags & SIDESTEP_TENSOR_FENCED) != 0 ||
        !box_is_row_major(entry->ndim, entry->box.lengths, entry->strides))
        return false;
    uint64_t address = (uint64_t)(uintptr_t)entry->data;
    return devices_locate(&engine->devices, address, bytes, &device, NULL) == SIDESTEP_OK &&
           device < 0 && !file_memory_has(files, address, bytes);
}

/* Add the blocks of a tensor at ${count}; returns how many. */
static size_t add_blocks(struct replicas *r, const struct state_entry *entry, size_t count)
{
    uint64_t bytes = entry_bytes(entry);
    size_t blocks = (size_t)hash_block_count(bytes);

    for (size_t i = 0; i < blocks; i++) {
        uint64_t begin = (uint64_t)i * HASH_BLOCK_BYTES;
        r->blocks[count + i] = (struct replica_block){
            (const uint8_t *)entry->data + begin, (size_t)min_u64(HASH_BLOCK_BYTES, bytes - begin)};
    }
    return blocks;
}

void replicas_hash(struct sidestep_engine *engine, const struct sidestep_state_dict *state,
                   struct sidestep_save_info *info)
{
    struct replicas *r = &engine->saver->replicas;
    uint64_t began = clock_now(engine->clock);
    struct hash_job job = {.blocks = r->blocks, .hashes = r->block_hashes};
    struct file_memory files;

    r->hashed = true;
    if (r->bytes == 0)
        return;
    file_memory_open(&files);
    for (size_t i = 0; i < r->count; i++) {
        struct replica *replica = &r->list[i];
        const struct state_entry *entry = &state->entries[replica->entry];
        replica->has_hash = replica->is_equal && is_readable(engine, &files, entry);
        if (replica->has_hash)
            job.count += add_blocks(r, entry, job.count);
    }
    file_memory_close(&files);
    workers_run(engine->stagers, hash_blocks, &job);
    const uint64_t *at = r->block_hashes;
    for (size_t i = 0; i < r->count; i++) {
        uint64_t bytes = entry_bytes(&state->entries[r->list[i].entry]);
        size_t blocks = r->list[i].has_hash ? (size_t)hash_block_count(bytes) : 0;
        r->list[i].hash = hash_block_list(at, blocks).low;
        at += blocks;
        info->compared_bytes += blocks != 0 ? bytes : 0;
    }
    info->compare_ns += clock_now(engine->clock) - began;
}

void replicas_digest(const struct replicas *r, uint64_t words[2])
{
    uint64_t digest = 0;

    words[0] = words[1] = NO_HASH;
    if (!r->hashed || !r->known)
        return;
    for (size_t i = 0; r->bytes != 0 && i < r->count; i++) {
        if (!r->list[i].is_equal)
            continue;
        if (!r->list[i].has_hash)
            return;
        const uint64_t pair[] = {digest, r->list[i].hash};
        digest = hash_block_list(pair, ARRAY_LENGTH(pair)).low;
    }
    words[0] = digest;
    words[1] = ~digest;
}

/* ---- comparing them one by one */

/* Take the tensors that all ranks have from the plan. */
static enum sidestep_status take_common(struct replicas *r, const struct save_plan *plan,
                                        const struct sidestep_state_dict *state,
                                        struct sidestep_error *err)
{
    size_t blocks = 0;

    replicas_forget(r);
    r->list = arena_new(&r->arena, plan->common_count, sizeof(*r->list));
    r->words = arena_new(&r->arena, 2 * plan->common_count, sizeof(*r->words));
    r->declared = arena_new(&r->arena, state->count, sizeof(*r->declared));
    if (r->list == NULL || r->words == NULL || r->declared == NULL)
        return FAIL_NOMEM(err, plan->common_count * sizeof(*r->list));
    for (size_t i = 0; i < plan->common_count; i++) {
        uint64_t bytes = entry_bytes(&state->entries[plan->common[i]]);
        if (bytes < r->min_bytes / REPLICAS_MIN_TENSOR_PART)
            continue;
        r->list[r->count++] = (struct replica){.entry = plan->common[i], .is_equal = true};
        r->bytes += bytes;
        blocks += (size_t)hash_block_count(bytes);
    }
    if (r->bytes < r->min_bytes)
        r->bytes = r->count = blocks = 0;
    r->blocks = arena_new(&r->arena, blocks, sizeof(*r->blocks));
    r->block_hashes = arena_new(&r->arena, blocks, sizeof(*r->block_hashes));
    if (r->blocks == NULL || r->block_hashes == NULL)
        return FAIL_NOMEM(err, blocks * sizeof(*r->blocks));
    r->known = true;
    return SIDESTEP_OK;
}

/* Add the name of a tensor whose values differ, and count those that find no room. */
static void tell(struct sidestep_save_info *info, const char *name, unsigned *more)
{
    size_t at = strlen(info->differs), room = sizeof(info->differs) - at;
    struct display_text text = display_name(name);

    if (*more != 0 || strlen(text.text) + sizeof(", '' and 4294967295 more") > room)
        (*more)++;
    else
        snprintf(info->differs + at, room, "%s'%s'", at != 0 ? ", " : "", text.text);
}

/* Take what all ranks have said of the tensors. */
static void learn(struct replicas *r, const struct sidestep_state_dict *state,
                  struct sidestep_save_info *info)
{
    unsigned more = 0;

    r->bytes = 0;
    for (size_t i = 0; i < r->count; i++) {
        struct replica *replica = &r->list[i];
        const struct state_entry *entry = &state->entries[replica->entry];
        uint64_t word = r->words[2 * i], complement = r->words[2 * i + 1];
        if (replica->is_equal && word != ~complement && (word != NO_HASH || complement != NO_HASH))
            tell(info, entry->name, &more);
        replica->is_equal = replica->is_equal && word == ~complement;
        r->bytes += replica->is_equal ? entry_bytes(entry) : 0;
    }
    if (more != 0) {
        size_t at = strlen(info->differs);
        snprintf(info->differs + at, sizeof(info->differs) - at, "%s%u more",
                 at != 0 ? " and " : "", more);
    }
    if (r->bytes < r->min_bytes)
        r->bytes = 0;
    for (size_t i = 0; i < r->count; i++)
        r->declared[r->list[i].entry] = r->bytes != 0 && r->list[i].is_equal;
}

static enum sidestep_status compare_all(struct sidestep_engine *engine,
                                        const struct sidestep_state_dict *state,
                                        struct sidestep_save_info *info, struct sidestep_error *err)
    ON_THREAD(CALLER)
{
    struct replicas *r = &engine->saver->replicas;

    if (r->bytes == 0) /* on all ranks */
        return SIDESTEP_OK;
    if (!r->hashed) {
        (void)devices_detect_driver(&engine->devices);
        replicas_hash(engine, state, info);
    }
    for (size_t i = 0; i < r->count; i++) {
        r->words[2 * i] = r->list[i].has_hash ? r->list[i].hash : NO_HASH;
        r->words[2 * i + 1] = r->list[i].has_hash ? ~r->list[i].hash : NO_HASH;
    }
    TRY(comm_reduce_max_all(&engine->comm, r->words, 2 * r->count, err));
    learn(r, state, info);
    return SIDESTEP_OK;
}

enum sidestep_status replicas_plan_all(struct sidestep_engine *engine,
                                       const struct sidestep_state_dict *state,
                                       struct sidestep_save_info *info, struct sidestep_error *err)
{
    struct replicas *r = &engine->saver->replicas;
    enum sidestep_status status = SIDESTEP_OK;
    bool has_plan = !r->known; /* as on all ranks */

    if (!r->known) {
        status = save_plan_all(engine, state, NULL, err);
        if (status == SIDESTEP_OK) {
            status = take_common(r, &engine->saver->plan, state, err);
            status = comm_agree_all(&engine->comm, status, err);
        }
    }
    if (status == SIDESTEP_OK)
        status = compare_all(engine, state, info, err);
    if (status == SIDESTEP_OK && (r->bytes != 0 || !has_plan))
        status = save_plan_all(engine, state, r->bytes != 0 ? r->declared : NULL, err);
    return status;
}
