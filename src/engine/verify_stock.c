/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_stock.c -- see verify_stock.h. */
#include "engine/verify_stock.h"

#include "base/owned.h"

static enum sidestep_status check_transformed(const struct reader_item *item,
                                              const struct metadata_entry *entry,
                                              const struct box *box, struct sidestep_error *err)
{
    OWNED void *bytes = NULL;
    size_t length = 0;
    struct archive_tensor tensor;

    TRY(reader_item_bytes(item, &bytes, &length, err));
    struct source source = source_over_memory(bytes, length);
    TRY(archive_check(&source, 0, length, err));
    if (entry->is_object)
        return SIDESTEP_OK;
    TRY(archive_tensor_read(&source, 0, length, &tensor, err));
    return reader_check_tensor(&tensor, entry, box, err);
}

enum sidestep_status verify_stock_item(struct reader *reader, const struct metadata_entry *entry,
                                       const struct metadata_storage *storage,
                                       const struct box *box, struct sidestep_error *err)
{
    struct reader_item item;

    TRY(reader_item(reader, entry, storage, box, &item, err));
    if (item.transform != NULL)
        return check_transformed(&item, entry, box, err);
    return archive_check(&item.file->source, item.offset, item.bytes, err);
}
