/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_sources.c -- finds the chunks to read, and views that share a storage; see
 * chunk_sources.h. */
#include "load/chunk_sources.h"

#include <stdlib.h>

#include "base/base.h"
#include "load/fetch_item.h"
#include "load/tensor_reader.h"
#include "model/model.h"
#include "plan/plan.h"

/* Views are decoded in one pass if they, and their storage, have at most so many bytes. */
#define MAX_TOGETHER_BYTES (TENSOR_READER_CACHE_BYTES / 2)

static enum sidestep_status check_coverage(const struct metadata_entry *entry,
                                           struct sidestep_error *err)
{
    enum tiling_result result;

    TRY(tiling_check_chunks(entry, &result, err));
    if (result == TILING_EXACT)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "'%s': its chunks %s", display_name(entry->name).text,
                result == TILING_GAP ? "do not cover it" : "overlap");
}

static enum sidestep_status copy_item(struct chunk_source *p, const struct reader_item *item,
                                      struct sidestep_error *err)
{
    p->decode_item = memory_new(1, sizeof(*p->decode_item));
    if (p->decode_item == NULL)
        return FAIL_NOMEM(err, sizeof(*p->decode_item));
    *p->decode_item = *item;
    return SIDESTEP_OK;
}

static enum sidestep_status find_item(struct chunk_sources *t, const struct chunk_source *p,
                                      struct reader_item *item, struct sidestep_error *err)
{
    return reader_locate_item(t->reader, p->entry, &p->chunk->storage, &p->chunk->box, NULL, item,
                              err);
}

static enum sidestep_status fill_source(struct chunk_sources *t, struct chunk_source *p,
                                        struct sidestep_error *err)
{
    struct reader_item item;

    TRY(find_item(t, p, &item, err));
    p->file = item.file;
    p->data_offset = item.data_offset;
    p->data_bytes = item.data_bytes;
    p->blocks = item.blocks;
    if (item.storage_bytes != 0 && item.transform == NULL) {
        struct chunk_storage *storage = &t->storages[t->storage_count];

        *storage = (struct chunk_storage){.file = item.file,
                                          .offset = item.storage_offset,
                                          .bytes = item.storage_bytes,
                                          .has_crc = item.has_crc,
                                          .crc = item.storage_crc};
        p->storage = storage;
        t->by_storage[t->storage_count++] = p;
    }
    return item.ranged && item.transform == NULL ? SIDESTEP_OK : copy_item(p, &item, err);
}

static enum sidestep_status make_sources(struct chunk_sources *t, const bool *wanted,
                                         struct sidestep_error *err)
{
    const struct metadata *m = &t->reader->metadata;
    size_t most = 0;

    for (size_t e = 0; e < m->count; e++)
        most += wanted[e] ? m->entries[e].chunk_count : 0;
    t->sources = memory_new(most, sizeof(*t->sources));
    t->first_source = memory_new(m->count, sizeof(*t->first_source));
    t->storages = memory_new(most, sizeof(*t->storages));
    t->by_storage = memory_new(most, sizeof(*t->by_storage));
    if (t->sources == NULL || t->first_source == NULL || t->storages == NULL ||
        t->by_storage == NULL)
        return FAIL_NOMEM(err, most * sizeof(*t->sources));
    for (size_t e = 0; e < m->count; e++) {
        if (!wanted[e])
            continue;
        t->first_source[e] = t->count;
        TRY(check_coverage(&m->entries[e], err));
        for (size_t c = 0; c < m->entries[e].chunk_count; c++) {
            struct chunk_source *p = &t->sources[t->count++];
            p->entry = &m->entries[e];
            p->chunk = &m->entries[e].chunks[c];
            TRY(fill_source(t, p, err));
        }
    }
    return SIDESTEP_OK;
}

uint64_t chunk_source_decoded_bytes(const struct chunk_source *p)
{
    return box_volume(&p->chunk->box) * sidestep_dtype_size(p->entry->dtype);
}

