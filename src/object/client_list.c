/* SPDX-License-Identifier: BSD-3-Clause */
/* client_list.c -- lists keys, or uploads in progress, page by page. */
#include <limits.h>
#include <stdio.h>

#include "object/client_internal.h"
#include "object/listing.h"

/* A listing in progress. */
struct walk {
    struct listing_page page;
    char after[OBJECT_KEY_BYTES]; /* the last key of the pages so far; "": none */
    char token[LISTING_TOKEN_BYTES];
    char upload_id[OBJECT_UPLOAD_ID_BYTES];
    /* Where a page began whose number is a power of two.  Tokens that repeat come back to it. */
    char seen_token[LISTING_TOKEN_BYTES];
    char seen_upload_id[OBJECT_UPLOAD_ID_BYTES];
    unsigned pages, empty_pages; /* empty ones: in a row */
    struct object_info info;
};

static void release_walk(struct walk **walk)
{
    if (*walk != NULL)
        listing_release(&(*walk)->page);
    free(*walk);
}

static enum sidestep_status check_page(struct request *request, struct sidestep_error *err)
{
    struct listing_page *page = request->context;

    listing_reset(page);
    return listing_read(page, request->answer.text.bytes, request->answer.text.length, err);
}

static struct request list_request(struct walk *walk, const char *doing, const char *action)
{
    return (struct request){
        .doing = doing,
        .action = action,
        .method = "GET",
        .answer = {.body = ANSWER_TEXT, .text_limit = ANSWER_MAX_XML_BYTES},
        .check = check_page,
        .context = &walk->page,
    };
}

/* Does the next page begin where an earlier one began?  Uploads need this, because several have one
 * key, so their keys alone do not show that a listing goes on. */
static bool is_circle(struct walk *walk)
{
    const struct listing_page *page = &walk->page;
    bool is_seen = strcmp(walk->seen_token, page->token) == 0 &&
                   strcmp(walk->seen_upload_id, page->upload_id) == 0;

    if ((walk->pages & (walk->pages - 1)) == 0) {
        memcpy(walk->seen_token, page->token, sizeof(walk->seen_token));
        memcpy(walk->seen_upload_id, page->upload_id, sizeof(walk->seen_upload_id));
    }
    return is_seen;
}

/* Set where the next page begins.  ${is_last}: there is none. */
static enum sidestep_status prepare_next_page(struct walk *walk, const char *doing, bool *is_last,
                                              struct sidestep_error *err)
{
    struct listing_page *page = &walk->page;

    *is_last = !page->is_cut;
    if (*is_last)
        return SIDESTEP_OK;
    walk->pages++;
    walk->empty_pages = page->count == 0 ? walk->empty_pages + 1 : 0;
    if (is_circle(walk))
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "%s %s: the listing repeats itself: page %u leads back to an earlier page",
                    doing, page->prefix, walk->pages);
    if (walk->pages == LISTING_MAX_PAGES || walk->empty_pages > LISTING_MAX_EMPTY_PAGES)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "%s %s: the listing does not end: after %u pages, %u of them empty in a row, "
                    "the store says that there are more",
                    doing, page->prefix, walk->pages, walk->empty_pages);
    memcpy(walk->token, page->token, sizeof(walk->token));
    memcpy(walk->upload_id, page->upload_id, sizeof(walk->upload_id));
    if (page->count != 0)
        snprintf(walk->after, sizeof(walk->after), "%s", page->entries[page->count - 1].key);
    page->after = walk->after[0] != '\0' ? walk->after : NULL;
    return SIDESTEP_OK;
}

static void fill_info(struct walk *walk, const struct listing_entry *entry, int64_t now)
{
    struct object_info *info = &walk->info;

    snprintf(info->key, sizeof(info->key), "%s", entry->key);
    snprintf(info->tag, sizeof(info->tag), "%s", entry->tag);
    info->bytes = entry->bytes;
    info->modified = entry->modified;
    info->now = now;
}

/* The parameters of a listing of keys. */
struct list_query {
    const char *prefix;
    const char *after; /* NULL: from the start */
    char delimiter[2]; /* "": none */
    char most[12];     /* keys of one page */
};

