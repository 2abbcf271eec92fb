/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_easy.h -- one call of transport.h as one handle of libcurl; for transport.c only. */
#ifndef OBJECT_TRANSPORT_EASY_H
#define OBJECT_TRANSPORT_EASY_H

#include "object/libcurl.h"
#include "object/transport.h"

/* Owned by the caller, then by the driver, and when it is done by the caller again. */
struct exchange {
    struct transport_call *call;
    const struct libcurl *curl;
    CURL *easy;
    struct curl_slist *headers;
    size_t sent; /* of the body */
    char reason[CURL_ERROR_SIZE];
    struct exchange *next;
    CURLcode code;
    bool done; /* protected by the transport's lock */
};

/* ${call} and ${curl} are set.  False: memory is short; release it in both cases. */
bool exchange_init(struct exchange *exchange, const struct transport_config *config);
/* Wipes the headers, which may have a session token. */
void exchange_release(struct exchange *exchange);

#endif
