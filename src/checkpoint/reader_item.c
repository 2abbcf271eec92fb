/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_item.c -- see reader.h: finding and checking one stored item. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/owned.h"
#include "codec/zstd.h"
#include "checkpoint/foreign.h"
#include "checkpoint/reader.h"
#include "model/display.h"

enum sidestep_status reader_check_tensor(const struct archive_tensor *tensor,
                                         const struct metadata_entry *entry, const struct box *box,
                                         struct sidestep_error *err)
{
    if (tensor->dtype != entry->dtype)
        return FAIL(err, SIDESTEP_ECORRUPT, "the stored tensor is %s, the metadata says %s",
                    sidestep_dtype_name(tensor->dtype), entry->dtype_name);
    if (tensor->ndim != box->ndim ||
        memcmp(tensor->shape, box->lengths, box->ndim * sizeof(*box->lengths)) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the stored tensor has another shape than its chunk");
    return SIDESTEP_OK;
}

struct reader_item reader_item_from_footer(struct reader_file *file,
                                           const struct footer_item *footer)
{
    bool plain = footer->transform == 0;

    return (struct reader_item){
        .file = file,
        .offset = footer->offset,
        .bytes = footer->bytes,
        .footer = footer,
        .ranged = plain,
        .data_offset = footer->offset + (plain ? footer->data_offset : 0),
        .data_bytes = footer->data_bytes,
        .blocks = footer->blocks,
        .transform = plain ? NULL : file->footer.transforms[footer->transform - 1],
        .raw_limit = footer->is_object ? READER_MAX_OBJECT_BYTES : footer->raw_bytes,
    };
}

static void from_tensor(const struct metadata_entry *entry, const struct box *box,
                        const struct archive_tensor *tensor, struct reader_item *out)
{
    uint64_t item_bytes = sidestep_dtype_size(entry->dtype);

    out->ranged = tensor->row_major && !tensor->swapped && !tensor->conjugate && !tensor->negative;
    out->storage_offset = out->offset + tensor->data_offset;
    out->storage_bytes = tensor->data_bytes;
    out->data_offset = out->storage_offset + tensor->storage_offset * item_bytes;
    out->data_bytes = box_volume(box) * item_bytes; /* box_check() saw to it that this fits */
    out->has_crc = tensor->has_crc;
    out->storage_crc = tensor->data_crc;
}

enum sidestep_status reader_item_read_archive(const struct reader_item *item,
                                              const struct metadata_entry *entry,
                                              const struct box *box, struct archive_tensor *out,
                                              struct sidestep_error *err)
{
    if (item->tensor != NULL) {
        *out = *item->tensor;
        return SIDESTEP_OK;
    }
    TRY(archive_tensor_read(&item->file->source, item->offset, item->bytes, out, err));
    return reader_check_tensor(out, entry, box, err);
}

static enum sidestep_status from_archive(const struct metadata_entry *entry, const struct box *box,
                                         struct reader_item *out, struct sidestep_error *err)
{
    struct archive_tensor tensor;

