/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_rebuild.h -- what the pickle of a tensor says, without rebuilding anything. */
#ifndef FORMAT_ARCHIVE_REBUILD_H
#define FORMAT_ARCHIVE_REBUILD_H

#include "format/archive.h"
#include "format/pickle.h"

/* The storage that the tensor is a view of. */
struct archive_storage {
    const char *key; /* its bytes are the member data/<key>; lives as long as the nodes */
    uint64_t bytes;
};

/*
 * Fill ${tensor} (data_*, has_crc and swapped left alone) from ${root}.  Every element that it
 * addresses lies inside the storage.  ECORRUPT; EUNSUPPORTED: torch's, but not a plain tensor;
 * EUNSAFE: not torch's.
 */
enum sidestep_status archive_rebuild_parse_tensor(const struct pickle_node *root,
                                                  struct archive_tensor *tensor,
                                                  struct archive_storage *storage,
                                                  struct sidestep_error *err);

#endif
