/* SPDX-License-Identifier: BSD-3-Clause */
/* storage_crc.c -- combines CRC32s of byte ranges; see storage_crc.h. */
#include "load/storage_crc.h"

#include <stdlib.h>

#include "base/base.h"
#include "codec/codec.h"

struct storage_crc_part {
    uint64_t begin;
    uint64_t bytes;
    uint32_t crc;
};

enum sidestep_status storage_crc_add(struct storage_crc *s, uint64_t begin, uint64_t bytes,
                                     uint32_t crc, struct sidestep_error *err)
{
    TRY_GROW(s->parts, s->capacity, s->count, err);
    s->parts[s->count++] = (struct storage_crc_part){.begin = begin, .bytes = bytes, .crc = crc};
    return SIDESTEP_OK;
}

/* Sort by begin, and then the longest first. */
static int compare_parts(const void *a, const void *b)
{
    const struct storage_crc_part *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

enum sidestep_status storage_crc_finish(struct storage_crc *s, uint64_t bytes,
                                        enum sidestep_status (*read)(void *context, uint64_t begin,
                                                                     uint64_t bytes, uint32_t *crc,
                                                                     struct sidestep_error *err),
                                        void *context, uint32_t *crc, struct sidestep_error *err)
{
    uint64_t at = 0;

    *crc = 0;
    if (s->count != 0)
        qsort(s->parts, s->count, sizeof(*s->parts), compare_parts);
    for (size_t i = 0; i < s->count; i++) {
        const struct storage_crc_part *part = &s->parts[i];

        if (part->begin < at)
            continue; /* views overlap */
        if (part->begin > at)
            TRY(read(context, at, part->begin - at, crc, err));
        *crc = hash_crc32_combine(*crc, part->crc, part->bytes);
        at = part->begin + part->bytes;
    }
    return at < bytes ? read(context, at, bytes - at, crc, err) : SIDESTEP_OK;
}

void storage_crc_release(struct storage_crc *s)
{
    free(s->parts);
    *s = (struct storage_crc){0};
}
