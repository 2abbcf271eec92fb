/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_reader.c -- see tensor_reader.h. */
#include "load/tensor_reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "load/fetch_item.h"
#include "load/chunk_sources.h"
#include "model/model.h"
#include "snapshot/snapshot.h"

#define SLACK_BYTES ((uint64_t)1 << 20) /* pages that stick out, and what is read ahead */
#define AHEAD_BYTES ((uint64_t)512 << 10)
#define PAGE_BYTES ((uint64_t)4096)

/* What one thread reads with. */
struct hand {
    struct hand *next;
    struct pool buffer;
    const struct reader_file *file; /* whose bytes [begin, end) are in it */
    uint64_t begin;
    uint64_t end;
};

struct tensor_reader {
    struct reader *reader;
    struct chunk_sources places;
    struct hand *hands;
    unsigned hand_count;
    _Atomic uint64_t total;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct hand *free;
        uint64_t kept_bytes;
        uint64_t uses;
    } shared;
};

/* ---------------------------------------------------------------- making and freeing */

static enum sidestep_status make_hands(struct tensor_reader *t, unsigned hands,
                                       struct sidestep_error *err)
{
    t->hands = memory_new(hands, sizeof(*t->hands));
    if (t->hands == NULL)
        return FAIL_NOMEM(err, hands * sizeof(*t->hands));
    t->hand_count = hands;
    for (unsigned i = 0; i < hands; i++) {
        TRY(pool_reserve(&t->hands[i].buffer, TENSOR_READER_REQUEST_BYTES + SLACK_BYTES, NULL,
                         err));
        t->hands[i].next = t->shared.free;
        t->shared.free = &t->hands[i];
    }
    return SIDESTEP_OK;
}

enum sidestep_status tensor_reader_open(struct reader *reader, const bool *wanted, unsigned hands,
                                        struct tensor_reader **out, struct sidestep_error *err)
{
    struct tensor_reader *t = memory_new(1, sizeof(*t));

    *out = NULL;
    if (t == NULL)
        return FAIL_NOMEM(err, sizeof(*t));
    t->reader = reader;
    pthread_mutex_init(&t->shared.lock, NULL);
    pthread_cond_init(&t->shared.changed, NULL);
    enum sidestep_status status = chunk_sources_find(reader, wanted, &t->places, err);
    if (status == SIDESTEP_OK)
        status = make_hands(t, hands, err);
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
    for (unsigned i = 0; i < t->hand_count; i++)
        pool_release(&t->hands[i].buffer);
    pthread_cond_destroy(&t->shared.changed);
    pthread_mutex_destroy(&t->shared.lock);
    free(t->hands);
    chunk_sources_release(&t->places);
    free(t);
}

uint64_t tensor_reader_bytes_read(const struct tensor_reader *t)
{
    return atomic_load(&t->total);
}

/* ---------------------------------------------------------------- reading */

static struct hand *take_hand(struct tensor_reader *t)
{
    pthread_mutex_lock(&t->shared.lock);
    while (t->shared.free == NULL)
        pthread_cond_wait(&t->shared.changed, &t->shared.lock);
    struct hand *hand = t->shared.free;
    t->shared.free = hand->next;
    pthread_mutex_unlock(&t->shared.lock);
    return hand;
}

static void give_hand(struct tensor_reader *t, struct hand *hand)
{
    pthread_mutex_lock(&t->shared.lock);
    hand->next = t->shared.free;
    t->shared.free = hand;
    pthread_cond_broadcast(&t->shared.changed);
    pthread_mutex_unlock(&t->shared.lock);
}

/* Bytes [offset, offset + length) of ${file}, in the hand: whole pages, for only those go past the
 * page cache, and some more where little is wanted, for small tensors lie side by side. */
