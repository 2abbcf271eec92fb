/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uffd.h -- wraps userfaultfd(2): write-protects memory of this process, and reports what the
 * program does to that memory.  One descriptor; every call may be made from any thread.
 *
 * While another thread's munmap(2), mremap(2) or madvise(2) waits for its event to be read, the
 * kernel fails attempts to protect and to unprotect with EAGAIN.  The caller must then make sure
 * that events are read.
 */
#ifndef SNAPSHOT_UFFD_H
#define SNAPSHOT_UFFD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct uffd {
    int fd;
    bool populates; /* protects only present pages, so others are read first: see uffd_protect() */
};

enum uffd_event {
    UFFD_NONE,    /* there is no event */
    UFFD_FAULT,   /* a thread waits to write at ${begin} */
    UFFD_REMOVED, /* the contents of [begin, end) are being discarded */
    UFFD_UNMAPPED,
    UFFD_REMAPPED, /* [begin, end) has moved to ${to}, with its protection */
};

struct uffd_message {
    enum uffd_event event;
    uint64_t begin;
    uint64_t end;
    uint64_t to;
};

/* Open the best descriptor that the machine allows, one that also stops writes of the kernel (such
 * as read(2) into a tensor).  ${user_mode_only}: if that is refused, accept one with which such
 * writes fail with EFAULT.  EUNSUPPORTED and EPERM say why there is none. */
enum sidestep_status uffd_open(struct uffd *uffd, bool user_mode_only, struct sidestep_error *err);
void uffd_close(struct uffd *uffd);

/* These return 0 or an errno; ranges are whole pages. */

/* Only private anonymous memory can be registered.  It stays so until uffd_unregister() or
 * munmap(2). */
int uffd_register(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Also lifts protection and wakes waiting threads. */
int uffd_unregister(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* From now on, threads that write there wait.  If the kernel requires it (before Linux 6.4), pages
 * that were never touched are read first. */
int uffd_protect(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Allow writes, and wake waiting threads. */
int uffd_unprotect(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Wake waiting threads without allowing writes: they will fault again. */
void uffd_wake(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Read the next event; never blocks.  Reading an event lets its thread continue. */
struct uffd_message uffd_read_event(const struct uffd *uffd);

#endif