static int compare_storages(const void *a, const void *b)
{
    const struct chunk_storage *x = (*(struct chunk_source *const *)a)->storage,
                               *y = (*(struct chunk_source *const *)b)->storage;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Read only the byte range that the elements span.  The CRC of the large storage is checked at the
 * end. */
static enum sidestep_status read_span_only(struct chunk_source *p, struct sidestep_error *err)
{
    struct load_plan_chunk chunk = {.entry = p->entry, .box = p->chunk->box};
    struct reader_item *item = p->decode_item;
    uint64_t begin, end;

    if (item->tensor == NULL)
        return SIDESTEP_OK;
    TRY(fetch_item_byte_range(item, &chunk, &begin, &end, err));
    item->storage_offset = begin;
    item->storage_bytes = end - begin;
    item->has_crc = false;
    return SIDESTEP_OK;
}

/* Choose how views that overlap or are not row-major are read.  Small ones are all decoded from one
 * read of the storage.  Otherwise each reads only the byte range that its elements span. */
static enum sidestep_status share_storage(struct chunk_sources *t,
                                          const struct chunk_storage *storage,
                                          struct sidestep_error *err)
{
    struct chunk_source *const *sources = storage->sources;
    struct reader_item item, first;
    uint64_t bytes = 0;
    bool any_whole = false, can_merge = true;

    TRY(find_item(t, sources[0], &first, err));
    for (size_t i = 0; i < storage->count; i++) {
        TRY(find_item(t, sources[i], &item, err));
        can_merge = can_merge && fetch_can_merge_views(&first, &item);
        any_whole = any_whole || sources[i]->decode_item != NULL;
        bytes += min_u64(chunk_source_decoded_bytes(sources[i]), MAX_TOGETHER_BYTES + 1);
    }
    bool decode_together = can_merge && bytes <= MAX_TOGETHER_BYTES &&
                           storage->bytes <= MAX_TOGETHER_BYTES &&
                           (any_whole || bytes > storage->bytes);
    for (size_t i = 0; i < storage->count; i++) {
        struct chunk_source *p = sources[i];

        p->decode_together = decode_together;
        if (decode_together && p->decode_item == NULL) {
            TRY(find_item(t, p, &item, err));
            TRY(copy_item(p, &item, err));
        } else if (!decode_together && p->decode_item != NULL) {
            TRY(read_span_only(p, err));
        }
    }
    return SIDESTEP_OK;
}

/* Sources with the same storage share one struct: that of the first. */
static enum sidestep_status share_storages(struct chunk_sources *t, struct sidestep_error *err)
{
    size_t end;

    if (t->storage_count != 0)
        qsort(t->by_storage, t->storage_count, sizeof(struct chunk_source *), compare_storages);
    for (size_t i = 0; i < t->storage_count; i = end) {
        struct chunk_storage *storage = t->by_storage[i]->storage;

        for (end = i; end < t->storage_count && t->by_storage[end]->file == storage->file &&
                      t->by_storage[end]->storage->offset == storage->offset;
             end++)
            t->by_storage[end]->storage = storage;
        storage->sources = &t->by_storage[i];
        storage->count = end - i;
        if (storage->count > 1)
            TRY(share_storage(t, storage, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status chunk_sources_find(struct reader *reader, const bool *wanted,
                                        struct chunk_sources *out, struct sidestep_error *err)
{
    *out = (struct chunk_sources){.reader = reader};
    TRY(make_sources(out, wanted, err));
    return share_storages(out, err);
}

void chunk_sources_release(struct chunk_sources *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->sources[i].decode_item);
        free(t->sources[i].decoded);
    }
    for (size_t i = 0; i < t->storage_count; i++)
        storage_crc_release(&t->storages[i].read_crcs);
    free(t->storages);
    free(t->by_storage);
    free(t->sources);
    free(t->first_source);
}
