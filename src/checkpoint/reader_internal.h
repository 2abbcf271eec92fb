/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_internal.h -- internal header of reader.h: steps of opening a checkpoint. */
#ifndef CHECKPOINT_READER_INTERNAL_H
#define CHECKPOINT_READER_INTERNAL_H

#include "checkpoint/reader.h"

/* Does what the footer of ${file} says of an item (NULL: it has none there) agree with the
 * metadata?
 * ${box}: NULL: it is an object. */
enum sidestep_status reader_check_item(const struct reader *r, const struct reader_file *file,
                                       const struct footer_item *item,
                                       const struct metadata_entry *entry,
                                       const struct metadata_storage *storage,
                                       const struct box *box, struct sidestep_error *err);
/* Check this of all items. Those in damaged files are passed over. */
enum sidestep_status reader_check_items(struct reader *r, struct sidestep_error *err);

#endif