static enum sidestep_status hold(struct tensor_reader *t, struct hand *hand,
                                 const struct reader_file *file, uint64_t offset, uint64_t length,
                                 const uint8_t **bytes, struct sidestep_error *err)
{
    if (hand->file != file || offset < hand->begin || offset + length > hand->end) {
        uint64_t begin = round_down(offset, PAGE_BYTES);
        uint64_t end = round_up(offset + length, PAGE_BYTES);

        end = min_u64(max_u64(end, begin + AHEAD_BYTES), file->source.length);
        hand->file = NULL;
        enum sidestep_status status =
            source_read(&file->source, hand->buffer.bytes, end - begin, begin, err);
        if (status != SIDESTEP_OK) {
            error_wrap(err, "file '%s'", file->name);
            return status;
        }
        hand->file = file;
        hand->begin = begin;
        hand->end = end;
        atomic_fetch_add(&t->total, end - begin);
    }
    *bytes = hand->buffer.bytes + (offset - hand->begin);
    return SIDESTEP_OK;
}

/* A stretch of a box, and where it goes. */
struct wanted {
    const struct box *box;
    uint64_t begin;
    uint8_t *to;
};

/* Move what belongs there from bytes [begin, begin + length) of the chunk, which are ${bytes}. */
static void put(const struct chunk_source *p, uint64_t begin, uint64_t length, const uint8_t *bytes,
                const struct wanted *w)
{
    int64_t strides[SIDESTEP_MAX_NDIM];
    /* The box's first byte would be here; only bytes of the stretch are written. */
    struct box_memory memory = {.box = *w->box,
                                .strides = strides,
                                .data = (void *)((uintptr_t)w->to - w->begin),
                                .item_bytes = sidestep_dtype_size(p->entry->dtype)};

    box_row_major_strides(w->box->ndim, w->box->lengths, strides);
    (void)box_transfer(&p->chunk->box, begin, length, (void *)(uintptr_t)bytes, &memory,
                       BOX_SCATTER);
}

/* Without block hashes. */
static enum sidestep_status read_plain(struct tensor_reader *t, struct hand *hand,
                                       struct chunk_source *p, uint64_t first, uint64_t last,
                                       const struct wanted *w, struct sidestep_error *err)
{
    struct chunk_storage *storage = p->storage;
    bool checks = storage != NULL && storage->has_crc;
    uint32_t crc = 0;

    for (uint64_t at = first, length; at < last; at += length) {
        const uint8_t *bytes = NULL;

        length = min_u64(last - at, TENSOR_READER_REQUEST_BYTES);
        TRY(hold(t, hand, p->file, p->data_offset + at, length, &bytes, err));
        if (checks)
            crc = hash_crc32(crc, bytes, length);
        put(p, at, length, bytes, w);
    }
    if (!checks)
        return SIDESTEP_OK;
    pthread_mutex_lock(&t->shared.lock);
    enum sidestep_status status = storage_crc_add(
        &storage->parts, p->data_offset - storage->offset + first, last - first, crc, err);
    pthread_mutex_unlock(&t->shared.lock);
    return status;
}

static enum sidestep_status read_blocks(struct tensor_reader *t, struct hand *hand,
                                        struct chunk_source *p, uint64_t first, uint64_t last,
                                        const struct wanted *w, struct sidestep_error *err)
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
        TRY(hold(t, hand, p->file, p->data_offset + at, length, &bytes, err));
        enum sidestep_status status =
            reader_check_blocks(&item, at / HASH_BLOCK_BYTES, bytes, length, err);
        if (status != SIDESTEP_OK) {
            reader_blame(err, p->entry->name, p->file);
            return status;
        }
        uint64_t begin = max_u64(at, first), end = min_u64(at + length, last);
        put(p, begin, end - begin, bytes + (begin - at), w);
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- chunks that are decoded whole */

/* Chunks that are decoded at once. */
struct decoding {
    struct chunk_source **places;
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
        const struct chunk_source *p = d->places[i];

        box_row_major_strides(p->chunk->box.ndim, p->chunk->box.lengths, d->strides[i]);
        d->items[i] = *p->whole;
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
        uint64_t bytes = chunk_source_decoded_bytes(d->places[i]);

