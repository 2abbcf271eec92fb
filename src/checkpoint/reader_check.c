/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_check.c -- compares .metadata with the footers of the files; see reader_internal.h. */
#include <string.h>

#include "base/base.h"
#include "checkpoint/reader_internal.h"

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

static bool has_transform(const struct reader_file *file, const struct footer_item *item,
                          const char *transform)
{
    if (item->transform == 0 || transform == NULL)
        return item->transform == 0 && transform == NULL;
    return strcmp(file->footer.transforms[item->transform - 1], transform) == 0;
}

enum sidestep_status reader_check_item(const struct reader *r, const struct reader_file *file,
                                       const struct footer_item *item,
                                       const struct metadata_entry *entry,
                                       const struct metadata_storage *storage,
                                       const struct box *box, struct sidestep_error *err)
{
    if (item != NULL && item->bytes == storage->length && strcmp(item->name, entry->name) == 0 &&
        has_transform(file, item, storage->transform) && item->is_object == entry->is_object &&
        (entry->is_object ||
         (item->dtype == entry->dtype && item->ndim == entry->ndim &&
          memcmp(item->shape, entry->shape, entry->ndim * sizeof(*entry->shape)) == 0 &&
          box_equal(&item->box, box))))
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT, "%s and the footer of the file do not agree",
                r->has_index ? "the index of chunks" : FILE_NAME_METADATA);
}

static enum sidestep_status check_item(struct reader *r, const struct metadata_entry *entry,
                                       const struct metadata_storage *storage,
                                       const struct box *box, struct sidestep_error *err)
{
    const struct reader_file *file = &r->files[hash_table_find(&r->file_names, storage->file)];

    if (file->problem != NULL)
        return SIDESTEP_OK; /* it is reported for the whole file */
    enum sidestep_status status = reader_check_item(
        r, file, reader_find_footer_item(file, storage->offset), entry, storage, box, err);
    if (status != SIDESTEP_OK)
        reader_blame(err, entry->name, file);
    return status;
}

enum sidestep_status reader_check_items(struct reader *r, struct sidestep_error *err)
{
    for (size_t i = 0; i < r->metadata.count; i++) {
        const struct metadata_entry *entry = &r->metadata.entries[i];
        if (entry->is_object)
            TRY(check_item(r, entry, &entry->storage, NULL, err));
        for (size_t c = 0; c < entry->chunk_count; c++)
            TRY(check_item(r, entry, &entry->chunks[c].storage, &entry->chunks[c].box, err));
    }
    return SIDESTEP_OK;
}
