/* SPDX-License-Identifier: BSD-3-Clause */
/* open_all.c -- all ranks open a checkpoint together; see open_all.h. */
#include "load/open_all.h"

#include <string.h>

#include "base/base.h"
#include "commit/commit.h"

/* A checkpoint may be replaced while it is opened. Network file systems cache attributes, so a rank
 * may see another save for a moment. Then the ranks try again. */
#define OPEN_TRIES 5u
#define OPEN_DISAGREE_TRIES 3u
/* A load leaves what it reads in the page cache if that is at most this part of the free memory. */
#define KEPT_PART 16u

/* One call of open_and_plan_all() on one rank. */
struct open_call {
    struct sidestep_engine *engine;
    const char *path;
    uint32_t flags;
    struct reader_wanted wanted;
    struct sidestep_state_dict *state;
    const struct load_bring *bring;
    struct reader **reader;
    struct load_plan *plan;
};

/* What rank 0 tells the other ranks first. */
struct announcement {
    uint64_t is_listed;                              /* a manifest lists the .metadata */
    uint64_t metadata_hash;                          /* the first bytes of its SHA-256 */
    uint64_t manifest_bytes, chunk_bytes, has_index; /* of the records */
};

/* ---- opening */

static enum sidestep_status open_here(struct open_call *o, uint32_t flags,
                                      struct reader_records *records, struct sidestep_error *err)
{
    struct store *store = NULL;

    TRY(engine_find_store(o->engine, o->path, &store, err));
    return reader_open_to_load(store, o->path, flags, &o->wanted, records, o->reader, err);
}

/* Rank 0 holds the lock that keeps others from deleting the checkpoint, until all ranks have
 * read. */
static enum sidestep_status open_on_rank_0(struct open_call *o, struct reader_records *records,
                                           struct announcement *announced,
                                           struct sidestep_error *err)
{
    TRY(open_here(o, o->flags | READER_SHARED_LOCK, o->engine->comm.size > 1 ? records : NULL,
                  err));
    *announced = (struct announcement){.is_listed = (*o->reader)->has_manifest,
                                       .manifest_bytes = records->manifest.length,
                                       .chunk_bytes = records->chunks.length,
                                       .has_index = records->has_index};
    memcpy(&announced->metadata_hash, (*o->reader)->manifest.metadata_sha256,
           sizeof(announced->metadata_hash));
    return SIDESTEP_OK;
}

/* Send the records that rank 0 has read to all ranks. */
static enum sidestep_status share_records_all(struct comm *comm, struct announcement *announced,
                                              struct reader_records *records,
                                              struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    TRY(comm_broadcast_all(comm, announced, sizeof(*announced), 0, err));
    if (announced->is_listed == 0 || comm->size == 1)
        return SIDESTEP_OK;
    if (comm->rank != 0) {
        (void)buffer_extend(&records->manifest, (size_t)announced->manifest_bytes);
        (void)buffer_extend(&records->chunks, (size_t)announced->chunk_bytes);
        records->has_index = announced->has_index != 0;
        status = buffer_check(&records->manifest, err);
        if (status == SIDESTEP_OK)
            status = buffer_check(&records->chunks, err);
    }
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, records->manifest.bytes, records->manifest.length, 0, err));
    return comm_broadcast_all(comm, records->chunks.bytes, records->chunks.length, 0, err);
}

/* Each rank has read .metadata, or another file, itself. EDISAGREE, without a message: not all have
 * read the same. */
static enum sidestep_status check_same_all(struct open_call *o, struct sidestep_error *err)
{
    uint64_t pair[2];

    memcpy(&pair[0], (*o->reader)->manifest_sha256, sizeof(pair[0]));
    pair[1] = ~pair[0];
    TRY(comm_reduce_max_all(&o->engine->comm, pair, 2, err));
    return pair[0] == ~pair[1] ? SIDESTEP_OK : SIDESTEP_EDISAGREE;
}

static enum sidestep_status open_reader_all(struct open_call *o, struct announcement *announced,
                                            struct sidestep_error *err)
{
    OWNED_BY(reader_records_release) struct reader_records records = {0};
    struct comm *comm = &o->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;

    if (comm->rank == 0)
        status = open_on_rank_0(o, &records, announced, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(share_records_all(comm, announced, &records, err));
    if (comm->rank != 0)
        status = open_here(o, o->flags, announced->is_listed != 0 ? &records : NULL, err);
    TRY(comm_agree_all(comm, status, err));
    return announced->is_listed != 0 ? SIDESTEP_OK : check_same_all(o, err);
}

/* ---- the page cache */

/* Do other ranks read the same data? Then one of them reads it from the disk, and the others from
 * the page cache. */
static bool is_read_by_many(const struct open_call *o)
{
    uint64_t total = reader_data_bytes(*o->reader), wanted;

    return !checked_mul(o->plan->wanted_bytes, (uint64_t)o->engine->comm.size, &wanted) ||
           wanted > total + total / 4;
}

/* Does the page cache have space for what the ranks of this host read, without pushing out what
 * others use? */
static bool fits_page_cache(const struct open_call *o)
{
    uint64_t bytes;

    return o->engine->fills_page_cache &&
           checked_mul(o->plan->wanted_bytes, (uint64_t)o->engine->hosts.ranks_here * KEPT_PART,
                       &bytes) &&
           bytes <= cgroup_memory_free();
}

/* Read past the page cache only what is not likely to be read again, or has no space there: the
 * next load of what is there takes a fifth of the time. */
static void choose_page_cache(struct open_call *o)
{
    struct reader *r = *o->reader;

    if ((r->flags & STORE_DIRECT) == 0 || !(is_read_by_many(o) || fits_page_cache(o)))
        return;
    r->flags &= ~STORE_DIRECT;
    r->queue.ring = false; /* it does what goes past the page cache */
}

/* Open the files that this rank reads from, and compare the sizes of its share of the others. */
static enum sidestep_status open_files(struct open_call *o, struct sidestep_error *err)
{
    uint64_t rank = (uint64_t)o->engine->comm.rank, size = (uint64_t)o->engine->comm.size;
    struct reader *r = *o->reader;
    const char *last = NULL; /* most items are in the file of the one before */

