/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torch_fuzz.c -- feeds any file of torch.save() to the parser: as it is, and as a pickle in a zip
 * that is made around it. Every tensor must be within the file.
 */
#include <stdlib.h>

#include "format/torch_file.h"
#include "format/zip_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void try_file(const void *bytes, size_t size)
{
    OWNED_ARENA arena = {0};
    struct source source = source_from_memory(bytes, size);
    struct torch_file found;

    if (torch_file_read(&source, &arena, &found, NULL) != SIDESTEP_OK)
        return;
    for (size_t i = 0; i < found.count; i++) {
        const struct torch_file_entry *e = &found.entries[i];
        OWNED_BUFFER object = {0};

        expect(e->name[0] != '\0' && e->path_length != 0);
        expect((e->tensor != NULL) + (e->object != NULL) + (e->unreadable != NULL) == 1);
        if (e->object != NULL)
            (void)torch_file_write_object(e->object, &object, NULL);
        if (e->tensor == NULL)
            continue;
        expect(e->tensor->data_offset <= size &&
               e->tensor->data_bytes <= size - e->tensor->data_offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zip_writer_member members[3];
    OWNED_BUFFER file = {0};
    struct zip_writer w = {.prefix = "a/", .members = members, .capacity = 3, .out = &file};
    static const uint8_t storage[64] = {1};

    try_file(data, size);
    zip_writer_add_member(&w, "data.pkl", data, size);
    zip_writer_add_member(&w, "data/0", storage, sizeof(storage));
    zip_writer_add_member(&w, "version", "3\n", 2);
    zip_writer_finish(&w);
    if (!file.failed)
        try_file(file.bytes, file.length);
    return 0;
}
