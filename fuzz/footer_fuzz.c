/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * footer_fuzz.c -- feeds any footer to the parser. The input is the end of a file; the items
 * before it are zeroes. It is tried as it is, and with correct hashes, because no fuzzer finds
 * these. An accepted footer must be one that the library would write.
 */
#include <stdlib.h>
#include <string.h>

#include "format/footer.h"

/* Bytes of items: few, because the gap after the last item is limited, and many. */
static const uint64_t items_bytes[] = {(uint64_t)1 << 20, (uint64_t)1 << 40};
#define MAGIC_BYTES 8u
/* In the trailer; see docs/FORMAT.md. */
#define TRAILER_LENGTH_AT 32u
#define TRAILER_HASH_AT 40u
#define TRAILER_OWN_HASH_AT 56u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

unsigned long fuzz_accepted; /* see replay_main.c */

struct tail {
    struct source source;
    uint64_t items_bytes;
    const uint8_t *bytes;
};

static enum sidestep_status tail_read_at(const struct source *source, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err)
{
    const struct tail *tail = source->context;

    (void)err;
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] =
            offset + i < tail->items_bytes ? 0 : tail->bytes[offset + i - tail->items_bytes];
    return SIDESTEP_OK;
}

static void put_le64(uint8_t *to, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static void try_items(const uint8_t *bytes, size_t size, uint64_t items)
{
    struct tail tail = {.source = {.length = items + size, .read_at = tail_read_at},
                        .items_bytes = items,
                        .bytes = bytes};
    OWNED_ARENA arena = {.limit_bytes = (size_t)64 << 20};
    OWNED_BUFFER again = {0};
    struct footer footer;
    uint8_t sha256[HASH_SHA256_BYTES];

    tail.source.context = &tail;
    if (footer_read(&tail.source, &arena, &footer, sha256, NULL) != SIDESTEP_OK)
        return;
    fuzz_accepted++;
    uint64_t encoded = footer_encoded_bytes(&footer);
    if (footer_encode(&footer, items + size, &again, NULL) != SIDESTEP_OK ||
        again.length != encoded)
        abort();
    /* The bytes of an unknown feature, after the hashes, cannot be written again. */
    const uint64_t written = FOOTER_OPTIONAL_INT_KEYS | FOOTER_OPTIONAL_EXTRAS;
    if ((footer.optional_features & ~written) != 0)
        return;
    if (encoded > size || memcmp(bytes + size - encoded, again.bytes, again.length) != 0)
        abort();
}

static void try_file(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < sizeof(items_bytes) / sizeof(items_bytes[0]); i++)
        try_items(bytes, size, items_bytes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_file(data, size);
    if (size < FOOTER_TRAILER_BYTES)
        return 0;
    uint8_t *fixed = malloc(size);
    if (fixed == NULL)
        return 0;
    memcpy(fixed, data, size);
    uint8_t *trailer = fixed + size - FOOTER_TRAILER_BYTES;
    memcpy(trailer, "SIDESTEP", MAGIC_BYTES);
    put_le64(trailer + TRAILER_LENGTH_AT, size - FOOTER_TRAILER_BYTES);
    put_le64(trailer + TRAILER_HASH_AT, hash_block(fixed, size - FOOTER_TRAILER_BYTES));
    put_le64(trailer + TRAILER_OWN_HASH_AT, hash_block(trailer, TRAILER_OWN_HASH_AT));
    try_file(fixed, size);
    free(fixed);
    return 0;
}
