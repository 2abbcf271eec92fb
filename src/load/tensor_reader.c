/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_reader.c -- reads row-major byte ranges of tensors; see tensor_reader.h. */
#include "load/tensor_reader.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "load/fetch_item.h"
#include "load/chunk_sources.h"
#include "model/model.h"
#include "snapshot/snapshot.h"

#define PADDING_BYTES ((uint64_t)1 << 20) /* padding to whole pages, and read-ahead */
#define READ_AHEAD_BYTES ((uint64_t)512 << 10)
#define PAGE_BYTES ((uint64_t)4096)

/* The read buffer of one thread. */
struct read_buffer {
    struct read_buffer *next;
    struct pool memory;
    const struct reader_file *file; /* ${memory} has bytes [begin, end) of this file */
    uint64_t begin;
    uint64_t end;
};

struct tensor_reader {
    struct reader *reader;
    struct chunk_sources sources;
    struct read_buffer *buffers;
    unsigned buffer_count;
    _Atomic uint64_t bytes_read;
    struct {
        struct lock lock LOCK_KIND(TENSOR_READER);
        struct lock_condition changed;
        struct read_buffer *free GUARDED_BY(&lock);
        uint64_t cached_bytes GUARDED_BY(&lock);
        uint64_t uses GUARDED_BY(&lock); /* of decoded chunks */
    } shared;
};

/* ---- making and freeing */

static enum sidestep_status make_buffers(struct tensor_reader *t, unsigned buffers,
                                         struct sidestep_error *err)
{
    lock_alone(&t->shared.lock);
    t->buffers = memory_new(buffers, sizeof(*t->buffers));
    if (t->buffers == NULL)
        return FAIL_NOMEM(err, buffers * sizeof(*t->buffers));
    t->buffer_count = buffers;
    for (unsigned i = 0; i < buffers; i++) {
        TRY(pool_reserve(&t->buffers[i].memory, TENSOR_READER_REQUEST_BYTES + PADDING_BYTES, NULL,
                         err));
        t->buffers[i].next = t->shared.free;
        t->shared.free = &t->buffers[i];
    }
    return SIDESTEP_OK;
}

enum sidestep_status tensor_reader_open(struct reader *reader, const bool *wanted, unsigned buffers,
                                        struct tensor_reader **out, struct sidestep_error *err)
{
    struct tensor_reader *t = memory_new(1, sizeof(*t));

    *out = NULL;
    if (t == NULL)
        return FAIL_NOMEM(err, sizeof(*t));
    t->reader = reader;
    lock_init(&t->shared.lock, LOCK_TENSOR_READER);
    lock_condition_init(&t->shared.changed);
    enum sidestep_status status = chunk_sources_find(reader, wanted, &t->sources, err);
    if (status == SIDESTEP_OK)
        status = make_buffers(t, buffers, err);
    if (status == SIDESTEP_OK)
        *out = t;
    else
        tensor_reader_free(&t);
    return status;
}

void tensor_reader_free(struct tensor_reader **out)
{
    struct tensor_reader *t = *out;

    if (t == NULL)
        return;
    *out = NULL;
    for (unsigned i = 0; i < t->buffer_count; i++)
        pool_release(&t->buffers[i].memory);
    lock_condition_destroy(&t->shared.changed);
    lock_destroy(&t->shared.lock);
    free(t->buffers);
    chunk_sources_release(&t->sources);
    free(t);
}

uint64_t tensor_reader_bytes_read(const struct tensor_reader *t)
{
    return atomic_load(&t->bytes_read);
}

/* ---- reading */

static struct read_buffer *acquire_buffer(struct tensor_reader *t)
{
    lock_acquire(&t->shared.lock);
    while (t->shared.free == NULL)
        lock_wait(&t->shared.lock, &t->shared.changed);
    struct read_buffer *buffer = t->shared.free;
    t->shared.free = buffer->next;
    lock_release(&t->shared.lock);
    return buffer;
}

