/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_item_read.c -- see reader.h: reading one stored item as a whole into memory. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "checkpoint/foreign.h"
#include "checkpoint/reader.h"

enum sidestep_status reader_item_check_not_sparse(const struct reader_item *item, uint64_t bytes,
                                                  struct sidestep_error *err)
{
    uint64_t stored = item->file->stat.stored;

    if (bytes <= READER_MAX_OBJECT_BYTES || stored == 0 ||
        bytes / READER_MAX_SPARSE_FACTOR <= stored)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_ECORRUPT,
                "it is to have %llu bytes, but its file takes %llu on the medium: nearly all of it "
                "are holes",
                (unsigned long long)bytes, (unsigned long long)stored);
}

uint64_t reader_item_max_memory(const struct reader_item *item)
{
    if (item->footer != NULL && item->transform != NULL)
        return item->footer->raw_bytes;
    uint64_t decoded = item->transform != NULL ? zstd_max_memory(item->bytes, item->raw_limit) : 0;

    return item->bytes + decoded;
}

static enum sidestep_status put_bytes(void *context, uint64_t begin, const uint8_t *bytes,
                                      uint64_t length, struct sidestep_error *err)
{
    (void)err;
    memcpy((uint8_t *)context + begin, bytes, length);
    return SIDESTEP_OK;
}

/* An object of ours with a transform: into exactly as much memory as it says it has. */
static enum sidestep_status decoded_bytes(const struct reader_item *item, void **bytes,
                                          size_t *length, struct sidestep_error *err)
{
    uint64_t raw_bytes = item->footer->raw_bytes;

    if (raw_bytes > item->raw_limit)
        return FAIL(err, SIDESTEP_ECORRUPT, "it is to have %llu bytes, at most %llu can be right",
                    (unsigned long long)raw_bytes, (unsigned long long)item->raw_limit);
    OWNED uint8_t *decoded = memory_new(raw_bytes, 1);
    struct reader_sink place = {.put = put_bytes, .context = decoded, .plain = decoded};
    if (decoded == NULL)
        return FAIL_NOMEM(err, raw_bytes);
    TRY(reader_item_decode(item, &place, err));
    *bytes = TAKE(decoded);
    *length = raw_bytes;
    return SIDESTEP_OK;
}

enum sidestep_status reader_item_read(const struct reader_item *item, void **bytes, size_t *length,
                                      struct sidestep_error *err)
{
    /* Nothing grows by more than this when it is compressed: a hole in the file is no such item. */
    uint64_t most = item->raw_limit + item->raw_limit / 64 + READER_MAX_ENVELOPE_BYTES;

    if (item->footer != NULL && item->transform != NULL)
        return decoded_bytes(item, bytes, length, err);
    if (item->transform != NULL && item->bytes > most)
        return FAIL(err, SIDESTEP_ECORRUPT, "it has %llu stored bytes, at most %llu can be right",
                    (unsigned long long)item->bytes, (unsigned long long)most);
    if (item->object != NULL)
        return foreign_object_encode(item->object, bytes, length, err);
    TRY(reader_item_check_not_sparse(item, item->bytes, err));
    OWNED uint8_t *stored = memory_new(item->bytes, 1);
    if (stored == NULL)
        return FAIL_NOMEM(err, item->bytes);
    if (item->bytes != 0)
        TRY(source_read(&item->file->source, stored, item->bytes, item->offset, err));
    if (item->blocks != NULL && item->footer->is_object)
        TRY(reader_check_blocks(item, 0, stored, item->bytes, err));
    if (item->transform == NULL) {
        *length = item->bytes;
        *bytes = TAKE(stored);
        return SIDESTEP_OK;
    }
    if (strncmp(item->transform, "stream.zstd", 11) != 0 || strchr(item->transform, ',') != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "transform '%s'", item->transform);
    return zstd_decode(stored, item->bytes, item->raw_limit, bytes, length, err);
}
