/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * manifest_fuzz.c -- feeds any manifest to the parser: as it is, and with the correct hash of its
 * first line. An accepted one must mean the same after it was written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "format/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

unsigned long fuzz_accepted; /* see replay_main.c */

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void try_manifest(const void *bytes, size_t size)
{
    OWNED_ARENA arena = {.limit_bytes = (size_t)64 << 20};
    OWNED_BUFFER once = {0}, twice = {0};
    struct manifest manifest, again;

    if (manifest_decode(bytes, size, &arena, &manifest, NULL) != SIDESTEP_OK)
        return;
    fuzz_accepted++;
    expect(manifest_encode(&manifest, &once, NULL) == SIDESTEP_OK);
    expect(manifest_decode(once.bytes, once.length, &arena, &again, NULL) == SIDESTEP_OK);
    expect(manifest_encode(&again, &twice, NULL) == SIDESTEP_OK);
    expect(once.length == twice.length && memcmp(once.bytes, twice.bytes, once.length) == 0);
    expect(strcmp(manifest.save_id, again.save_id) == 0);
    expect(manifest.step == again.step && manifest.incarnation == again.incarnation);
    expect(manifest.saved_at == again.saved_at && manifest.file_count == again.file_count);
    for (size_t i = 0; i < manifest.file_count; i++) {
        expect(strcmp(manifest.files[i].name, again.files[i].name) == 0);
        expect(manifest.files[i].bytes == again.files[i].bytes);
    }
    expect(manifest.extra_count == again.extra_count);
    for (size_t i = 0; i < manifest.extra_count; i++) {
        expect(strcmp(manifest.extras[i].name, again.extras[i].name) == 0);
        expect(manifest.extras[i].is_alias == again.extras[i].is_alias);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size != 0 ? memchr(data, '\n', size) : NULL;
    uint8_t digest[HASH_SHA256_BYTES];
    char hex[2 * HASH_SHA256_BYTES + 1];
    OWNED_BUFFER fixed = {0};

    if (size != 0)
        try_manifest(data, size);
    buffer_put(&fixed, data, newline != NULL ? (size_t)(newline - data) : size);
    buffer_put_u8(&fixed, '\n');
    if (fixed.failed)
        return 0;
    hash_sha256(fixed.bytes, fixed.length, digest);
    hash_to_hex(digest, sizeof(digest), hex);
    buffer_printf(&fixed, "sha256 %s\n", hex);
    if (!fixed.failed)
        try_manifest(fixed.bytes, fixed.length);
    return 0;
}
