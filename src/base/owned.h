/* SPDX-License-Identifier: BSD-3-Clause */
/* owned.h -- locals that own: each cleans up when it goes out of scope. */
#ifndef BASE_OWNED_H
#define BASE_OWNED_H

#include <stdlib.h>
#include <unistd.h>

static inline void owned_free_(void *p)
{
    free(*(void **)p);
}
static inline void owned_close_(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

#define OWNED __attribute__((cleanup(owned_free_)))
#define OWNED_FD __attribute__((cleanup(owned_close_))) int
#define OWNED_BY(release) __attribute__((cleanup(release)))

/* Move an owned pointer out of its variable: `*out = TAKE(local);` */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

#define ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define UNUSED __attribute__((unused))

#endif