static void return_buffer(struct tensor_reader *t, struct read_buffer *buffer)
{
    lock_acquire(&t->shared.lock);
    buffer->next = t->shared.free;
    t->shared.free = buffer;
    lock_wake_all(&t->shared.changed);
    lock_release(&t->shared.lock);
}

/* Make bytes [offset, offset + length) of ${file} available in the buffer.  Reads whole pages, as
 * O_DIRECT requires.  Small reads are extended, because small tensors are stored next to each
 * other. */
static enum sidestep_status fill_buffer(struct tensor_reader *t, struct read_buffer *buffer,
                                        const struct reader_file *file, uint64_t offset,
                                        uint64_t length, const uint8_t **bytes,
                                        struct sidestep_error *err)
{
    assert(length <= TENSOR_READER_REQUEST_BYTES);
    if (buffer->file != file || offset < buffer->begin || offset + length > buffer->end) {
        uint64_t begin = round_down(offset, PAGE_BYTES);
        uint64_t end = round_up(offset + length, PAGE_BYTES);

        end = min_u64(max_u64(end, begin + READ_AHEAD_BYTES), file->source.length);
        buffer->file = NULL;
        TRY(WRAP(source_read(&file->source, buffer->memory.bytes, end - begin, begin, err), err,
                 "file '%s'", file->name));
        buffer->file = file;
        buffer->begin = begin;
        buffer->end = end;
        atomic_fetch_add(&t->bytes_read, end - begin);
    }
    *bytes = buffer->memory.bytes + (offset - buffer->begin);
    return SIDESTEP_OK;
}

/* A byte range of a box, and the memory that it is read to. */
struct range_target {
    const struct box *box;
    uint64_t begin;
    uint8_t *to;
};

/* Copy bytes [begin, begin + length) of the chunk, which are at ${bytes}, as far as ${w} reaches.
 */
static void copy_to_target(const struct chunk_source *p, uint64_t begin, uint64_t length,
                           const uint8_t *bytes, const struct range_target *w)
{
    int64_t strides[SIDESTEP_MAX_NDIM];
    /* The box would begin at this address; only bytes of the range are written. */
    struct box_memory memory = {.box = *w->box,
                                .strides = strides,
                                .data = (void *)((uintptr_t)w->to - w->begin),
                                .item_bytes = sidestep_dtype_size(p->entry->dtype)};

    box_row_major_strides(w->box->ndim, w->box->lengths, strides);
    (void)box_transfer(&p->chunk->box, begin, length, (void *)(uintptr_t)bytes, &memory,
                       BOX_SCATTER);
}

/* Read data without block hashes. */
static enum sidestep_status read_without_blocks(struct tensor_reader *t, struct read_buffer *buffer,
                                                struct chunk_source *p, uint64_t first,
                                                uint64_t last, const struct range_target *w,
                                                struct sidestep_error *err)
{
    struct chunk_storage *storage = p->storage;
    bool checks = storage != NULL && storage->has_crc;
    uint32_t crc = 0;

    for (uint64_t at = first, length; at < last; at += length) {
        const uint8_t *bytes = NULL;

        length = min_u64(last - at, TENSOR_READER_REQUEST_BYTES);
        TRY(fill_buffer(t, buffer, p->file, p->data_offset + at, length, &bytes, err));
        if (checks)
            crc = hash_crc32(crc, bytes, length);
        copy_to_target(p, at, length, bytes, w);
    }
    if (!checks)
        return SIDESTEP_OK;
    lock_acquire(&t->shared.lock);
    enum sidestep_status status = storage_crc_add(
        &storage->read_crcs, p->data_offset - storage->offset + first, last - first, crc, err);
    lock_release(&t->shared.lock);
    return status;
}

