/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listing.h -- reads one page of a listing of keys, or of uploads in progress, from XML.  Pure.
 *
 * Each page is checked: keys start with the prefix, are in order, and come after those of the page
 * before.  Every listing ends, whatever the server does: client_list.c limits the pages.
 */
#ifndef OBJECT_LISTING_H
#define OBJECT_LISTING_H

#include "object/client.h"
#include "object/xml.h"

#define LISTING_TOKEN_BYTES 4096u
#define LISTING_MAX_PAGES 20000u      /* of up to 1,000 keys each */
#define LISTING_MAX_EMPTY_PAGES 1000u /* in a row: a store may skip deleted keys */

struct listing_entry {
    const char *key;
    const char *tag;       /* "": none */
    const char *upload_id; /* of uploads; NULL otherwise */
    uint64_t bytes;
    int64_t modified;
    bool is_prefix; /* a common prefix of several keys */
};

struct listing_page {
    struct xml_reader reader;
    /* Chosen by the caller. */
    bool is_of_uploads;
    const char *prefix;
    const char *after; /* keys come after this one; of uploads: not before it */

    struct listing_entry *entries; /* in the order of their keys */
    size_t count;
    bool is_cut; /* there are more pages */
    bool is_escaped;
    char token[LISTING_TOKEN_BYTES]; /* of the next page; of uploads: the last key of this page */
    char upload_id[OBJECT_UPLOAD_ID_BYTES]; /* of uploads: the last upload of this page */

    /* While the page is read. */
    struct listing_entry now;
    enum sidestep_status status; /* ENOMEM */
    struct arena arena;
};

/* ECORRUPT: it is not a page of a listing, or contradicts the request. */
enum sidestep_status listing_read(struct listing_page *page, const void *bytes, size_t length,
                                  struct sidestep_error *err);
/* Clear it for the next page. */
void listing_reset(struct listing_page *page);
void listing_release(struct listing_page *page);

#endif
