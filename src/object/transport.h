/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h -- HTTP exchanges over shared connections: sends one request, receives one answer.
 *
 * It does not repeat, sign or interpret requests.  One driver thread moves the bytes of all calls
 * (libcurl's multi interface), and otherwise sleeps in poll(2).  TLS is verified, redirects are not
 * followed, and proxies are those of the usual variables (https_proxy, no_proxy, ...).
 *
 * Only transport.c, transport_easy.c and libcurl.c use libcurl.  A build without it has absent.c
 * instead.
 */
#ifndef OBJECT_TRANSPORT_H
#define OBJECT_TRANSPORT_H

#include <stdatomic.h>

#include "object/answer.h"
#include "object/sign.h"

struct transport;

struct transport_config {
    const char *ca_bundle;        /* a file of certificates; NULL: libcurl_certificates() */
    unsigned connections;         /* at most that many at once */
    unsigned stall_seconds;       /* a call that is idle for so long ends */
    uint64_t bytes_per_second;    /* sent by one call; 0: no limit */
    const atomic_bool *cancelled; /* if set, all calls end; may be NULL */
};

/* How a call ended. */
enum transport_outcome {
    TRANSPORT_ANSWERED, /* with any status */
    TRANSPORT_REFUSED,  /* the answer was refused, see answer.problem */
    TRANSPORT_UNKNOWN_HOST,
    TRANSPORT_NOT_CONNECTED,
    TRANSPORT_NOT_TRUSTED, /* the server's certificate, or ${ca_bundle} is not valid */
    TRANSPORT_BROKEN,      /* the connection failed after it was made */
    TRANSPORT_STALLED,
    TRANSPORT_DEADLINE,
    TRANSPORT_CANCELLED,
    TRANSPORT_NO_MEMORY,
    TRANSPORT_IMPOSSIBLE, /* libcurl refuses the request, for example its URL */
};

struct transport_call {
    const char *method; /* "HEAD": no body is expected */
    const char *url;
    const struct sign_pair *headers; /* without content-length */
    unsigned header_count;
    const void *body; /* must not change during the call */
    size_t body_length;
    bool has_body;            /* PUT and POST, even if it is empty */
    bool no_proxy;            /* for addresses of this host and its network */
    uint64_t deadline_ns;     /* clock_now() */
    unsigned connect_seconds; /* for DNS, connection and TLS */
    struct answer *answer;
    bool was_sent;          /* at least a part */
    bool was_resent;        /* libcurl sent it again: the first time may have been carried out */
    uint64_t first_byte_ns; /* from the request to the first byte of its answer; 0: unknown */
    char reason[160];       /* why it was not answered, in libcurl's words */
};

/* Can there be one in this process?  EUNSUPPORTED: built without libcurl, or it cannot be loaded.
 */
enum sidestep_status transport_probe(struct sidestep_error *err);
/* EUNSUPPORTED: as transport_probe(). */
enum sidestep_status transport_new(const struct transport_config *config, struct transport **out,
                                   struct sidestep_error *err);
/* No call may be in progress.  In a forked child it only frees memory. */
void transport_free(struct transport *transport);
/* Any thread; blocks.  Not in a forked child, which has no driver. */
enum transport_outcome transport_perform(struct transport *transport, struct transport_call *call);

#endif