static enum sidestep_status read_blocks(struct tensor_reader *t, struct read_buffer *buffer,
                                        struct chunk_source *p, uint64_t first, uint64_t last,
                                        const struct range_target *w, struct sidestep_error *err)
{
    const struct reader_item item = {
        .file = p->file,
        .data_offset = p->data_offset,
        .data_bytes = p->data_bytes,
        .blocks = p->blocks,
        .footer = reader_find_footer_item(p->file, p->chunk->storage.offset)};
    uint64_t from = round_down(first, HASH_BLOCK_BYTES);
    uint64_t to = min_u64(round_up(last, HASH_BLOCK_BYTES), p->data_bytes);

    for (uint64_t at = from, length; at < to; at += length) {
        const uint8_t *bytes = NULL;

        length = min_u64(to - at, TENSOR_READER_REQUEST_BYTES);
        TRY(fill_buffer(t, buffer, p->file, p->data_offset + at, length, &bytes, err));
        enum sidestep_status status =
            reader_check_blocks(&item, at / HASH_BLOCK_BYTES, bytes, length, err);
        if (status != SIDESTEP_OK) {
            reader_blame(err, p->entry->name, p->file);
            return status;
        }
        uint64_t begin = max_u64(at, first), end = min_u64(at + length, last);
        copy_to_target(p, begin, end - begin, bytes + (begin - at), w);
    }
    return SIDESTEP_OK;
}

/* ---- chunks that are decoded completely */

/* Chunks that are decoded in one pass. */
struct decoding {
    struct chunk_source **sources;
    struct reader_item *items;
    struct load_plan_chunk *chunks;
    struct state_entry *targets;
    struct state_entry **target_of;
    int64_t (*strides)[SIDESTEP_MAX_NDIM];
    size_t count;
};

static enum sidestep_status prepare(struct arena *arena, struct decoding *d,
                                    struct sidestep_error *err)
{
    d->items = arena_new(arena, d->count, sizeof(*d->items));
    d->chunks = arena_new(arena, d->count, sizeof(*d->chunks));
    d->targets = arena_new(arena, d->count, sizeof(*d->targets));
    d->target_of = arena_new(arena, d->count, sizeof(*d->target_of));
    d->strides = arena_new(arena, d->count, sizeof(*d->strides));
    if (d->items == NULL || d->chunks == NULL || d->targets == NULL || d->target_of == NULL ||
        d->strides == NULL)
        return FAIL_NOMEM(err, d->count * sizeof(*d->items));
    for (size_t i = 0; i < d->count; i++) {
        const struct chunk_source *p = d->sources[i];

        box_row_major_strides(p->chunk->box.ndim, p->chunk->box.lengths, d->strides[i]);
        d->items[i] = *p->decode_item;
        d->target_of[i] = &d->targets[i];
        d->targets[i] = (struct state_entry){.name = p->entry->name,
                                             .dtype = p->entry->dtype,
                                             .ndim = p->entry->ndim,
                                             .shape = p->entry->shape,
                                             .box = p->chunk->box,
                                             .strides = d->strides[i]};
        d->chunks[i] = (struct load_plan_chunk){.entry = p->entry,
                                                .storage = &p->chunk->storage,
                                                .box = p->chunk->box,
                                                .target_count = 1,
                                                .targets = &d->target_of[i]};
    }
    return SIDESTEP_OK;
}

static enum sidestep_status decode_into(struct decoding *d, struct sidestep_error *err)
{
    const struct fetch_views views = {.items = d->items, .chunks = d->chunks, .count = d->count};

    for (size_t i = 0; i < d->count; i++) {
        uint64_t bytes = chunk_source_decoded_bytes(d->sources[i]);

        TRY(reader_item_check_not_sparse(&d->items[i], bytes, err));
        d->targets[i].data = memory_new(bytes, 1);
        if (d->targets[i].data == NULL)
            return FAIL_NOMEM(err, bytes);
    }
    return d->count > 1 ? fetch_views(&views, err)
                        : fetch_item(&d->items[0], &d->chunks[0], NULL, err);
}

/* Decode to ${decoded}, one malloc'ed buffer per source; none after an error. */
static enum sidestep_status decode(struct chunk_source **sources, size_t count, uint8_t **decoded,
                                   struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct decoding d = {.sources = sources, .count = count};

    TRY(prepare(&arena, &d, err));
    enum sidestep_status status = decode_into(&d, err);
    for (size_t i = 0; i < count; i++) {
        if (status != SIDESTEP_OK)
            free(d.targets[i].data);
        else
            decoded[i] = d.targets[i].data;
    }
    if (status != SIDESTEP_OK)
        reader_blame(err, sources[0]->entry->name, sources[0]->file);
    return status;
}