        TRY(reader_item_check_not_sparse(&d->items[i], bytes, err));
        d->targets[i].data = memory_new(bytes, 1);
        if (d->targets[i].data == NULL)
            return FAIL_NOMEM(err, bytes);
    }
    return d->count > 1 ? fetch_views(&views, err)
                        : fetch_item(&d->items[0], &d->chunks[0], NULL, err);
}

/* To ${decoded}, per place: malloc'ed, or, after an error, none. */
static enum sidestep_status decode(struct chunk_source **places, size_t count, uint8_t **decoded,
                                   struct sidestep_error *err)
{
    OWNED_ARENA arena = {0};
    struct decoding d = {.places = places, .count = count};

    TRY(prepare(&arena, &d, err));
    enum sidestep_status status = decode_into(&d, err);
    for (size_t i = 0; i < count; i++) {
        if (status != SIDESTEP_OK)
            free(d.targets[i].data);
        else
            decoded[i] = d.targets[i].data;
    }
    if (status != SIDESTEP_OK)
        reader_blame(err, places[0]->entry->name, places[0]->file);
    return status;
}

/* Locked: give back what was not used for longest, but for ${keep}, until the rest is little. */
static void shrink(struct tensor_reader *t, const struct chunk_source *keep)
{
    while (t->shared.kept_bytes > TENSOR_READER_CACHE_BYTES) {
        struct chunk_source *oldest = NULL;

        for (size_t i = 0; i < t->places.count; i++) {
            struct chunk_source *p = &t->places.places[i];
            if (p != keep && p->decoded != NULL && p->users == 0 &&
                (oldest == NULL || p->used_at < oldest->used_at))
                oldest = p;
        }
        if (oldest == NULL)
            return;
        free(TAKE(oldest->decoded));
        t->shared.kept_bytes -= chunk_source_decoded_bytes(oldest);
    }
}

/* Locked: ${p} and those that are decoded with it. */
static size_t choose(struct chunk_source *p, struct chunk_source **chosen)
{
    size_t count = 0;

    chosen[count++] = p;
    for (size_t i = 0; p->together && i < p->storage->count; i++) {
        struct chunk_source *other = p->storage->places[i];

        if (other != p && other->decoded == NULL && !other->decoding)
            chosen[count++] = other;
    }
    return count;
}

/* Locked, but not while it works. */
static enum sidestep_status decode_with_others(struct tensor_reader *t, struct chunk_source *p,
                                               struct sidestep_error *err)
{
    size_t most = p->together ? p->storage->count : 1;
    OWNED struct chunk_source **chosen = memory_new(most, sizeof(*chosen));
    OWNED uint8_t **decoded = memory_new(most, sizeof(*decoded));

    if (chosen == NULL || decoded == NULL)
        return FAIL_NOMEM(err, most * sizeof(*chosen));
    size_t count = choose(p, chosen);
    for (size_t i = 0; i < count; i++)
        chosen[i]->decoding = true;
    pthread_mutex_unlock(&t->shared.lock);
    enum sidestep_status status = decode(chosen, count, decoded, err);
    pthread_mutex_lock(&t->shared.lock);
    for (size_t i = 0; i < count; i++) {
        chosen[i]->decoding = false;
        chosen[i]->decoded = decoded[i];
        chosen[i]->used_at = ++t->shared.uses;
        if (decoded[i] != NULL)
            t->shared.kept_bytes += chunk_source_decoded_bytes(chosen[i]);
    }
    if (p->storage != NULL && !p->whole->has_crc)
        p->storage->unchecked = true;
    atomic_fetch_add(&t->total,
                     p->storage != NULL ? p->whole->storage_bytes : p->chunk->storage.length);
    pthread_cond_broadcast(&t->shared.changed);
    return status;
}

/* Locked: the decoded bytes of ${p}, made by whoever comes first. */
static enum sidestep_status obtain(struct tensor_reader *t, struct chunk_source *p,
                                   struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    while (p->decoding)
        pthread_cond_wait(&t->shared.changed, &t->shared.lock);
    if (p->decoded == NULL)
        status = decode_with_others(t, p, err);
    p->used_at = ++t->shared.uses;
    shrink(t, p);
    return status;
}

