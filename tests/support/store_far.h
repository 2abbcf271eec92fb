/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_far.h -- a store that makes the host's file systems look remote: each call that a server
 * would answer takes time, some calls take longer, and some fail.
 */
#ifndef SUPPORT_STORE_FAR_H
#define SUPPORT_STORE_FAR_H

#include <stdatomic.h>

#include "store/store.h"

struct store_far {
    struct store store; /* the store to use; never free it */
    /* Set by the caller, before the first call. */
    unsigned call_us;          /* the duration of a call */
    unsigned slow_us, slow_of; /* one of ${slow_of} calls takes ${slow_us} instead; 0: none */
    unsigned fails_from,
        fails; /* ${fails} calls from number ${fails_from} (from 1) fail with EIO */
    /* Counted. */
    atomic_uint calls, lists;
};

/* Set the operations; everything else stays as it is. */
void store_far_init(struct store_far *far);

#endif