/* Locked: free the least recently used buffers, except that of ${keep}, until the cache is within
 * its limit. */
static void shrink_cache(struct tensor_reader *t, const struct chunk_source *keep)
    REQUIRES(&t->shared.lock)
{
    while (t->shared.cached_bytes > TENSOR_READER_CACHE_BYTES) {
        struct chunk_source *oldest = NULL;

        for (size_t i = 0; i < t->sources.count; i++) {
            struct chunk_source *p = &t->sources.sources[i];
            if (p != keep && p->decoded != NULL && p->pins == 0 &&
                (oldest == NULL || p->last_use < oldest->last_use))
                oldest = p;
        }
        if (oldest == NULL)
            return;
        assert(chunk_source_decoded_bytes(oldest) <= t->shared.cached_bytes);
        free(TAKE(oldest->decoded));
        t->shared.cached_bytes -= chunk_source_decoded_bytes(oldest);
    }
}

/* Locked: choose ${p} and the sources that are decoded with it. */
static size_t choose_sources(struct chunk_source *p, struct chunk_source **chosen)
{
    size_t count = 0;

    chosen[count++] = p;
    for (size_t i = 0; p->decode_together && i < p->storage->count; i++) {
        struct chunk_source *other = p->storage->sources[i];

        if (other != p && other->decoded == NULL && !other->decoding)
            chosen[count++] = other;
    }
    return count;
}

/* Locked: decode ${p} and the sources that are decoded with it.  Releases the lock while it
 * decodes. */
static enum sidestep_status decode_with_others(struct tensor_reader *t, struct chunk_source *p,
                                               struct sidestep_error *err) REQUIRES(&t->shared.lock)
{
    size_t most = p->decode_together ? p->storage->count : 1;
    OWNED struct chunk_source **chosen = memory_new(most, sizeof(*chosen));
    OWNED uint8_t **decoded = memory_new(most, sizeof(*decoded));

    assert(!p->decoding && p->decoded == NULL);
    if (chosen == NULL || decoded == NULL)
        return FAIL_NOMEM(err, most * sizeof(*chosen));
    size_t count = choose_sources(p, chosen);
    for (size_t i = 0; i < count; i++)
        chosen[i]->decoding = true;
    lock_release(&t->shared.lock);
    enum sidestep_status status = decode(chosen, count, decoded, err);
    lock_acquire(&t->shared.lock);
    for (size_t i = 0; i < count; i++) {
        chosen[i]->decoding = false;
        chosen[i]->decoded = decoded[i];
        chosen[i]->last_use = ++t->shared.uses;
        if (decoded[i] != NULL)
            t->shared.cached_bytes += chunk_source_decoded_bytes(chosen[i]);
    }
    if (p->storage != NULL && !p->decode_item->has_crc)
        p->storage->has_unrecorded_reads = true;
    atomic_fetch_add(&t->bytes_read,
                     p->storage != NULL ? p->decode_item->storage_bytes : p->chunk->storage.length);
    lock_wake_all(&t->shared.changed);
    return status;
}

/* Locked: make the decoded bytes of ${p} available.  The first thread that needs them decodes. */
static enum sidestep_status get_decoded(struct tensor_reader *t, struct chunk_source *p,
                                        struct sidestep_error *err) REQUIRES(&t->shared.lock)
{
    enum sidestep_status status = SIDESTEP_OK;

    while (p->decoding)
        lock_wait(&t->shared.lock, &t->shared.changed);
    if (p->decoded == NULL)
        status = decode_with_others(t, p, err);
    p->last_use = ++t->shared.uses;
    shrink_cache(t, p);
    return status;
}

