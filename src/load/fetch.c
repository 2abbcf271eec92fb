/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fetch.c -- splits a load plan into jobs, and reads them in file order; see fetch.h.
 *
 * Many jobs are in flight at a time (parallel_read.h).  There are three kinds:
 *   read        one byte range of a file, with whole hash blocks of items that sidestep wrote
 *   compressed  one byte range with whole chunks of a compressed item (compressed_item.h)
 *   item        one stored item that must be read completely: an object, an item that is
 *               compressed otherwise, or one that PyTorch wrote, whose CRC covers all of it
 */
#include "load/fetch.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "load/compressed_item.h"
#include "load/fetch_item.h"
#include "load/target.h"
#include "checkpoint/checkpoint.h"

/* Bytes [begin, end) of the data of chunk ${chunk}: whole blocks.  For a compressed item, of the
 * decoded data. */
struct piece {
    size_t chunk;
    uint64_t begin;
    uint64_t end;
    /* Set by set_places(), if the job has places. */
    uint8_t *direct; /* the address it is read to; NULL: it is read to the job's buffer */
    uint64_t at;     /* offset in that buffer */
};

struct job {
    bool whole_item;   /* an item job: ${chunk}, and those after it that are views of its storage */
    size_t view_count; /* chunks of an item job */
    bool is_compressed; /* a compressed job: one piece of a compressed item */
    size_t chunk;
    struct reader_file *file;
    uint64_t begin; /* offset in the file */
    uint64_t end;
    size_t first_piece;
    size_t piece_count;
    bool is_direct;     /* one piece of whole pages, which O_DIRECT reads into the target */
    size_t first_place; /* of a read from far away, see set_places() */
    size_t place_count;
    uint64_t rest_bytes;
};

struct fetch {
    struct reader *reader;
    const struct load_plan *plan;
    enum fetch_kind kind;
    bool direct;         /* whole pages, because O_DIRECT needs them */
    bool is_far;         /* the storage is far away, see FETCH_FAR_READ_BYTES */
    uint64_t read_bytes; /* of one request, at most */
    struct devices *devices;
    struct arena arena;
    struct reader_item *items;          /* per chunk of the plan; zeros: it is not fetched */
    struct compressed_item *compressed; /* the same; NULL: no item is compressed */
    struct compressed_item_decoders decoders;
    struct job *jobs;
    size_t job_count, job_capacity;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
    struct store_place *places;
    size_t place_count, place_capacity;
    uint8_t *needed; /* which blocks of the current chunk are needed */
    size_t needed_capacity;
    _Atomic uint64_t bytes_read;
    _Atomic bool failed;
    struct {
        struct lock lock LOCK_KIND(FETCH);
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
};

static enum sidestep_status add_job(struct fetch *f, const struct job *job,
                                    struct sidestep_error *err)
{
    TRY_GROW(f->jobs, f->job_capacity, f->job_count, err);
    f->jobs[f->job_count++] = *job;
    return SIDESTEP_OK;
}

/* The address in a target where the bytes of a piece lie exactly as they are stored; otherwise
 * NULL. */
static uint8_t *contiguous_target(const struct load_plan_chunk *chunk, const struct piece *piece)
{
    uint8_t *target = fetch_contiguous_target(chunk);

    return target != NULL ? target + piece->begin : NULL;
}

/* Can O_DIRECT read a piece into its target?  Then it is a job of its own. */
static bool can_read_directly(const struct fetch *f, const struct piece *piece)
{
    uint64_t at = f->items[piece->chunk].data_offset + piece->begin;
    const uint8_t *target = contiguous_target(&f->plan->chunks[piece->chunk], piece);

    return f->direct && !f->is_far && target != NULL &&
           ((uintptr_t)target | at | (piece->end - piece->begin)) % FETCH_PAGE_BYTES == 0;
}

/* How many bytes from ${begin} on the last job can read as well. */
static uint64_t room_in_last(const struct fetch *f, const struct reader_file *file, uint64_t begin)
{
    const struct job *last = f->job_count != 0 ? &f->jobs[f->job_count - 1] : NULL;

    if (last == NULL || last->whole_item || last->is_compressed || last->is_direct ||
        last->file != file || begin < last->end || begin - last->end > FETCH_MAX_GAP_BYTES ||
        begin - last->begin >= f->read_bytes)
        return 0;
    return f->read_bytes - (begin - last->begin);
}

static enum sidestep_status append_piece(struct fetch *f, const struct piece *piece,
                                         struct sidestep_error *err)
{
    TRY_RESERVE(&f->arena, f->pieces, f->piece_capacity, f->piece_count + 1, err);
    f->pieces[f->piece_count++] = *piece;
    return SIDESTEP_OK;
}

/* Add a piece to the previous job, if they are close together; otherwise as a job of its own. */
static enum sidestep_status add_piece(struct fetch *f, const struct piece *piece,
                                      struct sidestep_error *err)
{
    const struct reader_item *item = &f->items[piece->chunk];
    uint64_t begin = item->data_offset + piece->begin, end = item->data_offset + piece->end;
    bool is_direct = can_read_directly(f, piece);

