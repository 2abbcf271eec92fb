/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * answer.h -- what a store answers to one request: the status, the headers that mean something to
 * us, and the body, which goes to where the caller wants it.
 *
 * Bytes come in as they arrive.  Everything is limited, and what contradicts the request (another
 * range than the one asked for, more bytes than it was to have) is refused where it is seen.
 */
#ifndef OBJECT_ANSWER_H
#define OBJECT_ANSWER_H

#include "object/client.h"

#define ANSWER_MAX_HEADER_BYTES ((size_t)64 << 10)
#define ANSWER_MAX_ERROR_BYTES ((size_t)64 << 10)
#define ANSWER_MAX_XML_BYTES ((size_t)8 << 20) /* 1,000 escaped keys have less than 4 MiB */

/* Where the body of a success goes. */
enum answer_body {
    ANSWER_NO_BODY, /* nowhere: HEAD, or what comes is of no interest */
    ANSWER_TEXT,    /* to ${text}, at most ${text_limit} bytes */
    ANSWER_RANGE,   /* to ${places}: exactly ${range_bytes} from ${offset} of the object */
};

/* User metadata of an object: who made it (struct object_condition). */
#define ANSWER_MAKER "x-amz-meta-sidestep-maker"

struct answer {
    /* Chosen by the caller. */
    enum answer_body body;
    const struct store_places *places;
    size_t range_bytes;
    uint64_t offset;
    size_t text_limit;

    /* What came. */
    int status;         /* of HTTP; 0: nothing yet */
    struct buffer text; /* the body of an error, too */
    size_t received;    /* bytes in ${places} */
    struct store_places_cursor cursor;
    const char *problem; /* why the answer was refused; NULL: it was not */
    bool is_too_long;    /* that is the problem: more than ${text_limit} */
    bool has_length, has_range;
    uint64_t length;             /* Content-Length */
    uint64_t first, last, total; /* Content-Range; total is UINT64_MAX if it is not known */
    char tag[OBJECT_TAG_BYTES];
    char maker[OBJECT_MAKER_BYTES]; /* ANSWER_MAKER; "": it did not say */
    char crc32c[16];        /* x-amz-checksum-crc32c: of what the store has; "": it did not say */
    int64_t modified, date; /* seconds since 1970; 0: not said, or not to be understood */
    unsigned retry_after_seconds;
    char request_id[80];
    char region[64];    /* where the bucket is: x-amz-bucket-region */
    char location[256]; /* of a redirect */
    bool is_chunked;    /* the end of the body is marked */
    bool has_head;      /* all of it has come */
    size_t header_bytes;
};

/* Forget what came, before a request is repeated. */
void answer_reset(struct answer *answer);
void answer_release(struct answer *answer);

/* One line of the head, with its end; and a piece of the body.  False: stop; ${problem} is set, or
 * memory is short (${text.failed}). */
bool answer_take_header(struct answer *answer, const char *line, size_t length);
bool answer_take_body(struct answer *answer, const void *bytes, size_t length);
/* All of it is here: is it what was asked for?  Sets ${problem}. */
bool answer_check(struct answer *answer);

/* "Sun, 06 Nov 1994 08:49:37 GMT" and "1994-11-06T08:49:37.000Z", as seconds since 1970; 0: it is
 * neither. */
int64_t answer_date(const char *text);

#endif
