/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_item_read.c -- reads one stored item as a whole into memory; see reader.h. */
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
                "its size is given as %llu bytes, but its file occupies %llu on the medium: nearly "
                "all of it is holes",
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

/* Decode an object written by sidestep into exactly as much memory as its footer says. */
static enum sidestep_status decoded_bytes(const struct reader_item *item, void **bytes,
                                          size_t *length, struct sidestep_error *err)
{
    uint64_t raw_bytes = item->footer->raw_bytes;

    if (raw_bytes > item->raw_limit)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "its decoded size is given as %llu bytes, which is more than %llu",
                    (unsigned long long)raw_bytes, (unsigned long long)item->raw_limit);
    OWNED uint8_t *decoded = memory_new(raw_bytes, 1);
    struct reader_sink target = {.put = put_bytes, .context = decoded, .plain = decoded};
    if (decoded == NULL)
        return FAIL_NOMEM(err, raw_bytes);
    TRY(reader_item_decode(item, &target, err));
    *bytes = TAKE(decoded);
    *length = raw_bytes;
    return SIDESTEP_OK;
}

enum sidestep_status reader_item_read(const struct reader_item *item, void **bytes, size_t *length,
                                      struct sidestep_error *err)
{
    /* No compressed item is larger than this. */
    uint64_t max_stored = item->raw_limit + item->raw_limit / 64 + READER_MAX_ENVELOPE_BYTES;

    if (item->footer != NULL && item->transform != NULL)
        return decoded_bytes(item, bytes, length, err);
    if (item->transform != NULL && item->bytes > max_stored)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "its stored size is given as %llu bytes, which is more than %llu",
                    (unsigned long long)item->bytes, (unsigned long long)max_stored);
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
