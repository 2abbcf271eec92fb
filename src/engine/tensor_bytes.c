/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_bytes.c -- see tensor_bytes.h. */
#include "engine/tensor_bytes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/owned.h"
#include "codec/hash.h"
#include "engine/fetch_item.h"
#include "model/box_range.h"
#include "model/shown.h"
#include "plan/tiling.h"
#include "snapshot/pool.h"

#define SLACK_BYTES ((uint64_t)1 << 20) /* pages that stick out, and what is read ahead */
#define AHEAD_BYTES ((uint64_t)512 << 10)
#define PAGE_BYTES ((uint64_t)4096)

/* The CRC of a stretch of a chunk. */
struct part {
    uint64_t begin;
    uint64_t bytes;
    uint32_t crc;
};

/* A chunk and where its bytes are. */
struct place {
    const struct metadata_entry *entry;
    const struct metadata_chunk *chunk;
    struct reader_file *file;
    uint64_t data_offset;
    uint64_t data_bytes;
    const uint64_t *blocks;
    struct reader_item *whole; /* not NULL: to be decoded whole */
    bool has_crc;
    uint32_t crc;
    /* Under shared.lock. */
    struct part *parts;
    size_t part_count, part_room;
    uint8_t *decoded; /* of ${whole} */
    bool decoding;
    unsigned users;
    uint64_t used_at; /* counts uses, to give back what was not used for longest */
};

/* What one thread reads with. */
struct hand {
    struct hand *next;
    struct pool buffer;
    const struct reader_file *file; /* whose bytes [begin, end) are in it */
    uint64_t begin;
    uint64_t end;
};

struct tensor_bytes {
    struct reader *reader;
    struct place *places;
    size_t place_count;
    size_t *first_place; /* per entry; SIZE_MAX: not wanted */
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

static enum sidestep_status check_coverage(const struct metadata_entry *entry,
                                           struct sidestep_error *err)
{
    OWNED struct box *boxes = memory_new(entry->chunk_count, sizeof(*boxes));
    enum tiling_result result;

    if (boxes == NULL)
        return FAIL_NOMEM(err, entry->chunk_count * sizeof(*boxes));
    for (size_t c = 0; c < entry->chunk_count; c++)
        boxes[c] = entry->chunks[c].box;
    TRY(tiling_check(entry->ndim, entry->shape, boxes, entry->chunk_count, &result, NULL, err));
    if (result == TILING_EXACT)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "'%s': its chunks %s", shown_name(entry->name).text,
                result == TILING_GAP ? "do not cover it" : "overlap");
}

static enum sidestep_status fill_place(struct tensor_bytes *t, struct place *p,
                                       struct sidestep_error *err)
{
    struct reader_item item;

    TRY(reader_item(t->reader, p->entry, &p->chunk->storage, &p->chunk->box, NULL, &item, err));
    p->file = item.file;
    p->data_offset = item.data_offset;
    p->data_bytes = item.data_bytes;
    p->blocks = item.blocks;
    p->has_crc = item.has_crc;
    p->crc = item.data_crc;
    if (item.ranged && item.transform == NULL)
        return SIDESTEP_OK;
    p->whole = memory_new(1, sizeof(*p->whole));
    if (p->whole == NULL)
        return FAIL_NOMEM(err, sizeof(*p->whole));
    *p->whole = item;
    return SIDESTEP_OK;
}

static enum sidestep_status make_places(struct tensor_bytes *t, const bool *wanted,
                                        struct sidestep_error *err)
{
    const struct metadata *m = &t->reader->metadata;
    size_t most = 0;

