/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_pickle.h -- data.pkl of a tensor, as torch.save() writes it. */
#ifndef FORMAT_ARCHIVE_PICKLE_H
#define FORMAT_ARCHIVE_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

/* A row-major tensor whose sizes have been checked. */
struct archive_plain_tensor {
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *lengths;
    int64_t strides[SIDESTEP_MAX_NDIM]; /* torch's: a dimension of 0 counts as 1 */
    uint64_t elements;
    uint64_t bytes;
};

/* Room for 64 dimensions and strides of 10 bytes each, and for 400 bytes around them. */
#define ARCHIVE_PICKLE_BUFFER_BYTES 2048u

/* Returns the pickle's length. */
size_t archive_pickle_write_tensor(const struct archive_plain_tensor *tensor,
                                   uint8_t bytes[ARCHIVE_PICKLE_BUFFER_BYTES]);

#endif