static enum sidestep_status list_page(struct client *client, struct walk *walk,
                                      const struct list_query *query, int64_t *now,
                                      struct sidestep_error *err)
{
    OWNED_REQUEST request = list_request(walk, "list", "s3:ListBucket");

    request_add_query(&request, "list-type", "2");
    request_add_query(&request, "encoding-type", "url");
    request_add_query(&request, "max-keys", query->most);
    request_add_query(&request, "prefix", query->prefix);
    if (query->delimiter[0] != '\0')
        request_add_query(&request, "delimiter", query->delimiter);
    if (walk->token[0] != '\0')
        request_add_query(&request, "continuation-token", walk->token);
    else if (query->after != NULL && query->after[0] != '\0')
        request_add_query(&request, "start-after", query->after);
    TRY(request_run(client, &request, err));
    *now = request.answer.date;
    return SIDESTEP_OK;
}

enum sidestep_status client_list(struct object_client *base, const char *prefix, char delimiter,
                                 const char *after, unsigned most, object_each *each, void *context,
                                 struct sidestep_error *err)
{
    OWNED_BY(release_walk) struct walk *walk = memory_new(1, sizeof(*walk));
    struct list_query query = {.prefix = prefix, .after = after, .delimiter = {delimiter, '\0'}};
    unsigned left = most != 0 ? most : UINT_MAX;
    int64_t now;

    if (walk == NULL)
        return FAIL_NOMEM(err, sizeof(*walk));
    walk->page.prefix = prefix;
    walk->page.after = after;
    for (bool is_last = false; !is_last && left > 0;) {
        snprintf(query.most, sizeof(query.most), "%u",
                 left < OBJECT_MAX_LISTED ? left : OBJECT_MAX_LISTED);
        TRY(list_page(client_of(base), walk, &query, &now, err));
        for (size_t i = 0; i < walk->page.count; i++) {
            fill_info(walk, &walk->page.entries[i], now);
            if (!each(context, &walk->info))
                return SIDESTEP_OK;
            if (most != 0 && --left == 0)
                return SIDESTEP_OK;
        }
        TRY(prepare_next_page(walk, "list", &is_last, err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status list_uploads_page(struct client *client, struct walk *walk,
                                              const char *prefix, int64_t *now,
                                              struct sidestep_error *err)
{
    OWNED_REQUEST request =
        list_request(walk, "list the uploads in", "s3:ListBucketMultipartUploads");

    request_add_query(&request, "uploads", "");
    request_add_query(&request, "encoding-type", "url");
    request_add_query(&request, "max-uploads", "1000");
    request_add_query(&request, "prefix", prefix);
    if (walk->token[0] != '\0')
        request_add_query(&request, "key-marker", walk->token);
    if (walk->upload_id[0] != '\0')
        request_add_query(&request, "upload-id-marker", walk->upload_id);
    TRY(request_run(client, &request, err));
    *now = request.answer.date;
    return SIDESTEP_OK;
}

enum sidestep_status client_upload_list(struct object_client *base, const char *prefix,
                                        object_each_upload *each, void *context,
                                        struct sidestep_error *err)
{
    OWNED_BY(release_walk) struct walk *walk = memory_new(1, sizeof(*walk));
    int64_t now;

    if (walk == NULL)
        return FAIL_NOMEM(err, sizeof(*walk));
    walk->page.prefix = prefix;
    walk->page.is_of_uploads = true;
    for (bool is_last = false; !is_last;) {
        TRY(list_uploads_page(client_of(base), walk, prefix, &now, err));
        for (size_t i = 0; i < walk->page.count; i++) {
            if (walk->page.entries[i].is_prefix)
                continue;
            fill_info(walk, &walk->page.entries[i], now);
            if (!each(context, &walk->info, walk->page.entries[i].upload_id))
                return SIDESTEP_OK;
        }
        TRY(prepare_next_page(walk, "list the uploads", &is_last, err));
    }
    return SIDESTEP_OK;
}