static enum sidestep_status read_whole(struct tensor_reader *t, struct chunk_source *p,
                                       uint64_t first, uint64_t last, const struct range_target *w,
                                       struct sidestep_error *err)
{
    lock_acquire(&t->shared.lock);
    enum sidestep_status status = get_decoded(t, p, err);
    p->pins++;
    lock_release(&t->shared.lock);
    if (status == SIDESTEP_OK)
        copy_to_target(p, first, last - first, p->decoded + first, w);
    lock_acquire(&t->shared.lock);
    assert(p->pins != 0);
    p->pins--;
    lock_release(&t->shared.lock);
    return status;
}

/* ---- the public functions */

static enum sidestep_status read_source(struct tensor_reader *t, struct read_buffer *buffer,
                                        struct chunk_source *p, uint64_t end,
                                        const struct range_target *w, struct sidestep_error *err)
{
    uint64_t first, last;

    if (!box_range(w->box, w->begin, end, sidestep_dtype_size(p->entry->dtype), &p->chunk->box,
                   &first, &last))
        return SIDESTEP_OK;
    if (p->decode_item != NULL)
        return read_whole(t, p, first, last, w, err);
    return p->blocks != NULL ? read_blocks(t, buffer, p, first, last, w, err)
                             : read_without_blocks(t, buffer, p, first, last, w, err);
}

enum sidestep_status tensor_reader_read(struct tensor_reader *t, size_t entry,
                                        const struct box *box, uint64_t begin, uint64_t bytes,
                                        uint8_t *to, struct sidestep_error *err)
{
    const struct range_target target = {.box = box, .begin = begin, .to = to};
    size_t count = t->reader->metadata.entries[entry].chunk_count;
    struct chunk_source *sources = &t->sources.sources[t->sources.first_source[entry]];
    struct read_buffer *buffer = acquire_buffer(t);
    enum sidestep_status status = SIDESTEP_OK;

    for (size_t i = 0; i < count && status == SIDESTEP_OK; i++)
        status = read_source(t, buffer, &sources[i], begin + bytes, &target, err);
    return_buffer(t, buffer);
    return status;
}

/* For reading the bytes of a storage whose CRC is not known: they were not read, or were read
 * without recording it. */
struct unrecorded_read {
    struct tensor_reader *t;
    struct read_buffer *buffer;
    const struct chunk_storage *storage;
};

static enum sidestep_status add_unrecorded_crc(void *context, uint64_t begin, uint64_t bytes,
                                               uint32_t *crc, struct sidestep_error *err)
{
    const struct unrecorded_read *read = context;

    for (uint64_t at = begin, length; at < begin + bytes; at += length) {
        const uint8_t *data = NULL;

        length = min_u64(begin + bytes - at, TENSOR_READER_REQUEST_BYTES);
        TRY(fill_buffer(read->t, read->buffer, read->storage->file, read->storage->offset + at,
                        length, &data, err));
        *crc = hash_crc32(*crc, data, length);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_storage(struct tensor_reader *t, struct chunk_storage *storage,
                                          struct sidestep_error *err)
{
    struct unrecorded_read read = {.t = t, .buffer = acquire_buffer(t), .storage = storage};
    uint32_t crc;
    enum sidestep_status status = storage_crc_finish(&storage->read_crcs, storage->bytes,
                                                     add_unrecorded_crc, &read, &crc, err);

    return_buffer(t, read.buffer);
    if (status == SIDESTEP_OK && crc != storage->crc)
        status = FAIL(err, SIDESTEP_ECORRUPT,
                      "'%s' in file '%s': the data has CRC32 %08x, the archive says %08x",
                      display_name(storage->sources[0]->entry->name).text, storage->file->name, crc,
                      storage->crc);
    return status;
}

enum sidestep_status tensor_reader_finish(struct tensor_reader *t, struct sidestep_error *err)
{
    for (size_t i = 0; i < t->sources.storage_count; i++) {
        struct chunk_storage *storage = &t->sources.storages[i];

        if (storage->has_crc && (storage->read_crcs.count != 0 || storage->has_unrecorded_reads))
            TRY(check_storage(t, storage, err));
    }
    return reader_check_unchanged(t->reader, err);
}
