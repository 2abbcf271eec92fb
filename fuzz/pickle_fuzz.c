/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_fuzz.c -- feeds any pickle to the parser. A decoded value must be the same after it was
 * written and read again, in memory that is bounded by the size of the input.
 */
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "format/pickle.h"

/* One byte can ask for a node of 48 bytes, twice in a growing array; and there is a fixed part. */
#define MEMORY_PER_BYTE 128u
#define MEMORY_SLACK ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static enum sidestep_status read_value(const void *bytes, size_t length,
                                       struct sidestep_value **value)
{
    OWNED_ARENA arena = {0};
    struct pickle_node *root;
    struct sidestep_error err;

    enum sidestep_status status = pickle_parse(&arena, bytes, length, NULL, &root, &err);
    expect(arena.used_bytes <= MEMORY_SLACK + MEMORY_PER_BYTE * length);
    TRY(status);
    expect(root->depth <= PICKLE_MAX_DEPTH);
    return pickle_to_value(root, value, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    OWNED_BY(sidestep_value_free) struct sidestep_value *value = NULL;
    OWNED_BY(sidestep_value_free) struct sidestep_value *again = NULL;
    OWNED_BUFFER once = {0};
    OWNED_BUFFER twice = {0};

    if (read_value(data, size, &value) != SIDESTEP_OK)
        return 0;
    if (pickle_write_value(&once, value, NULL) != SIDESTEP_OK)
        return 0; /* it has an OPAQUE, say */
    expect(read_value(once.bytes, once.length, &again) == SIDESTEP_OK);
    expect(value_equal(value, again));
    expect(pickle_write_value(&twice, again, NULL) == SIDESTEP_OK);
    expect(once.length == twice.length && memcmp(once.bytes, twice.bytes, once.length) == 0);
    return 0;
}