    TRY(append_piece(f, piece, err));
    if (!is_direct && end - begin <= room_in_last(f, item->file, begin)) {
        f->jobs[f->job_count - 1].end = end;
        f->jobs[f->job_count - 1].piece_count++;
        return SIDESTEP_OK;
    }
    struct job job = {.file = item->file,
                      .begin = begin,
                      .end = end,
                      .first_piece = f->piece_count - 1,
                      .piece_count = 1,
                      .is_direct = is_direct};
    return add_job(f, &job, err);
}

/* Set f->needed: which blocks of a chunk its targets need. */
static enum sidestep_status find_needed(struct fetch *f, const struct load_plan_chunk *chunk,
                                        uint64_t blocks, struct sidestep_error *err)
{
    if (blocks > f->needed_capacity) {
        uint8_t *needed = memory_resize(f->needed, 2 * blocks, 1);
        if (needed == NULL)
            return FAIL_NOMEM(err, 2 * blocks);
        f->needed = needed;
        f->needed_capacity = 2 * blocks;
    }
    memset(f->needed, 0, blocks);
    for (size_t t = 0; t < chunk->target_count; t++)
        box_mark_blocks(&chunk->box, &chunk->targets[t]->box,
                        sidestep_dtype_size(chunk->entry->dtype), HASH_BLOCK_BYTES, f->needed);
    return SIDESTEP_OK;
}

/* How many blocks, from byte ${begin} of a file on, one request reads: as many as fit into the last
 * request, so that requests are few and large. */
static uint64_t count_blocks(const struct fetch *f, const struct reader_file *file, uint64_t begin)
{
    uint64_t room = room_in_last(f, file, begin);

    return (room >= HASH_BLOCK_BYTES ? room : f->read_bytes) / HASH_BLOCK_BYTES;
}

static enum sidestep_status add_blocks(struct fetch *f, size_t c, struct sidestep_error *err)
{
    const struct reader_item *item = &f->items[c];
    uint64_t blocks = hash_block_count(item->data_bytes);

    TRY(find_needed(f, &f->plan->chunks[c], blocks, err));
    for (uint64_t b = 0; b < blocks;) {
        uint64_t end = b;
        uint64_t most = count_blocks(f, item->file, item->data_offset + b * HASH_BLOCK_BYTES);
        while (end < blocks && f->needed[end] && end - b < most)
            end++;
        if (end == b) {
            b++;
            continue;
        }
        /* The last block seldom has whole pages, so it gets a piece of its own.  O_DIRECT may read
         * the blocks before it. */
        if (end == blocks && end - b > 1 && !f->is_far)
            end--;
        struct piece piece = {.chunk = c,
                              .begin = b * HASH_BLOCK_BYTES,
                              .end = min_u64(end * HASH_BLOCK_BYTES, item->data_bytes)};
        TRY(add_piece(f, &piece, err));
        b = end;
    }
    return SIDESTEP_OK;
}

/* Add needed chunks [first, end) of compressed item ${c}, in jobs of several chunks each. */
static enum sidestep_status add_run(struct fetch *f, size_t c, uint64_t first, uint64_t end,
                                    struct sidestep_error *err)
{
    const struct compressed_item *compressed = &f->compressed[c];

    while (first < end) {
        struct job job = {
            .is_compressed = true, .file = compressed->item->file, .first_piece = f->piece_count};
        uint64_t last = compressed_item_next_range(compressed, first, end, &job.begin, &job.end);
        struct piece piece = {.chunk = c,
                              .begin = first * CODEC_CHUNK_BYTES,
                              .end = min_u64(last * CODEC_CHUNK_BYTES, compressed->raw.data_bytes)};
        job.piece_count = 1;
        TRY(append_piece(f, &piece, err));
        TRY(add_job(f, &job, err));
        first = last;
    }
    return SIDESTEP_OK;
}

/* Add the needed chunks of a compressed item.  ${*added} is false if
 * it must be read completely. */
static enum sidestep_status add_chunks(struct fetch *f, size_t c, bool *added,
                                       struct sidestep_error *err)
{
    const struct reader_item *item = &f->items[c];
    uint64_t count = codec_chunk_count(item->footer->raw_bytes);

