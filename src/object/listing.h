/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listing.h -- one page of a listing of keys, or of uploads under way, read from XML.  Pure.
 *
 * What a page says is checked: keys start with the prefix, keep the order, and go on behind the
 * page before.  So a listing ends, whoever answers.
 */
#ifndef OBJECT_LISTING_H
#define OBJECT_LISTING_H

#include "object/client.h"
#include "object/xml.h"

#define LISTING_TOKEN_BYTES 4096u
#define LISTING_MAX_EMPTY_PAGES 1000u /* in a row: a store may skip what was deleted */

struct listing_entry {
    const char *key;
    const char *tag;       /* "" */
    const char *upload_id; /* of uploads; NULL otherwise */
    uint64_t bytes;
    int64_t modified;
    bool is_prefix; /* of several keys */
};

struct listing_page {
    struct xml_reader reader;
    /* Chosen by the caller. */
    bool is_of_uploads;
    const char *prefix;
    const char *after; /* keys are behind this one; of uploads: not before it */

    struct listing_entry *entries; /* in the order of their keys */
    size_t count;
    bool is_cut; /* there are more */
    bool is_escaped;
    char token[LISTING_TOKEN_BYTES]; /* for the next page; of uploads: the key to go on behind */
    char upload_id[OBJECT_UPLOAD_ID_BYTES]; /* of uploads: and the upload */

    /* While it is read. */
    struct listing_entry now;
    enum sidestep_status status; /* ENOMEM */
    struct arena arena;
};

/* ECORRUPT: it is not such a page, or contradicts what was asked for. */
enum sidestep_status listing_read(struct listing_page *page, const void *bytes, size_t length,
                                  struct sidestep_error *err);
/* Empty it, for the next page. */
void listing_reset(struct listing_page *page);
void listing_release(struct listing_page *page);

#endif
