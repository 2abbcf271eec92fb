/* SPDX-License-Identifier: BSD-3-Clause */
/* storage_crc.h -- the CRC32 of a storage, from those of stretches of it that were read in any
 * order; what nobody has read is read in the end. */
#ifndef LOAD_STORAGE_CRC_H
#define LOAD_STORAGE_CRC_H

#include "base/base.h"

struct storage_crc {
    struct storage_crc_part *parts;
    size_t count, room;
};

/* Bytes [begin, begin + bytes) have this CRC. */
enum sidestep_status storage_crc_add(struct storage_crc *s, uint64_t begin, uint64_t bytes,
                                     uint32_t crc, struct sidestep_error *err);
/* The CRC of bytes [0, bytes).  ${read}: that of [begin, begin + bytes), which it goes on with. */
enum sidestep_status storage_crc_finish(struct storage_crc *s, uint64_t bytes,
                                        enum sidestep_status (*read)(void *context, uint64_t begin,
                                                                     uint64_t bytes, uint32_t *crc,
                                                                     struct sidestep_error *err),
                                        void *context, uint32_t *crc, struct sidestep_error *err);
void storage_crc_release(struct storage_crc *s);

#endif
