/* SPDX-License-Identifier: BSD-3-Clause */
/* store_places.h -- where the bytes of one read go, if they go to several places. */
#ifndef STORE_STORE_PLACES_H
#define STORE_STORE_PLACES_H

#include "base/base.h"

/* The next ${bytes} of the read go to ${memory}; NULL: to the memory for the rest. */
struct store_place {
    void *memory;
    size_t bytes;
};

struct store_places {
    const struct store_place *list;
    size_t count;
    void *rest; /* what has no memory of its own, one behind the other; NULL: all have */
};

/* How far a read has come. */
struct store_places_cursor {
    size_t at;        /* in the list */
    size_t put;       /* bytes of that place */
    size_t rest_used; /* bytes of ${rest} */
};

uint64_t store_places_bytes(const struct store_places *places);
/* Memory for the next bytes, up to ${*bytes}, which becomes what of it is in one piece.  There must
 * be room for them. */
void *store_places_next(const struct store_places *places, struct store_places_cursor *cursor,
                        size_t *bytes);
/* Put the next ${bytes}.  There must be room for them. */
void store_places_put(const struct store_places *places, struct store_places_cursor *cursor,
                      const void *from, size_t bytes);

#endif
