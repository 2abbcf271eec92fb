/* SPDX-License-Identifier: BSD-3-Clause */
/* listing.c -- reads and checks one page of a listing. */
#include "object/listing.h"

#include <stdlib.h>

#include "object/answer.h"
#include "object/escape.h"

#define LIST "ListBucketResult"
#define UPLOADS "ListMultipartUploadsResult"

static bool equals(const char *path, const char *wanted)
{
    return strcmp(path, wanted) == 0;
}

static bool refuse(struct listing_page *page, const char *problem)
{
    page->reader.problem = problem;
    return false;
}

static bool copy_to_arena(struct listing_page *page, const char **to, const char *text, size_t size)
{
    if (strlen(text) >= size)
        return refuse(page, "a text of an entry is too long");
    *to = arena_strndup(&page->arena, text, strlen(text));
    if (*to != NULL)
        return true;
    page->status = SIDESTEP_ENOMEM;
    return refuse(page, "memory is short");
}

/* Add the entry whose element has ended. */
static bool add_entry(struct listing_page *page, bool is_prefix)
{
    if (page->now.key == NULL || (page->is_of_uploads && page->now.upload_id == NULL && !is_prefix))
        return refuse(page, "an entry has no key");
    if (page->count == OBJECT_MAX_LISTED)
        return refuse(page, "it has more entries than requested");
    if (page->entries == NULL)
        page->entries = arena_new(&page->arena, OBJECT_MAX_LISTED, sizeof(*page->entries));
    if (page->entries == NULL) {
        page->status = SIDESTEP_ENOMEM;
        return refuse(page, "memory is short");
    }
    if (page->now.tag == NULL)
        page->now.tag = "";
    page->now.is_prefix = is_prefix;
    page->entries[page->count++] = page->now;
    page->now = (struct listing_entry){.key = NULL};
    return true;
}

static bool take_size(struct listing_page *page, const char *text)
{
    char *end;

    errno = 0;
    page->now.bytes = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
        return refuse(page, "the size of an entry is not a number");
    return true;
}

static bool take_entry_field(struct listing_page *page, const char *name, const char *text)
{
    struct listing_entry *now = &page->now;

    if (equals(name, "Key") || equals(name, "Prefix"))
        return copy_to_arena(page, &now->key, text, XML_MAX_TEXT_BYTES);
    if (equals(name, "ETag"))
        return copy_to_arena(page, &now->tag, text, OBJECT_TAG_BYTES);
    if (equals(name, "UploadId"))
        return copy_to_arena(page, &now->upload_id, text, OBJECT_UPLOAD_ID_BYTES);
    if (equals(name, "Size"))
        return take_size(page, text);
    if (equals(name, "LastModified") || equals(name, "Initiated"))
        now->modified = answer_date(text);
    return true;
}

static bool copy(struct listing_page *page, char *to, size_t size, const char *text)
{
    if (strlen(text) >= size)
        return refuse(page, "the token of the next page is too long");
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool take_page_field(struct listing_page *page, const char *name, const char *text)
{
    if (equals(name, "IsTruncated"))
        page->is_cut = equals(text, "true");
    else if (equals(name, "EncodingType"))
        page->is_escaped = equals(text, "url");
    else if (equals(name, "NextContinuationToken") || equals(name, "NextKeyMarker"))
        return copy(page, page->token, sizeof(page->token), text);
    else if (equals(name, "NextUploadIdMarker"))
        return copy(page, page->upload_id, sizeof(page->upload_id), text);
    return true;
}

static bool take_element(struct xml_reader *reader, const char *path, char *text)
{
    struct listing_page *page = (struct listing_page *)reader;
    const char *root = page->is_of_uploads ? UPLOADS : LIST;
    const char *entry = page->is_of_uploads ? "Upload/" : "Contents/";
    size_t length = strlen(root);

    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return refuse(page, "it is not a listing");
    if (path[length] == '\0')
        return true;
    const char *rest = path + length + 1;
    if (strncmp(rest, entry, strlen(entry) - 1) == 0 && rest[strlen(entry) - 1] == '\0')
        return add_entry(page, false);
    if (equals(rest, "CommonPrefixes"))
        return add_entry(page, true);
    if (strncmp(rest, entry, strlen(entry)) == 0)
        return take_entry_field(page, rest + strlen(entry), text);
    if (strncmp(rest, "CommonPrefixes/", 15) == 0)
        return take_entry_field(page, rest + 15, text);
    return strchr(rest, '/') != NULL || take_page_field(page, rest, text);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct listing_entry *)a)->key, ((const struct listing_entry *)b)->key);
}

