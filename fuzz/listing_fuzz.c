/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listing_fuzz.c -- feeds any XML to the readers of listings: of keys, and of uploads. Keys of a
 * page that is accepted start with the prefix, go on behind the last one, and are in order, so that
 * a listing ends, whoever answers.
 */
#include <assert.h>
#include <string.h>

#include "object/listing.h"

#define PREFIX "p/"
#define AFTER "p/b"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entries(const struct listing_page *page)
{
    const char *before = page->after;

    for (size_t i = 0; i < page->count; i++) {
        const struct listing_entry *entry = &page->entries[i];
        assert(strncmp(entry->key, PREFIX, strlen(PREFIX)) == 0);
        assert(strlen(entry->key) < OBJECT_KEY_BYTES);
        assert(strlen(entry->tag) < OBJECT_TAG_BYTES);
        if (before != NULL)
            assert(strcmp(before, entry->key) < (page->is_of_uploads ? 1 : 0));
        before = entry->key;
        if (page->is_of_uploads && !entry->is_prefix)
            assert(strlen(entry->upload_id) < OBJECT_UPLOAD_ID_BYTES);
    }
    assert(!page->is_cut || page->token[0] != '\0');
    assert(strlen(page->token) < sizeof(page->token));
    assert(strlen(page->upload_id) < sizeof(page->upload_id));
}

static void try_page(const uint8_t *data, size_t size, bool is_of_uploads, const char *after)
{
    struct listing_page page = {.is_of_uploads = is_of_uploads, .prefix = PREFIX, .after = after};
    enum sidestep_status status = listing_read(&page, data, size, NULL);

    assert(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT || status == SIDESTEP_ENOMEM);
    if (status == SIDESTEP_OK)
        check_entries(&page);
    listing_release(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int is_of_uploads = 0; is_of_uploads <= 1; is_of_uploads++) {
        try_page(data, size, is_of_uploads != 0, NULL);
        try_page(data, size, is_of_uploads != 0, AFTER);
    }
    return 0;
}
