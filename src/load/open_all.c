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

/* One call of open_and_plan_all() on one rank. */
struct open_call {
    struct sidestep_engine *engine;
    const char *path;
    uint32_t flags;
    struct sidestep_state_dict *state;
    bool all_names;
    struct reader **reader;
    struct load_plan *plan;
};

/* What rank 0 sends to the other ranks first. */
struct announcement {
    uint64_t is_listed;     /* a manifest lists the .metadata */
    uint64_t metadata_hash; /* the first bytes of its SHA-256 */
};

static enum sidestep_status admit_chunks(struct open_call *o, struct sidestep_error *err)
{
    for (size_t i = 0; i < o->plan->count; i++) {
        const struct load_plan_chunk *chunk = &o->plan->chunks[i];
        TRY(reader_admit(*o->reader, chunk->entry, chunk->storage, &chunk->box, err));
    }
    return SIDESTEP_OK;
}

/* ---- each rank parses .metadata */

/* Open the checkpoint on each rank. The hash of the manifest (or .metadata) shows whether all ranks
 * have opened the same save. */
static enum sidestep_status open_each_all(struct open_call *o, struct sidestep_error *err)
{
    struct comm *comm = &o->engine->comm;
    const struct reader_share share = {(uint64_t)comm->rank, (uint64_t)comm->size};
    uint64_t pair[2] = {0};

    for (unsigned attempt = 0;; attempt++) {
        struct store *store = NULL;
        enum sidestep_status status = engine_find_store(o->engine, o->path, &store, err);
        if (status == SIDESTEP_OK)
            status = reader_open_with_others(store, o->path, o->flags | READER_LATE, &share,
                                             o->reader, err);
        TRY(comm_agree_all(comm, status, err));
        memcpy(&pair[0], (*o->reader)->manifest_sha256, sizeof(pair[0]));
        pair[1] = ~pair[0];
        TRY(comm_reduce_max_all(comm, pair, 2, err));
        if (pair[0] == ~pair[1])
            break;
        reader_close(o->reader);
        if (attempt + 1 == OPEN_DISAGREE_TRIES)
            return FAIL(err, SIDESTEP_EDISAGREE,
                        "'%s' is not the same checkpoint on all ranks: is it on shared storage?",
                        o->path);
        o->engine->clock->sleep_ms(o->engine->clock, 100u << attempt);
    }
    enum sidestep_status status =
        load_plan_build(&(*o->reader)->metadata, o->state, o->all_names, o->plan, err);
    if (status == SIDESTEP_OK)
        status = admit_chunks(o, err);
    return comm_agree_all(comm, status, err);
}

/* ---- each rank opens what it needs */

/* Rank 0 opens the manifest, if it lists the .metadata. It ignores damage, which open_each_all()
 * then reports in more detail. */
static enum sidestep_status open_on_rank_0(struct open_call *o, struct announcement *announced,
                                           struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    struct store *store = NULL;

    TRY(engine_find_store(o->engine, o->path, &store, err));
    enum sidestep_status status =
        reader_open_listed(store, o->path, o->flags, NULL, o->reader, &why);
    if (status == SIDESTEP_OK) {
        announced->is_listed = 1;
        memcpy(&announced->metadata_hash, (*o->reader)->manifest.metadata_sha256,
               sizeof(announced->metadata_hash));
        return SIDESTEP_OK;
    }
    return status == SIDESTEP_ENOMEM || status == SIDESTEP_EIO ? error_copy(err, &why)
                                                               : SIDESTEP_OK;
}

/* A rank other than rank 0 opens the directory. Rank 0 holds the lock that keeps others from
 * deleting it, until all ranks have read. */
static enum sidestep_status open_on_other_rank(struct open_call *o, const struct buffer *manifest,
                                               struct sidestep_error *err)
{
    struct store *store = NULL;

    TRY(engine_find_store(o->engine, o->path, &store, err));
    return reader_open_listed(store, o->path, o->flags & ~READER_SHARED_LOCK, manifest, o->reader,
                              err);
}

/* Send ${bytes} of rank 0 to all ranks. */
static enum sidestep_status broadcast_buffer_all(struct comm *comm, struct buffer *bytes,
                                                 struct sidestep_error *err)
{
    uint64_t length = bytes->length;
    enum sidestep_status status = SIDESTEP_OK;