    TRY(reader_item_read_archive(out, entry, box, &tensor, err));
    from_tensor(entry, box, &tensor, out);
    return SIDESTEP_OK;
}

/* What is no checkpoint has no archive around its data. */
static void from_foreign(const struct reader *reader, const struct metadata_entry *entry,
                         const struct box *box, struct reader_item *out)
{
    const struct foreign_entry *foreign =
        &reader->foreign->entries[entry - reader->metadata.entries];

    if (foreign->tensor != NULL) {
        out->tensor = foreign->tensor;
        out->offset = 0;
        from_tensor(entry, box, foreign->tensor, out);
        return;
    }
    out->object = foreign->object;
    out->is_plain = out->ranged = !entry->is_object;
    out->data_offset = out->offset;
    out->data_bytes = out->bytes;
}

const struct footer_item *reader_find_footer_item(const struct reader_file *file, uint64_t offset)
{
    const struct footer *footer = &file->footer;

    for (size_t low = 0, high = footer->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (footer->items[middle].offset == offset)
            return &footer->items[middle];
        if (footer->items[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct reader_file *find_file(struct reader *reader, const char *name,
                                     const struct reader_item *before)
{
    if (name == NULL)
        return NULL;
    if (before != NULL && before->file->name == name)
        return before->file;
    size_t i = hash_table_find(&reader->file_names, name);
    return i != SIZE_MAX ? &reader->files[i] : NULL;
}

bool reader_file_has_wrong_size(const struct reader_file *file)
{
    return file->problem != NULL && strcmp(file->problem, "size") == 0;
}

/* Of torch's own, a file that was cut short has as much to tell what it is as a whole one. */
static bool may_be_read(const struct reader *reader, const struct reader_file *file)
{
    return file->problem == NULL ||
           (reader_file_has_wrong_size(file) && (reader->salvages || !reader->has_manifest));
}

static const struct footer_item *find_footer(const struct reader_item *item,
                                             const struct reader_item *before)
{
    const struct footer *footer = &item->file->footer;

    if (before != NULL && before->footer != NULL && before->file == item->file) {
        const struct footer_item *next = before->footer + 1;
        if (next < footer->items + footer->count && next->offset == item->offset)
            return next;
    }
    return reader_find_footer_item(item->file, item->offset);
}

enum sidestep_status reader_locate_item(struct reader *reader, const struct metadata_entry *entry,
                                        const struct metadata_storage *storage,
                                        const struct box *box, const struct reader_item *before,
                                        struct reader_item *out, struct sidestep_error *err)
{
    uint64_t end;
    enum sidestep_status status = SIDESTEP_OK;

    *out = (struct reader_item){.offset = storage->offset, .bytes = storage->length};
    out->file = find_file(reader, storage->file, before);
    if (out->file == NULL)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s' has no storage entry", entry->name);
    out->transform = storage->transform;
    out->raw_limit = entry->is_object ? READER_MAX_OBJECT_BYTES
                                      : box_volume(box) * sidestep_dtype_size(entry->dtype) +
                                            READER_MAX_ENVELOPE_BYTES;
    if (!may_be_read(reader, out->file))
        status = FAIL(err, out->file->status, "%s", out->file->message);
    else if (!checked_add(out->offset, out->bytes, &end) || end > out->file->source.length)
        status =
            FAIL(err, SIDESTEP_ECORRUPT, "it ends at byte %llu, after the end of the file (%llu)",
                 (unsigned long long)end, (unsigned long long)out->file->source.length);
    else if (out->file->ours)
        out->footer = find_footer(out, before);
    if (status == SIDESTEP_OK && !entry->is_object && entry->dtype == SIDESTEP_DTYPE_NONE)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "dtype %s", entry->dtype_name);
    if (status == SIDESTEP_OK && entry->unreadable != NULL)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "%s", entry->unreadable);
    if (status == SIDESTEP_OK && reader->foreign != NULL)
        from_foreign(reader, entry, box, out);
    else if (status == SIDESTEP_OK && out->footer != NULL)
        *out = reader_item_from_footer(out->file, out->footer);
    else if (status == SIDESTEP_OK && !entry->is_object && out->transform == NULL)
        status = from_archive(entry, box, out, err);
    if (status != SIDESTEP_OK)
        reader_blame(err, entry->name, out->file);
    return status;
}

void reader_blame(struct sidestep_error *err, const char *name, const struct reader_file *file)
{
    error_wrap(err, "'%s' in file '%s'", display_name(name).text, file->name);
}

enum sidestep_status reader_check_blocks(const struct reader_item *item, uint64_t first,
                                         const void *bytes, uint64_t length,
                                         struct sidestep_error *err)
{
    const uint8_t *at = bytes;

    for (uint64_t done = 0; done < length; done += HASH_BLOCK_BYTES) {
        uint64_t block = first + done / HASH_BLOCK_BYTES;
        uint64_t size = min_u64(HASH_BLOCK_BYTES, length - done);
        if (hash_block(at + done, size) != item->blocks[block])
            return FAIL(err, SIDESTEP_ECORRUPT, "bytes %llu to %llu do not match their hash",
                        (unsigned long long)(item->data_offset + block * HASH_BLOCK_BYTES),
                        (unsigned long long)(item->data_offset + block * HASH_BLOCK_BYTES + size));
    }
    return SIDESTEP_OK;
}

enum sidestep_status reader_item_check_not_sparse(const struct reader_item *item, uint64_t bytes,
                                                  struct sidestep_error *err)
{
    uint64_t stored = item->file->stat.stored;

    if (bytes <= READER_MAX_OBJECT_BYTES || stored == 0 ||
        bytes / READER_MAX_SPARSE_FACTOR <= stored)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT,
                "it is to have %llu bytes, but its file takes %llu on the medium: nearly all of it "
                "are holes",
                (unsigned long long)bytes, (unsigned long long)stored);
}

uint64_t reader_item_max_memory(const struct reader_item *item)
{
    if (item->footer != NULL && item->transform != NULL)
        return item->footer->raw_bytes;
    uint64_t decoded = item->transform != NULL ? zstd_max_memory(item->bytes, item->raw_limit) : 0;

    return item->bytes + decoded;
}

static enum sidestep_status put_bytes(void *context, uint64_t begin, const uint8_t *bytes,
                                      uint64_t length, struct sidestep_error *err)
{
    (void)err;
    memcpy((uint8_t *)context + begin, bytes, length);
    return SIDESTEP_OK;
}

/* An object of ours with a transform: into exactly as much memory as it says it has. */
static enum sidestep_status decoded_bytes(const struct reader_item *item, void **bytes,
                                          size_t *length, struct sidestep_error *err)
{
    uint64_t raw_bytes = item->footer->raw_bytes;

    if (raw_bytes > item->raw_limit)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is to have %llu bytes, at most %llu can be right",
                    (unsigned long long)raw_bytes, (unsigned long long)item->raw_limit);
    OWNED uint8_t *decoded = memory_new(raw_bytes, 1);
    struct reader_sink place = {.put = put_bytes, .context = decoded, .plain = decoded};
    if (decoded == NULL)
        return FAIL_NOMEM(err, raw_bytes);
    TRY(reader_item_decode(item, &place, err));
    *bytes = TAKE(decoded);
    *length = raw_bytes;
    return SIDESTEP_OK;
}

enum sidestep_status reader_item_read(const struct reader_item *item, void **bytes, size_t *length,
                                      struct sidestep_error *err)
{
    /* Nothing grows by more than this when it is compressed: a hole in the file is no such item. */
    uint64_t most = item->raw_limit + item->raw_limit / 64 + READER_MAX_ENVELOPE_BYTES;

    if (item->footer != NULL && item->transform != NULL)
        return decoded_bytes(item, bytes, length, err);
    if (item->transform != NULL && item->bytes > most)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu stored bytes, at most %llu can be right",
                    (unsigned long long)item->bytes, (unsigned long long)most);
    if (item->object != NULL)
        return foreign_object_encode(item->object, bytes, length, err);
    TRY(reader_item_check_not_sparse(item, item->bytes, err));
    OWNED uint8_t *stored = memory_new(item->bytes, 1);
    if (stored == NULL)
        return FAIL_NOMEM(err, item->bytes);
    if (item->bytes != 0)
        TRY(source_read(&item->file->source, stored, item->bytes, item->offset, err));
    if (item->blocks != NULL && item->footer->is_object)
        TRY(reader_check_blocks(item, 0, stored, item->bytes, err));
    if (item->transform == NULL) {
        *length = item->bytes;
        *bytes = TAKE(stored);
        return SIDESTEP_OK;
    }
    if (strncmp(item->transform, "stream.zstd", 11) != 0 || strchr(item->transform, ',') != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "transform '%s'", item->transform);
    return zstd_decode(stored, item->bytes, item->raw_limit, bytes, length, err);
}
