/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_index.c -- see chunk_index.h: writes an index of chunks. */
#include "format/chunk_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk_index_layout.h"
#include "format/chunk_list.h"

struct page {
    uint32_t bytes;
    uint64_t hash;
    const char *first;
};

struct encoder {
    const struct metadata *metadata;
    struct manifest *manifest;
    struct chunk_list *list; /* all pages, one behind the other */
    size_t begin;            /* of the current page */
    const char *first;       /* the name of its first record */
    struct page *pages;
    size_t count, capacity;
    struct hash_table files; /* numbers by name; built when a guess fails */
    size_t file;             /* of the previous record */
};

static void encoder_release(struct encoder *e)
{
    chunk_list_free(&e->list);
    hash_table_release(&e->files);
    free(e->pages);
}

static enum sidestep_status end_page(struct encoder *e, struct sidestep_error *err)
{
    const struct buffer *bytes = &e->list->bytes;

    TRY(buffer_check(bytes, err));
    if (bytes->length == e->begin)
        return SIDESTEP_OK;
    TRY_GROW(e->pages, e->capacity, e->count, err);
    e->pages[e->count++] =
        (struct page){.bytes = (uint32_t)(bytes->length - e->begin),
                      .hash = hash_block(bytes->bytes + e->begin, bytes->length - e->begin),
                      .first = e->first};
    e->begin = bytes->length;
    chunk_list_begin(e->list);
    return SIDESTEP_OK;
}

static bool is_file(const struct encoder *e, size_t i, const char *name)
{
    const struct manifest *m = e->manifest;

    return i < m->file_count && (m->files[i].name == name || strcmp(m->files[i].name, name) == 0);
}

/* Set e->file to the number of a file.  Most chunks of a tensor lie in one file after the other. */
static enum sidestep_status find_file(struct encoder *e, const char *name,
                                      struct sidestep_error *err)
{
    const struct manifest *m = e->manifest;
    size_t existing;

    for (size_t guess = 0; name != NULL && guess < 2; guess++)
        if (is_file(e, e->file + guess, name)) {
            e->file += guess;
            return SIDESTEP_OK;
        }
    for (size_t i = e->files.count; i < m->file_count; i++)
        TRY(hash_table_insert(&e->files, m->files[i].name, i, &existing, err));
    e->file = name != NULL ? hash_table_find(&e->files, name) : SIZE_MAX;
    if (e->file != SIZE_MAX)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "index of chunks: the manifest does not list '%s'",
                name != NULL ? name : "");
}

static enum sidestep_status put_record(struct encoder *e, struct chunk_record *record,
                                       const struct metadata_storage *storage,
                                       struct sidestep_error *err)
{
    TRY(find_file(e, storage->file, err));
    record->file = e->file;
    record->offset = storage->offset;
    record->length = storage->length;
    record->transform = storage->transform;
    if (e->list->bytes.length == e->begin)
        e->first = record->name;
    chunk_list_add(e->list, record);
    record->is_first = false;
    return e->list->bytes.length - e->begin < CHUNK_INDEX_PAGE_BYTES ? SIDESTEP_OK
                                                                     : end_page(e, err);
}

static enum sidestep_status put_entry(struct encoder *e, const struct metadata_entry *entry,
                                      struct sidestep_error *err)
{
    struct chunk_record record = {.name = entry->name,
                                  .is_object = entry->is_object,
                                  .requires_grad = entry->requires_grad,
                                  .dtype = entry->dtype,
                                  .ndim = entry->ndim,
                                  .shape = entry->shape,
                                  .is_first = true,
                                  .place = (size_t)(entry - e->metadata->entries),
                                  .path_length = entry->path_length,
                                  .path = entry->path};

    if (entry->is_object)
        return put_record(e, &record, &entry->storage, err);
    for (size_t c = 0; c < entry->chunk_count; c++) {
        if (entry->chunks[c].box.ndim != entry->ndim)
            return FAIL(err, SIDESTEP_ECORRUPT, "index of chunks: '%s' has a box of %u dimensions",
                        display_name(entry->name).text, entry->chunks[c].box.ndim);
        record.box = entry->chunks[c].box;
        TRY(put_record(e, &record, &entry->chunks[c].storage, err));
    }
    return SIDESTEP_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct metadata_entry *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static enum sidestep_status put_pages(struct encoder *e, struct sidestep_error *err)
{
    size_t count = e->metadata->count;
    OWNED const struct metadata_entry **sorted = memory_new(count, sizeof(*sorted));

    if (sorted == NULL)
        return FAIL_NOMEM(err, count * sizeof(*sorted));
    for (size_t i = 0; i < count; i++)
        sorted[i] = &e->metadata->entries[i];
    if (count > 1)
        qsort(sorted, count, sizeof(*sorted), compare_names);
    for (size_t i = 0; i < count; i++)
        TRY(put_entry(e, sorted[i], err));
    return end_page(e, err);
}

static void put_table(const struct encoder *e, const uint8_t save_id[SAVE_ID_BYTES],
                      struct buffer *out)
{
    buffer_put(out, CHUNK_INDEX_MAGIC, CHUNK_INDEX_MAGIC_BYTES);
    buffer_put_u32le(out, CHUNK_INDEX_VERSION);
    buffer_put_u32le(out, (uint32_t)e->count);
    buffer_put(out, save_id, SAVE_ID_BYTES);
    buffer_put_u64le(out, 0);
    buffer_put_u64le(out, 0);
    for (size_t i = 0; i < e->count; i++) {
        buffer_put_u32le(out, e->pages[i].bytes);
        buffer_put_u64le(out, e->pages[i].hash);
    }
    for (size_t i = 0; i < e->count; i++)
        buffer_put(out, e->pages[i].first, strlen(e->pages[i].first) + 1);
}

static enum sidestep_status encode(struct encoder *e, struct buffer *out,
                                   struct sidestep_error *err)
{
    uint8_t save_id[SAVE_ID_BYTES];
    struct manifest_index *index = &e->manifest->index;

    e->list = chunk_list_new(err);
    if (e->list == NULL)
        return SIDESTEP_ENOMEM;
    TRY(put_pages(e, err));
    if (!hash_from_hex(e->manifest->save_id, SAVE_ID_BYTES, save_id))
        return FAIL(err, SIDESTEP_EINVAL,
                    "index of chunks: the save id is not 32 hexadecimal digits");
    size_t begin = e->list->bytes.length;
    put_table(e, save_id, &e->list->bytes);
    TRY(buffer_check(&e->list->bytes, err));
    size_t table_bytes = e->list->bytes.length - begin;
    if (table_bytes > CHUNK_INDEX_MAX_TABLE_BYTES)
        return SIDESTEP_OK;
    hash_sha256(e->list->bytes.bytes + begin, table_bytes, index->table_sha256);
    index->table_bytes = table_bytes;
    index->bytes = e->list->bytes.length;
    *out = e->list->bytes;
    e->list->bytes = (struct buffer){0};
    return SIDESTEP_OK;
}

enum sidestep_status chunk_index_encode(const struct metadata *metadata, struct manifest *manifest,
                                        struct buffer *out, struct sidestep_error *err)
{
    OWNED_BY(encoder_release) struct encoder e = {.metadata = metadata, .manifest = manifest};

    assert(out->length == 0);
    manifest->index = (struct manifest_index){0};
    return encode(&e, out, err);
}
