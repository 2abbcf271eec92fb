/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * seccomp.h -- finds out which system calls a seccomp filter punishes with death.
 *
 * A filter may answer a call that it forbids with an error, or kill the process.  No file shows
 * which.  So a child makes the call, with arguments that do nothing, and dies instead.  The child
 * shares no memory with this process where the kernel would kill this one, too, if it dumped core
 * (before Linux 5.16); a fork of much memory takes longer there.  It sends no SIGCHLD, and wait(2)
 * does not see it.  Without a filter there is no child.  The answers are kept for the process.
 */
#ifndef BASE_SECCOMP_H
#define BASE_SECCOMP_H

#include <stdbool.h>

/* The calls that sidestep can do without. */
#define SECCOMP_CALLS(X)                                                                           \
    X(userfaultfd)                                                                                 \
    X(process_vm_readv)                                                                            \
    X(vmsplice)                                                                                    \
    X(io_uring_setup)                                                                              \
    X(io_uring_enter)                                                                              \
    X(io_uring_register)                                                                           \
    X(mbind)                                                                                       \
    X(ioprio_set)

enum seccomp_call {
#define SECCOMP_ENUM(call) SECCOMP_##call,
    SECCOMP_CALLS(SECCOMP_ENUM)
#undef SECCOMP_ENUM
        SECCOMP_CALL_COUNT
};

/* May the call be made, if only to get an error?  Sets errno to EPERM if not.  Any thread. */
bool seccomp_survives(enum seccomp_call call);
const char *seccomp_call_name(enum seccomp_call call);

#endif
