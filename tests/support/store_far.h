/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_far.h -- the host's file systems as if they were far away: each call that a server would
 * have to answer takes time, some take longer, and some fail.
 */
#ifndef SUPPORT_STORE_FAR_H
#define SUPPORT_STORE_FAR_H

#include <stdatomic.h>

#include "store/store.h"

struct store_far {
    struct store store; /* use this one; never free it */
    /* Set by the caller, before the first call. */
    unsigned call_us;           /* what each call takes */
    unsigned slow_us, slow_of;  /* one of ${slow_of} calls takes so long instead; 0: none */
    unsigned fails_from, fails; /* from this call on (from 1), so many fail with EIO; 0: none */
    /* Counted. */
    atomic_uint calls, lists;
};

/* Set the operations; everything else stays as it is. */
void store_far_init(struct store_far *far);

#endif