    if (comm->size == 1)
        return SIDESTEP_OK;
    TRY(comm_broadcast_all(comm, &length, sizeof(length), 0, err));
    if (comm->rank != 0) {
        (void)buffer_extend(bytes, (size_t)length);
        status = buffer_check(bytes, err);
    }
    TRY(comm_agree_all(comm, status, err));
    return comm_broadcast_all(comm, bytes->bytes, (size_t)length, 0, err);
}

static enum sidestep_status broadcast_manifest_all(struct open_call *o, struct sidestep_error *err)
{
    OWNED_BUFFER received = {0};
    struct comm *comm = &o->engine->comm;
    bool is_first = comm->rank == 0;
    enum sidestep_status status = SIDESTEP_OK;

    TRY(broadcast_buffer_all(comm, is_first ? &(*o->reader)->manifest_text : &received, err));
    if (!is_first)
        status = open_on_other_rank(o, &received, err);
    return comm_agree_all(comm, status, err);
}

/* This rank's share of all files. */
static void get_share(const struct open_call *o, size_t *begin, size_t *end)
{
    uint64_t rank = (uint64_t)o->engine->comm.rank, size = (uint64_t)o->engine->comm.size;
    uint64_t files = (*o->reader)->file_count;

    *begin = (size_t)(rank * files / size);
    *end = (size_t)((rank + 1) * files / size);
}

/* List the chunks of this rank's share of the footers. */
static enum sidestep_status list_chunks(struct open_call *o, struct chunk_list **list,
                                        struct sidestep_error *err)
{
    size_t begin, end;

    get_share(o, &begin, &end);
    *list = chunk_list_new(err);
    return *list != NULL ? reader_list_footers(*o->reader, begin, end, *list, err)
                         : SIDESTEP_ENOMEM;
}

/* Concatenate the lists of all ranks, and send the result to all ranks. */
static enum sidestep_status list_chunks_all(struct open_call *o, struct buffer *chunks,
                                            struct sidestep_error *err)
{
    OWNED_BY(chunk_list_free) struct chunk_list *list = NULL;
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct comm *comm = &o->engine->comm;
    enum sidestep_status status = list_chunks(o, &list, err);

    TRY(comm_agree_all(comm, status, err));
    if (comm->size == 1) {
        *chunks = list->bytes;
        list->bytes = (struct buffer){0};
        return SIDESTEP_OK;
    }
    TRY(comm_gather_all(comm, list->bytes.bytes, list->bytes.length, &parts, err));
    buffer_release(&list->bytes);
    if (comm->rank == 0) {
        size_t last = (size_t)comm->size - 1;
        chunks->bytes = TAKE(parts.bytes);
        chunks->length = chunks->capacity = parts.offsets[last] + parts.sizes[last];
    }
    return broadcast_buffer_all(comm, chunks, err);
}

static enum sidestep_status take_listed_all(struct open_call *o, struct sidestep_error *err)
{
    OWNED_BUFFER chunks = {0};

    TRY(list_chunks_all(o, &chunks, err));
    return reader_take_chunks(*o->reader, chunks.bytes, chunks.length, o->state, o->all_names, err);
}

/* Take from the index of chunks what this rank needs, and compare the sizes of its share of the
 * files. If there are few files for each rank, only rank 0 reads the index, and sends it to all.
 * ${*taken} is false if a rank could not use the index; then the ranks read the footers. */
static enum sidestep_status take_index_all(struct open_call *o, bool *taken,
                                           struct sidestep_error *err)
{
    OWNED_BUFFER pages = {0};
    struct comm *comm = &o->engine->comm;
    struct reader *r = *o->reader;
    enum sidestep_status status = SIDESTEP_OK;
    size_t begin, end;

    if (!reader_has_index(r))
        return SIDESTEP_OK;
    bool is_sent = r->file_count <= (uint64_t)comm->size * READER_MAX_FOOTERS;
    if (!is_sent || comm->rank == 0)
        status = reader_take_index(r, o->state, o->all_names, is_sent ? &pages : NULL, NULL);
    uint64_t failed = status != SIDESTEP_OK;
    TRY(comm_reduce_max_all(comm, &failed, 1, err));
    *taken = failed == 0;
    if (failed != 0)
        return SIDESTEP_OK;
    if (is_sent) {
        TRY(broadcast_buffer_all(comm, &pages, err));
        if (comm->rank != 0)
            status = reader_take_chunks(r, pages.bytes, pages.length, o->state, o->all_names, err);
    }
    get_share(o, &begin, &end);
    if (status == SIDESTEP_OK)
        status = reader_check_sizes(r, begin, end, err);
    return comm_agree_all(comm, status, err);
}

