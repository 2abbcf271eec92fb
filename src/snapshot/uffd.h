/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uffd.h -- userfaultfd(2) as we need it: write protection of our own memory, and word of what the
 * program does to it.  One descriptor; every call may be made from any thread.
 *
 * While munmap(2), mremap(2) or madvise(2) by another thread waits for its event to be read, the
 * kernel refuses to protect and to lift with EAGAIN: who gets that must see to it that events are
 * read.
 */
#ifndef SNAPSHOT_UFFD_H
#define SNAPSHOT_UFFD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct uffd {
    int fd;
    bool populates; /* protection reaches only pages that are there: see uffd_protect() */
};

enum uffd_event {
    UFFD_NONE,    /* nobody has anything to say */
    UFFD_FAULT,   /* a thread waits to write at ${begin} */
    UFFD_REMOVED, /* the contents of [begin, end) are being thrown away */
    UFFD_UNMAPPED,
    UFFD_REMAPPED, /* [begin, end) is at ${to} now, protection and all */
};

struct uffd_message {
    enum uffd_event event;
    uint64_t begin;
    uint64_t end;
    uint64_t to;
};

/* Of the machine's ways the one that also holds writes of the kernel (read(2) into a tensor);
 * ${user_mode_only}: where that is refused, one that makes such writes fail with EFAULT.
 * EUNSUPPORTED and EPERM say why there is none. */
enum sidestep_status uffd_open(struct uffd *uffd, bool user_mode_only, struct sidestep_error *err);
void uffd_close(struct uffd *uffd);

/* These return 0 or an errno; ranges are whole pages. */

/* Only private anonymous memory takes it; it lasts until uffd_unregister() or munmap(2). */
int uffd_register(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Lifts protection and wakes who waits, too. */
int uffd_unregister(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* From now on whoever writes there waits.  Pages that were never touched are first read where the
 * kernel wants that (before Linux 6.4). */
int uffd_protect(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Let everybody write, and wake who waits. */
int uffd_unprotect(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* Wake who waits, without letting them write: they will say so again. */
void uffd_wake(const struct uffd *uffd, uint64_t begin, uint64_t end);
/* What happened next; never blocks.  Reading an event lets its thread go on. */
struct uffd_message uffd_read_event(const struct uffd *uffd);

#endif
