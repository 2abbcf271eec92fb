/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_easy.h -- one call of transport.h as one handle of libcurl; for transport.c alone. */
#ifndef OBJECT_TRANSPORT_EASY_H
#define OBJECT_TRANSPORT_EASY_H

#include "object/libcurl.h"
#include "object/transport.h"

/* Its caller's, then the driver's, and when it is done its caller's again. */
struct exchange {
    struct transport_call *call;
    const struct libcurl *curl;
    CURL *easy;
    struct curl_slist *headers;
    size_t sent; /* of the body */
    char reason[CURL_ERROR_SIZE];
    struct exchange *next;
    CURLcode code;
    bool done; /* under the transport's lock */
};

/* Set all options, from ${call} and with ${curl}.  False: memory is short; release it all the same.
 */
bool exchange_init(struct exchange *exchange, const struct transport_config *config);
/* Wipes the headers, one of which may be a session token. */
void exchange_release(struct exchange *exchange);

#endif
