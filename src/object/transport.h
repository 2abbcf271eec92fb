/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h -- HTTP exchanges over shared connections: one request sent, one answer received.
 *
 * Nothing here is repeated, signed or understood.  One driver thread moves the bytes of all calls
 * (libcurl's multi interface) and sleeps in poll(2) otherwise.  TLS is verified, redirects are not
 * followed, and proxies are those of the usual variables (https_proxy, no_proxy, ...).
 *
 * The only file that knows libcurl is transport.c.  A build without libcurl has absent.c instead.
 */
#ifndef OBJECT_TRANSPORT_H
#define OBJECT_TRANSPORT_H

#include <stdatomic.h>

#include "object/answer.h"
#include "object/sign.h"

struct transport;

struct transport_config {
    const char *ca_bundle;        /* a file of certificates; NULL: the system's */
    unsigned connections;         /* at most that many at once */
    unsigned stall_seconds;       /* a call without a byte for so long ends */
    uint64_t bytes_per_second;    /* sent by one call; 0: no limit */
    const atomic_bool *cancelled; /* ends all calls; may be NULL */
};

/* How a call ended. */
enum transport_outcome {
    TRANSPORT_ANSWERED, /* with whatever status */
    TRANSPORT_REFUSED,  /* the answer was: answer.problem says why */
    TRANSPORT_UNKNOWN_HOST,
    TRANSPORT_NOT_CONNECTED,
    TRANSPORT_NOT_TRUSTED, /* the server's certificate, or our own bundle of them */
    TRANSPORT_BROKEN,      /* the connection, somewhere on the way */
    TRANSPORT_STALLED,
    TRANSPORT_DEADLINE,
    TRANSPORT_CANCELLED,
    TRANSPORT_NO_MEMORY,
    TRANSPORT_IMPOSSIBLE, /* libcurl does not take the request, its URL for example */
};

struct transport_call {
    const char *method; /* "HEAD": no body is expected */
    const char *url;
    const struct sign_pair *headers; /* without content-length */
    unsigned header_count;
    const void *body; /* must not change meanwhile */
    size_t body_length;
    bool has_body;            /* PUT and POST, also of nothing */
    bool no_proxy;            /* for addresses of this machine's surroundings */
    uint64_t deadline_ns;     /* clock_now() */
    unsigned connect_seconds; /* for name, connection and TLS */
    struct answer *answer;
    bool was_sent;          /* some of it, at least */
    uint64_t first_byte_ns; /* from the request to the first byte of its answer; 0: unknown */
    char reason[160];       /* why it was not answered, in libcurl's words */
};

/* EUNSUPPORTED: built without libcurl. */
enum sidestep_status transport_new(const struct transport_config *config, struct transport **out,
                                   struct sidestep_error *err);
/* No call may be under way.  In a forked child only memory is given back. */
void transport_free(struct transport *transport);
/* Any thread; blocks.  Not in a forked child, whose driver does not exist. */
enum transport_outcome transport_perform(struct transport *transport, struct transport_call *call);

#endif
