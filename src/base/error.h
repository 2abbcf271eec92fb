/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h -- the one way to fail: a status to branch on, and a sentence to read. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "sidestep/sidestep.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

/*
 * error_set() writes the sentence where the failure happens.  On the way up, each layer may call
 * error_wrap() once, to put in front what it was doing: "what: rest".  If "what" ends with 'a', and
 * "rest" begins with "open 'a': ", it drops that beginning.  error_copy() copies from another
 * struct.  All accept err == NULL, and keep errno.  In tests error_wrap() asserts that the sentence
 * does not name the same thing twice.
 */
enum sidestep_status error_set(struct sidestep_error *err, enum sidestep_status status,
                               int sys_errno, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void error_wrap(struct sidestep_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the status of ${why}. */
enum sidestep_status error_copy(struct sidestep_error *err, const struct sidestep_error *why);

/* "ENOSPC" of SIDESTEP_ENOSPC. */
const char *error_status_name(enum sidestep_status status);
/* The status for the errno of a storage call.  EIO if no other status fits. */
enum sidestep_status error_from_errno(int sys_errno);

/* How many statuses there are.  They are numbered from 0. */
#define ERROR_COUNT_STATUS(name, exit_status, text) +1
#define ERROR_STATUS_COUNT (0 SIDESTEP_STATUS_MAP(ERROR_COUNT_STATUS))

#define ERROR_STR_(x) #x
#define ERROR_STR(x) ERROR_STR_(x)
#ifdef __FILE_NAME__ /* gcc 12, clang 9 */
#define HERE __FILE_NAME__ ":" ERROR_STR(__LINE__)
#else
#define HERE __FILE__ ":" ERROR_STR(__LINE__)
#endif

/* Fail here.  FAIL: for a reason that the code found.  FAIL_SYS: a system call failed, and errno
 * gives the status. */
#define FAIL(err, status, ...) error_set((err), (status), 0, HERE, __VA_ARGS__)
#define FAIL_SYS(err, ...) error_set((err), error_from_errno(errno), errno, HERE, __VA_ARGS__)
#define FAIL_NOMEM(err, bytes)                                                                     \
    error_set((err), SIDESTEP_ENOMEM, ENOMEM, HERE, "cannot allocate %zu bytes", (size_t)(bytes))

/* What ${code} of errno means, until the end of the block that this is in. */
#define ERRNO_TEXT(code) strerror_r((code), (char[96]){0}, 96)

/* Evaluate ${expr}, and return its status if it failed.  Locals clean themselves up. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum sidestep_status try_status_ = (expr);                                                 \
        if (try_status_ != SIDESTEP_OK)                                                            \
            return try_status_;                                                                    \
    } while (0)

/* Evaluate ${status}, and wrap the error if it failed.  The value is the status. */
#define WRAP(status, err, ...)                                                                     \
    ({                                                                                             \
        enum sidestep_status wrap_status_ = (status);                                              \
        if (wrap_status_ != SIDESTEP_OK)                                                           \
            error_wrap((err), __VA_ARGS__);                                                        \
        wrap_status_;                                                                              \
    })

/* Check the status that a callback of the program returned, and turn its error ${why} into ours.
 * ${what} is "the codec" for example, and ${name} its name. */
enum sidestep_status error_from_callback(const char *what, const char *name, const char *function,
                                         enum sidestep_status status, struct sidestep_error *why,
                                         struct sidestep_error *err);

#endif
