/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd_fuzz.c -- feeds any compressed item to the decoder; the output must stay within its limit.
 */
#include <assert.h>
#include <stdlib.h>

#include "codec/zstd.h"

#define MAX_BYTES ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sidestep_error err = {0};
    void *raw = NULL;
    size_t raw_bytes = 0;
    enum sidestep_status status = zstd_decode(data, size, MAX_BYTES, &raw, &raw_bytes, &err);

    assert((status == SIDESTEP_OK) == (raw != NULL));
    assert(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT || status == SIDESTEP_ENOMEM);
    assert(raw_bytes <= MAX_BYTES);
    free(raw);
    return 0;
}
