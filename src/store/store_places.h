/* SPDX-License-Identifier: BSD-3-Clause */
/* store_places.h -- spreads the bytes of one read over several places in memory. */
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
    void *rest; /* for the places without memory, one behind the other; NULL: all have memory */
};

/* The place of the next byte of a read. */
struct store_places_cursor {
    size_t index;     /* in the list */
    size_t filled;    /* bytes of that place */
    size_t rest_used; /* bytes of ${rest} */
};

uint64_t store_places_bytes(const struct store_places *places);
/* Return the place of the next byte, and reduce ${*bytes} to what is contiguous there.  The places
 * must have room for a byte. */
void *store_places_next(const struct store_places *places, struct store_places_cursor *cursor,
                        size_t *bytes);
/* Copy the next ${bytes} to their places, which must have room for them. */
void store_places_put(const struct store_places *places, struct store_places_cursor *cursor,
                      const void *from, size_t bytes);

#endif
