/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * answer.h -- a store's answer to one request: the status, the headers that sidestep uses, and the
 * body, which is written where the caller wants it.
 *
 * Bytes are processed as they arrive.  All sizes are limited, and an answer that contradicts the
 * request (a different range, more bytes than requested) is refused at once.
 */
#ifndef OBJECT_ANSWER_H
#define OBJECT_ANSWER_H

#include "object/client.h"

#define ANSWER_MAX_HEADER_BYTES ((size_t)64 << 10)
#define ANSWER_MAX_ERROR_BYTES ((size_t)64 << 10)
#define ANSWER_MAX_XML_BYTES ((size_t)8 << 20) /* 1,000 escaped keys take less than 4 MiB */

/* Where the body of a successful answer goes. */
enum answer_body {
    ANSWER_NO_BODY, /* nowhere: HEAD, or the body is not needed */
    ANSWER_TEXT,    /* to ${text}, at most ${text_limit} bytes */
    ANSWER_RANGE,   /* to ${places}: exactly ${range_bytes} from ${offset} of the object */
};

/* User metadata of an object: who wrote it (struct object_condition). */
#define ANSWER_MAKER "x-amz-meta-sidestep-maker"

struct answer {
    /* Chosen by the caller. */
    enum answer_body body;
    const struct store_places *places;
    size_t range_bytes;
    uint64_t offset;
    size_t text_limit;

    /* The answer. */
    int status;         /* of HTTP; 0: nothing has arrived */
    struct buffer text; /* also the body of an error */
    size_t received;    /* bytes in ${places} */
    struct store_places_cursor cursor;
    const char *problem; /* why the answer is refused; NULL: it is not */
    bool is_too_long;    /* refused because the body exceeds ${text_limit} */
    bool has_length, has_range;
    uint64_t length;             /* Content-Length */
    uint64_t first, last, total; /* Content-Range; total is UINT64_MAX if it is not known */
    char tag[OBJECT_TAG_BYTES];
    char maker[OBJECT_MAKER_BYTES]; /* ANSWER_MAKER; "": not given */
    char crc32c[16];                /* x-amz-checksum-crc32c, of the stored object; "": not given */
    int64_t modified, date;         /* seconds since 1970; 0: not given or not understood */
    unsigned retry_after_seconds;
    char request_id[80];
    char region[64];    /* of the bucket: x-amz-bucket-region */
    char location[256]; /* of a redirect */
    bool is_chunked;    /* chunked encoding, so the end of the body is marked */
    bool has_head;      /* all headers have arrived */
    size_t header_bytes;
};

/* Forget the answer, before a request is repeated. */
void answer_reset(struct answer *answer);
void answer_release(struct answer *answer);

/* Process one header line with its line end, or a piece of the body.  False: stop; ${problem} is
 * set, or memory is short (${text.failed}). */
bool answer_take_header(struct answer *answer, const char *line, size_t length);
bool answer_take_body(struct answer *answer, const void *bytes, size_t length);
/* Check a complete answer against the request.  False: ${problem} is set. */
bool answer_check(struct answer *answer);

/* "Sun, 06 Nov 1994 08:49:37 GMT" and "1994-11-06T08:49:37.000Z", as seconds since 1970; 0: it is
 * neither. */
int64_t answer_date(const char *text);
/* Copy ${value}, cut to ${size}, for messages: '?' replaces all but printable ASCII. */
void answer_copy_printable(char *to, size_t size, const char *value);

#endif
