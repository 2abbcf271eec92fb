/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safetensors_fuzz.c -- feeds any header or index of safetensors to the parser. An accepted one
 * must mean the same after it was written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

/* Every tensor must be within the file. */
static void check_places(const struct safetensors *found, uint64_t file_bytes)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct safetensors_tensor *t = &found->tensors[i];

        expect(t->offset <= file_bytes && t->bytes <= file_bytes - t->offset);
        expect(t->name[0] != '\0' && sidestep_dtype_size(t->dtype) != 0);
    }
}

static void write_again(const struct safetensors *once)
{
    OWNED_ARENA arena = {.limit_bytes = (size_t)64 << 20};
    OWNED_BUFFER file = {0};
    struct safetensors twice;

    if (safetensors_write_header(once->tensors, once->count, &file, NULL) != SIDESTEP_OK)
        return; /* "__metadata__" is not a tensor's name */
    for (size_t i = 0; i < once->count; i++)
        if (once->tensors[i].bytes > (1u << 20))
            return;
    for (size_t i = 0; i < once->count; i++)
        for (uint64_t b = 0; b < once->tensors[i].bytes; b++)
            buffer_put_u8(&file, 0);
    struct source source = source_from_memory(file.bytes, file.length);
    expect(safetensors_read_header(&source, &arena, &twice, NULL) == SIDESTEP_OK);
    expect(twice.count == once->count);
    for (size_t i = 0; i < once->count; i++) {
        const struct safetensors_tensor *a = &once->tensors[i], *b = &twice.tensors[i];

        expect(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->ndim == b->ndim);
        expect(a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    OWNED_ARENA arena = {.limit_bytes = (size_t)64 << 20};
    struct source source = source_from_memory(data, size);
    struct safetensors found;
    struct safetensors_index_entry *places;
    size_t count;

    if (safetensors_read_header(&source, &arena, &found, NULL) == SIDESTEP_OK) {
        check_places(&found, size);
        write_again(&found);
    }
    char *text = arena_new(&arena, size + 1, 1);
    if (text == NULL)
        return 0;
    if (size != 0)
        memcpy(text, data, size);
    if (strlen(text) == size &&
        safetensors_index_read(text, &arena, &places, &count, NULL) == SIDESTEP_OK)
        for (size_t i = 0; i < count; i++)
            expect(strchr(places[i].file, '/') == NULL && strcmp(places[i].file, "..") != 0);
    return 0;
}
