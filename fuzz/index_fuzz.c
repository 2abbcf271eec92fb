/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * index_fuzz.c -- feeds any index of chunks to the parser: its table, and its pages, with whatever
 * hashes they have. What is accepted as a whole must mean the same after it was written and read
 * again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/chunk_index.h"
#include "format/chunk_list.h"
#include "format/chunk_index_layout.h"

#define FILES 64u
#define SAVE_ID_AT 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct manifest_file files[FILES];
static const char *names[FILES];

static void name_files(void)
{
    static char texts[FILES][24];

    for (unsigned i = 0; i < FILES; i++) {
        snprintf(texts[i], sizeof(texts[i]), "__%u_0.distcp", i);
        files[i].name = names[i] = texts[i];
    }
}

/* Read all pages. ${state}: NULL: everything. */
static enum sidestep_status read_all(const uint8_t *data, size_t size, uint64_t page_bytes,
                                     const char *save_id, const struct sidestep_state_dict *state,
                                     struct metadata *out)
{
    const struct chunk_list_filter filter = {
        .state = state, .all_names = true, .files = names, .file_count = FILES};
    OWNED_ARENA arena = {.limit_bytes = (size_t)64 << 20};
    OWNED_BY(chunk_list_reader_free) struct chunk_list_reader *list = NULL;
    struct chunk_index index;

    TRY(chunk_index_table_read(data + page_bytes, size - page_bytes, page_bytes, save_id, &arena,
                               &index, NULL));
    list = chunk_list_reader_new(&filter, out, NULL);
    if (list == NULL)
        return SIDESTEP_ENOMEM;
    for (size_t i = 0; i < index.page_count; i++)
        TRY(chunk_list_reader_add(list, data + index.pages[i].begin, index.pages[i].bytes,
                                  index.pages[i].first, NULL));
    return chunk_list_reader_finish(list, NULL);
}

/* Write ${metadata}, and return the metadata that is read from it. */
static void write_and_read(const struct metadata *metadata, const char *save_id,
                           struct buffer *written, struct metadata *out)
{
    struct manifest manifest = {.file_count = FILES, .files = files};

    memcpy(manifest.save_id, save_id, SAVE_ID_HEX);
    if (chunk_index_encode(metadata, &manifest, written, NULL) != SIDESTEP_OK ||
        read_all(written->bytes, written->length, manifest.index.bytes - manifest.index.table_bytes,
                 save_id, NULL, out) != SIDESTEP_OK)
        abort();
}

static void try_index(const uint8_t *data, size_t size, uint64_t page_bytes, const char *save_id,
                      const struct sidestep_state_dict *state)
{
    OWNED_METADATA metadata = {.arena = {.limit_bytes = (size_t)64 << 20}};
    OWNED_METADATA few = {.arena = {.limit_bytes = (size_t)64 << 20}};
    OWNED_METADATA once = {0}, twice = {0};
    OWNED_BUFFER first = {0}, second = {0};

    (void)read_all(data, size, page_bytes, save_id, state, &few);
    if (read_all(data, size, page_bytes, save_id, NULL, &metadata) != SIDESTEP_OK)
        return;
    write_and_read(&metadata, save_id, &first, &once);
    write_and_read(&once, save_id, &second, &twice);
    if (first.length != second.length || memcmp(first.bytes, second.bytes, first.length) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    OWNED_BY(sidestep_state_dict_free) struct sidestep_state_dict *state = NULL;
    char save_id[SAVE_ID_HEX] = "00112233445566778899aabbccddeeff";
    uint64_t begin = size;

    name_files();
    for (size_t at = 0; at + CHUNK_INDEX_MAGIC_BYTES <= size; at++)
        if (memcmp(data + at, CHUNK_INDEX_MAGIC, CHUNK_INDEX_MAGIC_BYTES) == 0)
            begin = at;
    if (size - begin >= SAVE_ID_AT + SAVE_ID_BYTES)
        hash_to_hex(data + begin + SAVE_ID_AT, SAVE_ID_BYTES, save_id);
    if (sidestep_state_dict_new(&state, NULL) != SIDESTEP_OK ||
        sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL) != SIDESTEP_OK)
        return 0;
    try_index(data, size, begin, save_id, state);
    return 0;
}