    TRY(find_needed(f, &f->plan->chunks[c], count, err));
    if (f->compressed == NULL)
        f->compressed = arena_new(&f->arena, f->plan->count, sizeof(*f->compressed));
    if (f->compressed == NULL)
        return FAIL_NOMEM(err, f->plan->count * sizeof(*f->compressed));
    bool all = memchr(f->needed, 0, count) == NULL;
    TRY(compressed_item_open(item, all, &f->compressed[c], err));
    *added = f->compressed[c].chunks != NULL;
    for (uint64_t b = 0; *added && b < count;) {
        uint64_t end = b;
        while (end < count && f->needed[end])
            end++;
        TRY(add_run(f, c, b, end, err));
        b = end + (end == b);
    }
    return SIDESTEP_OK;
}

/* Does item ${c} consist of blocks that can be read separately?  Also true for an item without a
 * hash, of which only the needed bytes are read. */
static bool has_blocks(const struct fetch *f, size_t c)
{
    const struct reader_item *item = &f->items[c];

    return (item->blocks != NULL || item->is_plain) && item->ranged &&
           !f->plan->chunks[c].entry->is_object;
}

/* Add a job for all of item ${c}.  Chunks are in file order, so views of one storage are adjacent,
 * and share a job. */
static enum sidestep_status add_item_job(struct fetch *f, size_t c, struct sidestep_error *err)
{
    struct job *last = f->job_count != 0 ? &f->jobs[f->job_count - 1] : NULL;
    struct job job = {.whole_item = true, .chunk = c, .view_count = 1, .file = f->items[c].file};

    if (last == NULL || !last->whole_item || last->chunk + last->view_count != c ||
        !fetch_can_merge_views(&f->items[last->chunk], &f->items[c]))
        return add_job(f, &job, err);
    last->view_count++;
    return SIDESTEP_OK;
}

static enum sidestep_status add_place(struct fetch *f, struct job *job, void *memory,
                                      uint64_t bytes, struct sidestep_error *err)
{
    if (bytes == 0)
        return SIDESTEP_OK;
    TRY_GROW(f->places, f->place_capacity, f->place_count, err);
    f->places[f->place_count++] = (struct store_place){memory, bytes};
    job->place_count++;
    if (memory == NULL)
        job->rest_bytes += bytes;
    return SIDESTEP_OK;
}

/* Choose where the bytes of ${job} are read to: large pieces directly to their tensors, the others
 * and the gaps to a buffer. */
static enum sidestep_status set_places(struct fetch *f, struct job *job, struct sidestep_error *err)
{
    uint64_t at = job->begin;

    job->first_place = f->place_count;
    for (size_t p = job->first_piece; p < job->first_piece + job->piece_count; p++) {
        struct piece *piece = &f->pieces[p];
        uint64_t begin = f->items[piece->chunk].data_offset + piece->begin;
        uint64_t bytes = piece->end - piece->begin;

        TRY(add_place(f, job, NULL, begin - at, err));
        if (bytes >= FETCH_FAR_DIRECT_BYTES)
            piece->direct = contiguous_target(&f->plan->chunks[piece->chunk], piece);
        piece->at = job->rest_bytes;
        TRY(add_place(f, job, piece->direct, bytes, err));
        at = begin + bytes;
    }
    return SIDESTEP_OK;
}

/* A file that is not kept open is opened for each read, so its jobs are read to one buffer. */
static bool has_places(const struct job *job)
{
    return !job->whole_item && !job->is_compressed && job->file->file != NULL;
}

static enum sidestep_status set_all_places(struct fetch *f, struct sidestep_error *err)
{
    for (size_t i = 0; i < f->job_count; i++)
        if (has_places(&f->jobs[i]))
            TRY(set_places(f, &f->jobs[i], err));
    return SIDESTEP_OK;
}

static enum sidestep_status make_jobs(struct fetch *f, struct sidestep_error *err)
{
    const struct reader_item *before = NULL;

