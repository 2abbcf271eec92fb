/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_pickle.h -- writes the data.pkl of a tensor, as torch.save() does. */
#ifndef FORMAT_ARCHIVE_PICKLE_H
#define FORMAT_ARCHIVE_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "sidestep/sidestep.h"

/* A row-major tensor with checked sizes. */
struct archive_plain_tensor {
    enum sidestep_dtype dtype;
    uint32_t ndim;
    const int64_t *lengths;
    int64_t strides[SIDESTEP_MAX_NDIM]; /* as in torch: a dimension of 0 counts as 1 */
    uint64_t elements;
    uint64_t bytes;
};

/* Enough for 64 lengths and strides of 10 bytes each, and for 400 bytes around them. */
#define ARCHIVE_PICKLE_BUFFER_BYTES 2048u

/* Write the pickle to ${bytes}, and return its length. */
size_t archive_pickle_write_tensor(const struct archive_plain_tensor *tensor,
                                   uint8_t bytes[ARCHIVE_PICKLE_BUFFER_BYTES]);

#endif