static bool has_order(const struct listing_page *page)
{
    const char *before = page->after;

    for (size_t i = 0; i < page->count; i++) {
        int order = before != NULL ? strcmp(before, page->entries[i].key) : -1;
        if (order > 0 || (order == 0 && !page->is_of_uploads))
            return false;
        before = page->entries[i].key;
    }
    return true;
}

/* A page has keys and then prefixes, each in order: merge them.  False: they are not in order.  The
 * uploads of one key are sorted by time, and stay in that order. */
static bool merge(struct listing_page *page)
{
    const char *last[2] = {"", ""}; /* of the keys, and of the prefixes */

    for (size_t i = 0; i < page->count; i++) {
        const struct listing_entry *e = &page->entries[i];
        if (strcmp(last[e->is_prefix], e->key) > 0)
            return false;
        last[e->is_prefix] = e->key;
    }
    if (!page->is_of_uploads) /* no two keys are equal, so the sort need not be stable */
        qsort(page->entries, page->count, sizeof(*page->entries), by_key);
    return true;
}

static const char *check_entry(const struct listing_page *page, struct listing_entry *e)
{
    char *key = (char *)(uintptr_t)e->key; /* in the arena of the page */

    if (page->is_escaped && !escape_decode(key))
        return "a key in it is not escaped correctly";
    if (strlen(key) >= OBJECT_KEY_BYTES || key[0] == '\0')
        return "a key in it is empty or too long";
    if (strncmp(key, page->prefix, strlen(page->prefix)) != 0)
        return "a key in it does not start with the prefix";
    return NULL;
}

static enum sidestep_status check(struct listing_page *page, struct sidestep_error *err)
{
    if (page->is_escaped && page->is_of_uploads && !escape_decode(page->token))
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "the listing is refused: the token of the next page is not escaped correctly");
    for (size_t i = 0; i < page->count; i++) {
        const char *problem = check_entry(page, &page->entries[i]);
        if (problem != NULL)
            return FAIL(err, SIDESTEP_ECORRUPT, "the listing is refused: %s", problem);
    }
    if (page->count != 0 && (!merge(page) || !has_order(page)))
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "the listing is refused: its keys are not in order, or repeat those of the "
                    "page before");
    if (page->is_cut && page->token[0] == '\0')
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "the listing is refused: it is truncated, but has no token of the next page");
    return SIDESTEP_OK;
}

enum sidestep_status listing_read(struct listing_page *page, const void *bytes, size_t length,
                                  struct sidestep_error *err)
{
    page->reader.element = take_element;
    enum sidestep_status status = xml_read(bytes, length, &page->reader, err);
    if (status != SIDESTEP_OK && page->status == SIDESTEP_ENOMEM)
        return FAIL_NOMEM(err, XML_MAX_TEXT_BYTES);
    TRY(status);
    return check(page, err);
}

void listing_reset(struct listing_page *page)
{
    struct listing_page fresh = {
        .is_of_uploads = page->is_of_uploads,
        .prefix = page->prefix,
        .after = page->after,
    };

    arena_release(&page->arena);
    *page = fresh;
}

void listing_release(struct listing_page *page)
{
    arena_release(&page->arena);
}