    for (size_t c = 0; c < f->plan->count; c++) {
        const struct load_plan_chunk *chunk = &f->plan->chunks[c];
        struct reader_item *item = &f->items[c];

        if (f->kind == (chunk->entry->is_object ? FETCH_TENSORS : FETCH_OBJECTS))
            continue;
        TRY(reader_locate_item(f->reader, chunk->entry, chunk->storage, &chunk->box, before, item,
                               err));
        before = item;
        bool added = has_blocks(f, c);
        if (added)
            TRY(add_blocks(f, c, err));
        else if (item->footer != NULL && item->transform != NULL && !chunk->entry->is_object)
            TRY(add_chunks(f, c, &added, err));
        if (!added)
            TRY(add_item_job(f, c, err));
    }
    return f->is_far ? set_all_places(f, err) : SIDESTEP_OK;
}

static enum sidestep_status check_piece(struct fetch *f, const struct piece *piece,
                                        const uint8_t *bytes, struct sidestep_error *err)
{
    const struct reader_item *item = &f->items[piece->chunk];

    if (item->blocks == NULL || f->reader->skips_hashes)
        return SIDESTEP_OK;
    enum sidestep_status status = reader_check_blocks(item, piece->begin / HASH_BLOCK_BYTES, bytes,
                                                      piece->end - piece->begin, err);
    if (status != SIDESTEP_OK)
        reader_blame(err, item->footer->name, item->file);
    return status;
}

static enum sidestep_status write_piece(struct fetch *f, const struct piece *piece, uint8_t *bytes,
                                        int32_t *copying, struct sidestep_error *err)
{
    const struct load_plan_chunk *chunk = &f->plan->chunks[piece->chunk];
    uint64_t length = piece->end - piece->begin;

    TRY(check_piece(f, piece, bytes, err));
    uint8_t *plain = contiguous_target(chunk, piece);
    if (plain != NULL) {
        if (plain != bytes)
            nontemporal_copy(plain, bytes, length);
        return SIDESTEP_OK;
    }
    for (size_t t = 0; t < chunk->target_count; t++)
        TRY(target_submit_bytes(f->devices, &chunk->box, piece->begin, length, bytes,
                                chunk->targets[t], copying, err));
    return SIDESTEP_OK;
}

/* ${*copying}: see target.h. */
static enum sidestep_status write_job(struct fetch *f, const struct job *job, uint8_t *bytes,
                                      int32_t *copying, struct sidestep_error *err)
{
    const struct piece *pieces = &f->pieces[job->first_piece];

    atomic_fetch_add(&f->bytes_read, job->end - job->begin);
    for (size_t p = 0; p < job->piece_count; p++) {
        uint64_t at = f->items[pieces[p].chunk].data_offset + pieces[p].begin - job->begin;
        if (job->place_count != 0)
            at = pieces[p].at;
        TRY(write_piece(f, &pieces[p], pieces[p].direct != NULL ? pieces[p].direct : bytes + at,
                        copying, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status decode_job(struct fetch *f, const struct job *job, const uint8_t *bytes,
                                       struct sidestep_error *err)
{
    const struct piece *piece = &f->pieces[job->first_piece];
    const struct load_plan_chunk *chunk = &f->plan->chunks[piece->chunk];
    struct fetch_sink sink = {.chunk = chunk, .devices = f->devices};
    struct reader_sink place = fetch_sink_as_reader_sink(&sink);

    atomic_fetch_add(&f->bytes_read, job->end - job->begin);
    enum sidestep_status status = compressed_item_decode(
        &f->compressed[piece->chunk], &f->decoders, piece->begin / CODEC_CHUNK_BYTES,
        codec_chunk_count(piece->end), bytes, &place, err);
    if (status != SIDESTEP_OK)
        reader_blame(err, chunk->entry->name, job->file);
    return status;
}

static enum sidestep_status run_item(struct fetch *f, const struct job *job,
                                     struct sidestep_error *err)
{
    const struct load_plan_chunk *chunk = &f->plan->chunks[job->chunk];
    const struct reader_item *item = &f->items[job->chunk];
    const struct fetch_views views = {
        .items = item, .chunks = chunk, .count = job->view_count, .devices = f->devices};
    enum sidestep_status status =
        job->view_count > 1 ? fetch_views(&views, err) : fetch_item(item, chunk, f->devices, err);

    atomic_fetch_add(&f->bytes_read, item->bytes);
    if (status != SIDESTEP_OK)
        reader_blame(err, chunk->entry->name, item->file);
    return status;
}

/* ---- callbacks of parallel_read.h */

static struct parallel_read_range get_job_range(void *context, size_t i)
{
    const struct fetch *f = context;
    const struct job *job = &f->jobs[i];

    if (job->whole_item)
        return (struct parallel_read_range){0};
    const struct piece *first = &f->pieces[job->first_piece];
    if (job->place_count != 0)
        return (struct parallel_read_range){.file = job->file,
                                            .begin = job->begin,
                                            .end = job->end,
                                            .places = &f->places[job->first_place],
                                            .place_count = job->place_count,
                                            .rest_bytes = job->rest_bytes};
    return (struct parallel_read_range){
        .file = job->file,
        .begin = job->begin,
        .end = job->end,
        .target = job->piece_count == 1 && !job->is_compressed
                      ? contiguous_target(&f->plan->chunks[first->chunk], first)
                      : NULL};
}

/* For an error message: the first tensor that a read job fills. */
static const char *name_of_job(const struct fetch *f, const struct job *job)
{
    return f->plan->chunks[f->pieces[job->first_piece].chunk].entry->name;
}

static int32_t consume_job(void *context, size_t i, uint8_t *bytes, enum sidestep_status status,
                           const struct sidestep_error *read_error)
{
    struct fetch *f = context;
    const struct job *job = &f->jobs[i];
    struct sidestep_error why = {0};
    int32_t copying = -1;

    if (atomic_load(&f->failed))
        return copying;
    if (status != SIDESTEP_OK) {
        why = *read_error;
        if (bytes == NULL)
            error_wrap(&why, "copy tensor '%s' and others to a device", name_of_job(f, job));
        error_wrap(&why, "file '%s'", job->file->name);
    } else if (job->whole_item) {
        status = run_item(f, job, &why);
    } else if (job->is_compressed) {
        status = decode_job(f, job, bytes, &why);
    } else {
        status = write_job(f, job, bytes, &copying, &why);
    }
    if (status == SIDESTEP_OK)
        return copying;
    lock_acquire(&f->shared.lock);
    if (!atomic_exchange(&f->failed, true))
        f->shared.err = why;
    lock_release(&f->shared.lock);
    return copying;
}

static bool has_failed(void *context)
{
    return atomic_load(&((struct fetch *)context)->failed);
}

static enum sidestep_status fetch_with(struct fetch *f, struct workers *workers,
                                       struct sidestep_error *err)
{
    f->items = arena_new(&f->arena, f->plan->count, sizeof(*f->items));
    if (f->items == NULL)
        return FAIL_NOMEM(err, f->plan->count * sizeof(*f->items));
    TRY_RESERVE(&f->arena, f->pieces, f->piece_capacity, f->plan->count, err); /* mostly enough */
    TRY(make_jobs(f, err));
    const struct parallel_read reads = {.kind = &f->reader->queue,
                                        .store = f->reader->store,
                                        .direct = f->direct,
                                        .count = f->job_count,
                                        .context = f,
                                        .describe = get_job_range,
                                        .use = consume_job,
                                        .stopped = has_failed,
                                        .devices = f->devices};
    TRY(parallel_read_run(&reads, workers, err));
    if (!atomic_load(&f->failed))
        return SIDESTEP_OK;
    lock_alone(&f->shared.lock);
    error_copy(err, &f->shared.err);
    return (enum sidestep_status)f->shared.err.status;
}

enum sidestep_status fetch_run(struct reader *reader, const struct load_plan *plan,
                               enum fetch_kind kind, struct workers *workers,
                               struct devices *devices, uint64_t *bytes_read,
                               struct sidestep_error *err)
{
    bool is_far = store_reads(reader->store) != 0;
    struct fetch f = {.reader = reader,
                      .plan = plan,
                      .kind = kind,
                      .direct = (reader->flags & STORE_DIRECT) != 0,
                      .is_far = is_far,
                      .read_bytes = is_far ? FETCH_FAR_READ_BYTES : FETCH_READ_BYTES,
                      .devices = devices};

    lock_init(&f.shared.lock, LOCK_FETCH);
    compressed_item_decoders_init(&f.decoders);
    enum sidestep_status status = fetch_with(&f, workers, err);
    *bytes_read = atomic_load(&f.bytes_read);
    lock_destroy(&f.shared.lock);
    compressed_item_decoders_release(&f.decoders);
    for (size_t c = 0; f.compressed != NULL && c < plan->count; c++)
        compressed_item_close(&f.compressed[c]);
    arena_release(&f.arena);
    free(f.jobs);
    free(f.places);
    free(f.needed);
    return status;
}
