/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_stock.h -- checking an item that torch wrote, as far as it can be checked. */
#ifndef ENGINE_VERIFY_STOCK_H
#define ENGINE_VERIFY_STOCK_H

#include "commit/reader.h"

/* Structure, agreement with the metadata, and every CRC32 that was written.  ${box}: NULL for
 * objects. */
enum sidestep_status verify_stock_item(struct reader *reader, const struct metadata_entry *entry,
                                       const struct metadata_storage *storage,
                                       const struct box *box, struct sidestep_error *err);

#endif
