/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_item.c -- locates and checks one stored item; see reader.h. */
#include <string.h>

#include "base/base.h"
#include "checkpoint/foreign.h"
#include "checkpoint/reader_internal.h"

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

enum sidestep_status reader_refuse_dtype(const struct metadata_entry *entry,
                                         struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "'%s' has dtype %s, and tensors of this dtype cannot be read",
                display_name(entry->name).text, display_name(entry->dtype_name).text);
}

static void from_tensor(const struct metadata_entry *entry, const struct box *box,
                        const struct archive_tensor *tensor, struct reader_item *out)
{
    uint64_t item_bytes = sidestep_dtype_size(entry->dtype);

    out->ranged = tensor->row_major && !tensor->swapped && !tensor->conjugate && !tensor->negative;
    out->storage_offset = out->offset + tensor->data_offset;
    out->storage_bytes = tensor->data_bytes;
    out->data_offset = out->storage_offset + tensor->storage_offset * item_bytes;
    out->data_bytes = box_volume(box) * item_bytes; /* box_check() made sure that this fits */
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

/* Does reader_locate_item() fail with ${status} because of what the item holds? */
static bool is_other_kind(enum sidestep_status status)
{
    return status == SIDESTEP_EUNSUPPORTED || status == SIDESTEP_EUNSAFE;
}

/* Fill an item of a foreign file, which has no archive around its data. */
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

/* A truncated stock file may be read: its items have as many checks as those of a whole one. */
static bool may_be_read(const struct reader *reader, const struct reader_file *file)
{
    return file->problem == NULL ||
           (reader_file_has_wrong_size(file) &&
            ((reader->flags & READER_SALVAGE) != 0 || !reader->has_manifest));
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
    TRY(reader_admit_file(reader, out->file, err));
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
    if (status == SIDESTEP_OK && reader->opens_late && reader->has_manifest)
        status = reader_check_item(reader, out->file, out->footer, entry, storage, box, err);
    if (status == SIDESTEP_OK && !entry->is_object && entry->dtype == SIDESTEP_DTYPE_NONE) {
        out->is_other_kind = true;
        out->raw_limit = READER_MAX_OBJECT_BYTES;
        return reader_refuse_dtype(entry, err);
    }
    if (status == SIDESTEP_OK && entry->unreadable != NULL)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "%s", entry->unreadable);
    if (status == SIDESTEP_OK && reader->foreign != NULL)
        from_foreign(reader, entry, box, out);
    else if (status == SIDESTEP_OK && out->footer != NULL)
        *out = reader_item_from_footer(out->file, out->footer);
    else if (status == SIDESTEP_OK && !entry->is_object && out->transform == NULL) {
        status = from_archive(entry, box, out, err);
        out->is_other_kind = is_other_kind(status);
    }
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
