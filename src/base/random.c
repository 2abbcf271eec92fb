/* SPDX-License-Identifier: BSD-3-Clause */
/* random.c -- see random.h. */
#include "base/random.h"

#include <sys/random.h>

#include "base/fault.h"

enum sidestep_status random_bytes(void *to, size_t bytes, struct sidestep_error *err)
{
    unsigned char *at = to;

    while (bytes != 0) {
        ssize_t got = fault_hit("random") ? -1 : getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return FAIL_SYS(err, "getrandom");
        at += got;
        bytes -= (size_t)got;
    }
    return SIDESTEP_OK;
}