/* A single rank that keeps all footers needs no list of their chunks. */
static bool takes_footers(const struct open_call *o)
{
    return o->engine->comm.size == 1 && (*o->reader)->file_count <= READER_MAX_FOOTERS;
}

static enum sidestep_status open_needed_all(struct open_call *o, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;
    bool taken = false;

    TRY(broadcast_manifest_all(o, err));
    TRY(take_index_all(o, &taken, err));
    if (takes_footers(o))
        status = reader_take_footers(*o->reader, err);
    else if (!taken)
        status = take_listed_all(o, err);
    if (status == SIDESTEP_OK)
        status = load_plan_build(&(*o->reader)->metadata, o->state, o->all_names, o->plan, err);
    if (status == SIDESTEP_OK)
        status = admit_chunks(o, err);
    return comm_agree_all(&o->engine->comm, status, err);
}

/* ---- what a damaged file means */

/* The hash of the .metadata that this rank sees now; 0: it sees none. */
static uint64_t hash_seen_metadata(struct open_call *o)
{
    OWNED_DIR *dir = NULL;
    struct store *store = NULL;
    uint8_t sha256[HASH_SHA256_BYTES];
    uint64_t bytes, seen = 0;

    if (engine_find_store(o->engine, o->path, &store, NULL) == SIDESTEP_OK &&
        store_dir_open(store, NULL, o->path, &dir, NULL) == SIDESTEP_OK &&
        small_file_hash(dir, FILE_NAME_METADATA, 0, DCP_METADATA_MAX_BYTES, &bytes, sha256, NULL) ==
            SIDESTEP_OK)
        memcpy(&seen, sha256, sizeof(seen));
    return seen;
}

/* A rank found damage. Find out whether the checkpoint was replaced, or the ranks see different
 * storage. ${*again}: try again. */
static enum sidestep_status judge_damage_all(struct open_call *o, uint64_t opened, unsigned attempt,
                                             bool *again, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    uint64_t seen[2];

    seen[0] = hash_seen_metadata(o);
    seen[1] = ~seen[0];
    if (comm_reduce_max_all(&o->engine->comm, seen, 2, &why) != SIDESTEP_OK)
        return error_copy(err, &why);
    bool is_same = seen[0] == ~seen[1];
    *again = attempt + 1 < (is_same ? OPEN_TRIES : OPEN_DISAGREE_TRIES) &&
             !(is_same && seen[0] == opened);
    if (is_same)
        return SIDESTEP_ECORRUPT;
    if (!*again)
        return FAIL(err, SIDESTEP_EDISAGREE,
                    "'%s' is not the same checkpoint on all ranks: is it on shared storage?",
                    o->path);
    o->engine->clock->sleep_ms(o->engine->clock, 100u << attempt);
    return SIDESTEP_ECORRUPT;
}

static enum sidestep_status open_once_all(struct open_call *o, struct announcement *announced,
                                          struct sidestep_error *err)
{
    struct comm *comm = &o->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;

    if (comm->rank == 0)
        status = open_on_rank_0(o, announced, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, announced, sizeof(*announced), 0, err));
    return announced->is_listed != 0 ? open_needed_all(o, err) : open_each_all(o, err);
}

enum sidestep_status open_and_plan_all(struct sidestep_engine *engine, const char *path,
                                       uint32_t flags, struct sidestep_state_dict *state,
                                       bool all_names, struct reader **reader,
                                       struct load_plan *plan, struct sidestep_error *err)
{
    struct open_call o = {engine, path, flags | READER_SHARED_LOCK, state, all_names, reader, plan};
    enum sidestep_status status = SIDESTEP_OK;
    bool again = true;

    for (unsigned attempt = 0; again; attempt++) {
        struct announcement announced = {0};
        again = false;
        status = open_once_all(&o, &announced, err);
        if (status == SIDESTEP_OK)
            return SIDESTEP_OK;
        if (announced.is_listed != 0 && status == SIDESTEP_ECORRUPT)
            status = judge_damage_all(&o, announced.metadata_hash, attempt, &again, err);
        load_plan_release(plan);
        reader_close(reader);
    }
    return status;
}