static enum sidestep_status read_whole(struct tensor_reader *t, struct chunk_source *p,
                                       uint64_t first, uint64_t last, const struct wanted *w,
                                       struct sidestep_error *err)
{
    pthread_mutex_lock(&t->shared.lock);
    enum sidestep_status status = obtain(t, p, err);
    p->users++;
    pthread_mutex_unlock(&t->shared.lock);
    if (status == SIDESTEP_OK)
        put(p, first, last - first, p->decoded + first, w);
    pthread_mutex_lock(&t->shared.lock);
    p->users--;
    pthread_mutex_unlock(&t->shared.lock);
    return status;
}

/* ---------------------------------------------------------------- the public functions */

static enum sidestep_status read_place(struct tensor_reader *t, struct hand *hand,
                                       struct chunk_source *p, uint64_t end, const struct wanted *w,
                                       struct sidestep_error *err)
{
    uint64_t first, last;

    if (!box_range(w->box, w->begin, end, sidestep_dtype_size(p->entry->dtype), &p->chunk->box,
                   &first, &last))
        return SIDESTEP_OK;
    if (p->whole != NULL)
        return read_whole(t, p, first, last, w, err);
    return p->blocks != NULL ? read_blocks(t, hand, p, first, last, w, err)
                             : read_plain(t, hand, p, first, last, w, err);
}

enum sidestep_status tensor_reader_read(struct tensor_reader *t, size_t entry,
                                        const struct box *box, uint64_t begin, uint64_t bytes,
                                        uint8_t *to, struct sidestep_error *err)
{
    const struct wanted wanted = {.box = box, .begin = begin, .to = to};
    size_t count = t->reader->metadata.entries[entry].chunk_count;
    struct chunk_source *places = &t->places.places[t->places.first_place[entry]];
    struct hand *hand = take_hand(t);
    enum sidestep_status status = SIDESTEP_OK;

    for (size_t i = 0; i < count && status == SIDESTEP_OK; i++)
        status = read_place(t, hand, &places[i], begin + bytes, &wanted, err);
    give_hand(t, hand);
    return status;
}

/* What goes on with the CRC of what was not read, or not in a way that the parts know of. */
struct rest {
    struct tensor_reader *t;
    struct hand *hand;
    const struct chunk_storage *storage;
};

static enum sidestep_status crc_of_rest(void *context, uint64_t begin, uint64_t bytes,
                                        uint32_t *crc, struct sidestep_error *err)
{
    const struct rest *rest = context;

    for (uint64_t at = begin, length; at < begin + bytes; at += length) {
        const uint8_t *held = NULL;

        length = min_u64(begin + bytes - at, TENSOR_READER_REQUEST_BYTES);
        TRY(hold(rest->t, rest->hand, rest->storage->file, rest->storage->offset + at, length,
                 &held, err));
        *crc = hash_crc32(*crc, held, length);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_storage(struct tensor_reader *t, struct chunk_storage *storage,
                                          struct sidestep_error *err)
{
    struct rest rest = {.t = t, .hand = take_hand(t), .storage = storage};
    uint32_t crc;
    enum sidestep_status status =
        storage_crc_finish(&storage->parts, storage->bytes, crc_of_rest, &rest, &crc, err);

    give_hand(t, rest.hand);
    if (status == SIDESTEP_OK && crc != storage->crc)
        status = FAIL(err, SIDESTEP_ECORRUPT,
                      "'%s' in file '%s': the data has CRC32 %08x, the archive says %08x",
                      display_name(storage->places[0]->entry->name).text, storage->file->name, crc,
                      storage->crc);
    return status;
}

enum sidestep_status tensor_reader_finish(struct tensor_reader *t, struct sidestep_error *err)
{
    for (size_t i = 0; i < t->places.storage_count; i++) {
        struct chunk_storage *storage = &t->places.storages[i];

        if (storage->has_crc && (storage->parts.count != 0 || storage->unchecked))
            TRY(check_storage(t, storage, err));
    }
    return reader_check_unchanged(t->reader, err);
}
