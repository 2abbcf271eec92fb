/* SPDX-License-Identifier: BSD-3-Clause */
/* store_places.c -- see store_places.h. */
#include "store/store_places.h"

#include <assert.h>
#include <string.h>

#include "store/store.h"

uint64_t store_places_bytes(const struct store_places *places)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < places->count; i++)
        bytes += places->list[i].bytes;
    return bytes;
}

void *store_places_next(const struct store_places *places, struct store_places_cursor *cursor,
                        size_t *bytes)
{
    while (cursor->index < places->count && cursor->filled == places->list[cursor->index].bytes) {
        cursor->index++;
        cursor->filled = 0;
    }
    assert(cursor->index < places->count);
    const struct store_place *place = &places->list[cursor->index];
    uint8_t *to = place->memory != NULL ? (uint8_t *)place->memory + cursor->filled
                                        : (uint8_t *)places->rest + cursor->rest_used;

    *bytes = (size_t)min_u64(*bytes, place->bytes - cursor->filled);
    cursor->filled += *bytes;
    if (place->memory == NULL)
        cursor->rest_used += *bytes;
    return to;
}

void store_places_put(const struct store_places *places, struct store_places_cursor *cursor,
                      const void *from, size_t bytes)
{
    const uint8_t *next = from;

    while (bytes != 0) {
        size_t piece = bytes;
        void *to = store_places_next(places, cursor, &piece);
        memcpy(to, next, piece);
        next += piece;
        bytes -= piece;
    }
}

enum sidestep_status store_file_read_places(struct store_file *file,
                                            const struct store_places *places, uint64_t offset,
                                            struct sidestep_error *err)
{
    const struct store_ops *ops = STORE_OPS_OF(file);
    struct store_places_cursor cursor = {0};

    if (ops->file_read_places != NULL)
        return ops->file_read_places(file, places, offset, err);
    for (uint64_t left = store_places_bytes(places); left != 0;) {
        size_t piece = left;
        void *to = store_places_next(places, &cursor, &piece);
        TRY(ops->file_read_at(file, to, piece, offset, err));
        offset += piece;
        left -= piece;
    }
    return SIDESTEP_OK;
}
