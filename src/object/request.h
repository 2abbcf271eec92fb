/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * request.h -- one request with its repetitions: signed, sent, its answer checked, its failure
 * reported.  The functions of client.h use it.
 */
#ifndef OBJECT_REQUEST_H
#define OBJECT_REQUEST_H

#include "object/failure.h"
#include "object/retry.h"

struct client;

#define REQUEST_MAX_PAIRS 8u

struct request {
    const char *doing;  /* "write" */
    const char *action; /* what a policy has to allow, "s3:PutObject" */
    const char *method;
    const char *key; /* NULL: the bucket */
    struct sign_pair query[REQUEST_MAX_PAIRS];
    unsigned query_count;
    struct sign_pair headers[REQUEST_MAX_PAIRS]; /* lower-case names */
    unsigned header_count;
    struct sign_pair checksum; /* a header that some stores do not support; name NULL: none */
    const void *body;
    size_t body_length;
    bool has_body;        /* PUT and POST */
    bool is_write;        /* it changes something */
    bool is_content;      /* an object is read; if it is too long, the request is not repeated */
    struct answer answer; /* the caller sets its first fields */
    /* Check a successful answer; may be NULL.  ECORRUPT: it is not valid, and the request is
     * repeated; any other error is final. */
    enum sidestep_status (*check)(struct request *request, struct sidestep_error *err);
    void *context; /* of ${check} */

    /* The outcome. */
    struct failure_report report;
    bool is_unsure; /* an attempt may have been carried out, or may be later */
    unsigned attempts;
};

/* The status is as in client.h; EIO if a write was refused, and an earlier attempt of it may have
 * been carried out.  ${answer} is the last one; release the request afterwards. */
enum sidestep_status request_run(struct client *client, struct request *request,
                                 struct sidestep_error *err);
/* The same, for requests that remove: what does not exist counts as removed. */
enum sidestep_status request_run_removal(struct client *client, struct request *request,
                                         struct sidestep_error *err);
void request_release(struct request *request);
#define OWNED_REQUEST __attribute__((cleanup(request_release))) struct request

void request_add_query(struct request *request, const char *name, const char *value);
void request_add_header(struct request *request, const char *name, const char *value);
/* Append text, escaped for XML. */
void request_put_xml(struct buffer *to, const char *text);

#endif
