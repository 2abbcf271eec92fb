/* SPDX-License-Identifier: BSD-3-Clause */
/* storage_crc.h -- computes the CRC32 of a storage from the CRC32s of byte ranges that were read in
 * any order.  Ranges that were not read are read at the end. */
#ifndef LOAD_STORAGE_CRC_H
#define LOAD_STORAGE_CRC_H

#include "base/base.h"

struct storage_crc {
    struct storage_crc_part *parts;
    size_t count, capacity;
};

/* Add the CRC of bytes [begin, begin + bytes). */
enum sidestep_status storage_crc_add(struct storage_crc *s, uint64_t begin, uint64_t bytes,
                                     uint32_t crc, struct sidestep_error *err);
/* Compute the CRC of bytes [0, bytes).  ${read} continues ${*crc} with bytes [begin, begin +
 * bytes), which were not added. */
enum sidestep_status storage_crc_finish(struct storage_crc *s, uint64_t bytes,
                                        enum sidestep_status (*read)(void *context, uint64_t begin,
                                                                     uint64_t bytes, uint32_t *crc,
                                                                     struct sidestep_error *err),
                                        void *context, uint32_t *crc, struct sidestep_error *err);
void storage_crc_release(struct storage_crc *s);

#endif