    for (size_t i = 0; i < o->plan->count; i++) {
        const struct metadata_storage *storage = o->plan->chunks[i].storage;
        if (storage->file != last)
            TRY(reader_admit(r, storage, err));
        last = storage->file;
    }
    if ((o->flags & READER_SPREAD) != 0)
        return SIDESTEP_OK;
    return reader_check_sizes(r, (size_t)(rank * r->file_count / size),
                              (size_t)((rank + 1) * r->file_count / size), err);
}

static enum sidestep_status open_once_all(struct open_call *o, struct announcement *announced,
                                          struct sidestep_error *err)
{
    TRY(open_reader_all(o, announced, err));
    enum sidestep_status status =
        load_plan_build(&(*o->reader)->metadata, o->state, o->wanted.all_names, o->plan, err);
    if (o->bring != NULL)
        (*o->reader)->beside = o->bring->beside;
    if (o->bring != NULL && o->bring->all != NULL) {
        TRY(comm_agree_all(&o->engine->comm, status, err));
        status = o->bring->all(o->bring->context, *o->reader, o->plan, err);
    }
    if (status == SIDESTEP_OK) {
        choose_page_cache(o);
        status = open_files(o, err);
    }
    return comm_agree_all(&o->engine->comm, status, err);
}

/* ---- what a failure means */

/* The hash of the .metadata that this rank sees now; 0: it sees none. */
static uint64_t hash_seen_metadata(struct open_call *o)
{
    OWNED_DIR *dir = NULL;
    struct store *store = NULL;
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t bytes, seen = 0;

    if (engine_find_store(o->engine, o->path, &store, NULL) == SIDESTEP_OK &&
        store_dir_open(store, NULL, o->path, &dir, NULL) == SIDESTEP_OK &&
        small_file_hash(dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &bytes, sha256, NULL,
                        NULL) == SIDESTEP_OK)
        memcpy(&seen, sha256, sizeof(seen));
    return seen;
}

/* The ranks opened different checkpoints, or one found damage (${status}). Find out whether the
 * checkpoint was replaced, or the ranks see different storage. ${*again}: try again. */
static enum sidestep_status judge_failure_all(struct open_call *o, enum sidestep_status status,
                                              uint64_t opened, unsigned attempt, bool *again,
                                              struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    uint64_t seen[2];

    seen[0] = hash_seen_metadata(o);
    seen[1] = ~seen[0];
    if (comm_reduce_max_all(&o->engine->comm, seen, 2, &why) != SIDESTEP_OK)
        return error_copy(err, &why);
    bool is_same = status == SIDESTEP_ECORRUPT && seen[0] == ~seen[1];
    *again = attempt + 1 < (is_same ? OPEN_TRIES : OPEN_DISAGREE_TRIES) &&
             !(is_same && seen[0] == opened);
    if (is_same)
        return status;
    if (!*again)
        return FAIL(err, SIDESTEP_EDISAGREE,
                    "'%s' is not the same checkpoint on all ranks: is it on shared storage?",
                    o->path);
    o->engine->clock->sleep_ms(o->engine->clock, 100u << attempt);
    return status;
}

enum sidestep_status open_and_plan_all(struct sidestep_engine *engine, const char *path,
                                       uint32_t flags, const struct load_bring *bring,
                                       struct sidestep_state_dict *state, bool all_names,
                                       struct reader **reader, struct load_plan *plan,
                                       struct sidestep_error *err)
{
    struct open_call o = {.engine = engine,
                          .path = path,
                          .flags = flags,
                          .wanted = {state, all_names},
                          .state = state,
                          .bring = bring,
                          .reader = reader,
                          .plan = plan};
    enum sidestep_status status = SIDESTEP_OK;
    bool again = true;

    for (unsigned attempt = 0; again; attempt++) {
        struct announcement announced = {0};
        again = false;
        status = open_once_all(&o, &announced, err);
        if (status == SIDESTEP_OK)
            return SIDESTEP_OK;
        if (status == SIDESTEP_EDISAGREE ||
            (announced.is_listed != 0 && status == SIDESTEP_ECORRUPT))
            status = judge_failure_all(&o, status, announced.metadata_hash, attempt, &again, err);
        load_plan_release(plan);
        reader_close(reader);
    }
    return status;
}