    for (size_t e = 0; e < m->count; e++)
        most += wanted[e] ? m->entries[e].chunk_count : 0;
    t->places = memory_new(most, sizeof(*t->places));
    t->first_place = memory_new(m->count, sizeof(*t->first_place));
    if (t->places == NULL || t->first_place == NULL)
        return FAIL_NOMEM(err, most * sizeof(*t->places));
    for (size_t e = 0; e < m->count; e++) {
        if (!wanted[e])
            continue;
        t->first_place[e] = t->place_count;
        TRY(check_coverage(&m->entries[e], err));
        for (size_t c = 0; c < m->entries[e].chunk_count; c++) {
            struct place *p = &t->places[t->place_count++];
            p->entry = &m->entries[e];
            p->chunk = &m->entries[e].chunks[c];
            TRY(fill_place(t, p, err));
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status make_hands(struct tensor_bytes *t, unsigned hands,
                                       struct sidestep_error *err)
{
    t->hands = memory_new(hands, sizeof(*t->hands));
    if (t->hands == NULL)
        return FAIL_NOMEM(err, hands * sizeof(*t->hands));
    t->hand_count = hands;
    for (unsigned i = 0; i < hands; i++) {
        TRY(pool_reserve(&t->hands[i].buffer, TENSOR_BYTES_READ + SLACK_BYTES, NULL, err));
        t->hands[i].next = t->shared.free;
        t->shared.free = &t->hands[i];
    }
    return SIDESTEP_OK;
}

enum sidestep_status tensor_bytes_open(struct reader *reader, const bool *wanted, unsigned hands,
                                       struct tensor_bytes **out, struct sidestep_error *err)
{
    struct tensor_bytes *t = memory_new(1, sizeof(*t));

    *out = NULL;
    if (t == NULL)
        return FAIL_NOMEM(err, sizeof(*t));
    t->reader = reader;
    pthread_mutex_init(&t->shared.lock, NULL);
    pthread_cond_init(&t->shared.changed, NULL);
    enum sidestep_status status = make_places(t, wanted, err);
    if (status == SIDESTEP_OK)
        status = make_hands(t, hands, err);
    if (status == SIDESTEP_OK)
        *out = t;
    else
        tensor_bytes_free(&t);
    return status;
}

void tensor_bytes_free(struct tensor_bytes **out)
{
    struct tensor_bytes *t = *out;

    if (t == NULL)
        return;
    *out = NULL;
    for (unsigned i = 0; i < t->hand_count; i++)
        pool_release(&t->hands[i].buffer);
    for (size_t i = 0; i < t->place_count; i++) {
        free(t->places[i].whole);
        free(t->places[i].parts);
        free(t->places[i].decoded);
    }
    pthread_cond_destroy(&t->shared.changed);
    pthread_mutex_destroy(&t->shared.lock);
    free(t->hands);
    free(t->places);
    free(t->first_place);
    free(t);
}

uint64_t tensor_bytes_total(const struct tensor_bytes *t)
{
    return atomic_load(&t->total);
}

/* ---------------------------------------------------------------- reading */

static struct hand *take_hand(struct tensor_bytes *t)
{
    pthread_mutex_lock(&t->shared.lock);
    while (t->shared.free == NULL)
        pthread_cond_wait(&t->shared.changed, &t->shared.lock);
    struct hand *hand = t->shared.free;
    t->shared.free = hand->next;
    pthread_mutex_unlock(&t->shared.lock);
    return hand;
}

static void give_hand(struct tensor_bytes *t, struct hand *hand)
{
    pthread_mutex_lock(&t->shared.lock);
    hand->next = t->shared.free;
    t->shared.free = hand;
    pthread_cond_broadcast(&t->shared.changed);
    pthread_mutex_unlock(&t->shared.lock);
}

/* Bytes [offset, offset + length) of ${file}, in the hand: whole pages, for only those go past the
 * page cache, and some more where little is wanted, for small tensors lie side by side. */
static enum sidestep_status hold(struct tensor_bytes *t, struct hand *hand,
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
static void put(const struct place *p, uint64_t begin, uint64_t length, const uint8_t *bytes,
                const struct wanted *w)
{
    int64_t strides[SIDESTEP_MAX_NDIM];
    /* The box's first byte would be here; only bytes of the stretch are written. */
    struct box_memory memory = {.box = *w->box,
                                .strides = strides,
                                .data = (void *)((uintptr_t)w->to - w->begin),
                                .item_bytes = sidestep_dtype_size(p->entry->dtype)};

    box_row_major(w->box->ndim, w->box->lengths, strides);
    (void)box_transfer(&p->chunk->box, begin, length, (void *)(uintptr_t)bytes, &memory,
                       BOX_SCATTER);
}

static enum sidestep_status add_part(struct tensor_bytes *t, struct place *p,
                                     const struct part *part, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    pthread_mutex_lock(&t->shared.lock);
    if (p->part_count == p->part_room) {
        size_t room = p->part_room != 0 ? p->part_room * 2 : 4;
        struct part *parts = memory_resize(p->parts, room, sizeof(*parts));
        if (parts != NULL) {
            p->parts = parts;
            p->part_room = room;
        } else {
            status = FAIL_NOMEM(err, room * sizeof(*parts));
        }
    }
    if (status == SIDESTEP_OK)
        p->parts[p->part_count++] = *part;
    pthread_mutex_unlock(&t->shared.lock);
    return status;
}

/* Without block hashes. */
static enum sidestep_status read_plain(struct tensor_bytes *t, struct hand *hand, struct place *p,
                                       uint64_t first, uint64_t last, const struct wanted *w,
                                       struct sidestep_error *err)
{
    struct part part = {.begin = first, .bytes = last - first};

    for (uint64_t at = first, length; at < last; at += length) {
        const uint8_t *bytes = NULL;

        length = min_u64(last - at, TENSOR_BYTES_READ);
        TRY(hold(t, hand, p->file, p->data_offset + at, length, &bytes, err));
        if (p->has_crc)
            part.crc = hash_crc32(part.crc, bytes, length);
        put(p, at, length, bytes, w);
    }
    return p->has_crc ? add_part(t, p, &part, err) : SIDESTEP_OK;
}

static enum sidestep_status read_blocks(struct tensor_bytes *t, struct hand *hand, struct place *p,
                                        uint64_t first, uint64_t last, const struct wanted *w,
                                        struct sidestep_error *err)
{
    const struct reader_item item = {.file = p->file,
                                     .data_offset = p->data_offset,
                                     .data_bytes = p->data_bytes,
                                     .blocks = p->blocks,
                                     .footer = reader_find_item(p->file, p->chunk->storage.offset)};
    uint64_t from = round_down(first, HASH_BLOCK_BYTES);
    uint64_t to = min_u64(round_up(last, HASH_BLOCK_BYTES), p->data_bytes);

    for (uint64_t at = from, length; at < to; at += length) {
        const uint8_t *bytes = NULL;

        length = min_u64(to - at, TENSOR_BYTES_READ);
        TRY(hold(t, hand, p->file, p->data_offset + at, length, &bytes, err));
        TRY(reader_check_blocks(&item, at / HASH_BLOCK_BYTES, bytes, length, err));
        uint64_t begin = max_u64(at, first), end = min_u64(at + length, last);
        put(p, begin, end - begin, bytes + (begin - at), w);
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- chunks that are decoded whole */

static uint64_t decoded_bytes(const struct place *p)
{
    return box_volume(&p->chunk->box) * sidestep_dtype_size(p->entry->dtype);
}

static enum sidestep_status decode(struct place *p, uint8_t **out, struct sidestep_error *err)
{
    uint64_t bytes = decoded_bytes(p);
    int64_t strides[SIDESTEP_MAX_NDIM];

    TRY(reader_item_fits(p->whole, bytes, err));
    OWNED uint8_t *memory = memory_new(bytes, 1);
    if (memory == NULL)
        return FAIL_NOMEM(err, bytes);
    box_row_major(p->chunk->box.ndim, p->chunk->box.lengths, strides);
    struct state_entry target = {.name = p->entry->name,
                                 .dtype = p->entry->dtype,
                                 .ndim = p->entry->ndim,
                                 .shape = p->entry->shape,
                                 .box = p->chunk->box,
                                 .strides = strides,
                                 .data = memory};
    struct state_entry *targets[] = {&target};
    struct load_plan_chunk chunk = {.entry = p->entry,
                                    .storage = &p->chunk->storage,
                                    .box = p->chunk->box,
                                    .target_count = 1,
                                    .targets = targets};
    enum sidestep_status status = fetch_item(p->whole, &chunk, NULL, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "'%s' in file '%s'", shown_name(p->entry->name).text, p->file->name);
        return status;
    }
    *out = TAKE(memory);
    return SIDESTEP_OK;
}

/* Locked: give back what was not used for longest, but for ${keep}, until the rest is little. */
static void shrink(struct tensor_bytes *t, const struct place *keep)
{
    while (t->shared.kept_bytes > TENSOR_BYTES_KEPT) {
        struct place *oldest = NULL;

        for (size_t i = 0; i < t->place_count; i++) {
            struct place *p = &t->places[i];
            if (p != keep && p->decoded != NULL && p->users == 0 &&
                (oldest == NULL || p->used_at < oldest->used_at))
                oldest = p;
        }
        if (oldest == NULL)
            return;
        free(TAKE(oldest->decoded));
        t->shared.kept_bytes -= decoded_bytes(oldest);
    }
}

/* Locked: the decoded bytes of ${p}, made by whoever comes first. */
static enum sidestep_status obtain(struct tensor_bytes *t, struct place *p,
                                   struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    while (p->decoding)
        pthread_cond_wait(&t->shared.changed, &t->shared.lock);
    if (p->decoded == NULL) {
        uint8_t *bytes = NULL;

        p->decoding = true;
        pthread_mutex_unlock(&t->shared.lock);
        status = decode(p, &bytes, err);
        pthread_mutex_lock(&t->shared.lock);
        p->decoding = false;
        p->decoded = bytes;
        if (bytes != NULL)
            t->shared.kept_bytes += decoded_bytes(p);
        atomic_fetch_add(&t->total, p->chunk->storage.length);
        pthread_cond_broadcast(&t->shared.changed);
    }
    p->used_at = ++t->shared.uses;
    shrink(t, p);
    return status;
}

static enum sidestep_status read_whole(struct tensor_bytes *t, struct place *p, uint64_t first,
                                       uint64_t last, const struct wanted *w,
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

static enum sidestep_status read_place(struct tensor_bytes *t, struct hand *hand, struct place *p,
                                       uint64_t end, const struct wanted *w,
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

enum sidestep_status tensor_bytes_read(struct tensor_bytes *t, size_t entry, const struct box *box,
                                       uint64_t begin, uint64_t bytes, uint8_t *to,
                                       struct sidestep_error *err)
{
    const struct wanted wanted = {.box = box, .begin = begin, .to = to};
    size_t count = t->reader->metadata.entries[entry].chunk_count;
    struct place *places = &t->places[t->first_place[entry]];
    struct hand *hand = take_hand(t);
    enum sidestep_status status = SIDESTEP_OK;

    for (size_t i = 0; i < count && status == SIDESTEP_OK; i++)
        status = read_place(t, hand, &places[i], begin + bytes, &wanted, err);
    give_hand(t, hand);
    return status;
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Do the stretches cover the chunk, each byte once?  Then ${*crc} is its CRC. */
static bool join_parts(struct place *p, uint32_t *crc)
{
    uint64_t at = 0;

    *crc = 0;
    qsort(p->parts, p->part_count, sizeof(*p->parts), compare_parts);
    for (size_t i = 0; i < p->part_count; i++) {
        if (p->parts[i].begin != at)
            return false;
        *crc =
            at == 0 ? p->parts[i].crc : hash_crc32_join(*crc, p->parts[i].crc, p->parts[i].bytes);
        at += p->parts[i].bytes;
    }
    return at == p->data_bytes;
}

static enum sidestep_status crc_of_all(struct tensor_bytes *t, const struct place *p, uint32_t *crc,
                                       struct sidestep_error *err)
{
    struct hand *hand = take_hand(t);
    enum sidestep_status status = SIDESTEP_OK;

    *crc = 0;
    for (uint64_t at = 0, length; at < p->data_bytes && status == SIDESTEP_OK; at += length) {
        const uint8_t *bytes = NULL;

        length = min_u64(p->data_bytes - at, TENSOR_BYTES_READ);
        status = hold(t, hand, p->file, p->data_offset + at, length, &bytes, err);
        if (status == SIDESTEP_OK)
            *crc = hash_crc32(*crc, bytes, length);
    }
    give_hand(t, hand);
    return status;
}

enum sidestep_status tensor_bytes_finish(struct tensor_bytes *t, struct sidestep_error *err)
{
    for (size_t i = 0; i < t->place_count; i++) {
        struct place *p = &t->places[i];
        uint32_t crc;

        if (p->part_count == 0)
            continue;
        if (!join_parts(p, &crc))
            TRY(crc_of_all(t, p, &crc, err));
        if (crc != p->crc)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "'%s' in file '%s': the data has CRC32 %08x, the archive says %08x",
                        shown_name(p->entry->name).text, p->file->name, crc, p->crc);
    }
    return reader_check_unchanged(t->reader, err);
}
