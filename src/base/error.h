/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h -- one way to fail: a status to branch on and a sentence to read. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "sidestep/sidestep.h"
#include <errno.h>
#include <stdarg.h>

/*
 * error_set() starts the sentence where the failure is seen; error_wrap() puts "what we were
 * doing" in front of it on the way up, at most once per layer: "what: rest"; error_copy() hands
 * on what was said in an error of one's own.  All accept err == NULL, and keep errno.  In tests
 * error_wrap() asserts that the sentence does not name the same thing twice.
 */
enum sidestep_status error_set(struct sidestep_error *err, enum sidestep_status status,
                               int sys_errno, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void error_wrap(struct sidestep_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void error_copy(struct sidestep_error *err, const struct sidestep_error *why);

/* The status that an errno of a storage call means to a caller (ENOSPC, EDQUOT and EFBIG: no
 * space; EACCES, EPERM, EROFS: permission; ENOENT: not found; ...; anything else: EIO). */
enum sidestep_status error_from_errno(int sys_errno);

/* The last of the statuses, which are numbered from 0 on. */
#define ERROR_LAST_STATUS SIDESTEP_EDEVICE

#define ERROR_STR_(x) #x
#define ERROR_STR(x) ERROR_STR_(x)
#define HERE __FILE_NAME__ ":" ERROR_STR(__LINE__)

/* Fail here: for a reason we found ourselves; because the kernel said so (status from errno). */
#define FAIL(err, status, ...) error_set((err), (status), 0, HERE, __VA_ARGS__)
#define FAIL_SYS(err, ...) error_set((err), error_from_errno(errno), errno, HERE, __VA_ARGS__)
#define FAIL_NOMEM(err, bytes)                                                                     \
    error_set((err), SIDESTEP_ENOMEM, ENOMEM, HERE, "cannot allocate %zu bytes", (size_t)(bytes))

/* Evaluate; on failure return it to our caller.  Locals clean themselves up. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum sidestep_status try_status_ = (expr);                                                 \
        if (try_status_ != SIDESTEP_OK)                                                            \
            return try_status_;                                                                    \
    } while (0)

/* What a function that a program gave us has returned and said, as an error of ours: ${what} is
 * "the codec", ${name} its name. */
enum sidestep_status error_from_callback(const char *what, const char *name, const char *function,
                                         enum sidestep_status status, struct sidestep_error *why,
                                         struct sidestep_error *err);

#endif
