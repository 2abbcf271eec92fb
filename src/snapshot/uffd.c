/* SPDX-License-Identifier: BSD-3-Clause */
/* uffd.c -- calls userfaultfd(2); see uffd.h. */
#include "snapshot/uffd.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

/* Parts of the kernel's interface that older distributions' headers lack. */
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1u << 13)
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define OPEN_FLAGS (O_CLOEXEC | O_NONBLOCK)
#define NEEDED_FEATURES                                                                            \
    (UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP |       \
     UFFD_FEATURE_EVENT_UNMAP)

/* Open a descriptor with the system call, or through the device.  On failure, returns -1 and sets
 * errno. */
static int open_any(bool user_mode_only)
{
    int flags = OPEN_FLAGS | (user_mode_only ? UFFD_USER_MODE_ONLY : 0);

    if (fault_hit("uffd.open"))
        return -1;
    int fd = seccomp_survives(SECCOMP_userfaultfd) ? (int)syscall(SYS_userfaultfd, flags) : -1;
    if (fd >= 0 || errno != EPERM)
        return fd;
    OWNED_FD device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0)
        fd = ioctl(device, USERFAULTFD_IOC_NEW, flags);
    if (fd < 0)
        errno = EPERM;
    return fd;
}

/* Open a descriptor with these features.  After a refusal a descriptor is unusable, so each attempt
 * opens its own. */
static int open_with(bool user_mode_only, uint64_t features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    int fd = open_any(user_mode_only);

    if (fd < 0)
        return -1;
    if ((features & UFFD_FEATURE_WP_UNPOPULATED) != 0 && fault_hit("uffd.unpopulated"))
        errno = EINVAL;
    else if (ioctl(fd, UFFDIO_API, &api) == 0)
        return fd;
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

static int open_best(struct uffd *uffd, bool user_mode_only)
{
    uffd->populates = false;
    int fd = open_with(user_mode_only, NEEDED_FEATURES | UFFD_FEATURE_WP_UNPOPULATED);
    if (fd >= 0 || errno != EINVAL)
        return fd;
    uffd->populates = true;
    return open_with(user_mode_only, NEEDED_FEATURES);
}

enum sidestep_status uffd_open(struct uffd *uffd, bool user_mode_only, struct sidestep_error *err)
{
    uffd->fd = open_best(uffd, false);
    if (uffd->fd < 0 && errno == EPERM && user_mode_only)
        uffd->fd = open_best(uffd, true);
    if (uffd->fd >= 0)
        return SIDESTEP_OK;
    if (errno == EPERM)
        return error_set(
            err, SIDESTEP_EPERM, errno, HERE,
            "userfaultfd needs vm.unprivileged_userfaultfd=1 or CAP_SYS_PTRACE, and no seccomp "
            "profile against it");
    if (errno == ENOSYS)
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE,
                         "userfaultfd is not offered here (old kernel, or a filter)");
    if (errno == EINVAL)
        return error_set(err, SIDESTEP_EUNSUPPORTED, errno, HERE,
                         "this kernel's userfaultfd has no write protection");
    return FAIL_SYS(err, "open a userfaultfd");
}

void uffd_close(struct uffd *uffd)
{
    if (uffd->fd >= 0)
        (void)close(uffd->fd);
    uffd->fd = -1;
}

int uffd_register(const struct uffd *uffd, uint64_t begin, uint64_t end)
{
    struct uffdio_register request = {.range = {.start = begin, .len = end - begin},
                                      .mode = UFFDIO_REGISTER_MODE_WP};

    if (fault_hit("uffd.register"))
        return errno;
    if (ioctl(uffd->fd, UFFDIO_REGISTER, &request) != 0)
        return errno;
    return (request.ioctls & 1u << _UFFDIO_WRITEPROTECT) != 0 ? 0 : EOPNOTSUPP;
}

int uffd_unregister(const struct uffd *uffd, uint64_t begin, uint64_t end)
{
    struct uffdio_range range = {.start = begin, .len = end - begin};

    int failed = ioctl(uffd->fd, UFFDIO_UNREGISTER, &range) == 0 ? 0 : errno;
    uffd_wake(uffd, begin, end); /* the kernel wakes only the threads of other kinds of faults */
    return failed;
}

static int write_protect(const struct uffd *uffd, uint64_t begin, uint64_t end, uint64_t mode)
{
    struct uffdio_writeprotect request = {.range = {.start = begin, .len = end - begin},
                                          .mode = mode};

    return ioctl(uffd->fd, UFFDIO_WRITEPROTECT, &request) == 0 ? 0 : errno;
}

int uffd_protect(const struct uffd *uffd, uint64_t begin, uint64_t end)
{
    if (fault_hit("uffd.protect"))
        return errno;
    if (fault_hit("uffd.unprotected")) /* negative control of the torture test */
        return 0;
    if (uffd->populates && madvise((void *)(uintptr_t)begin, end - begin, MADV_POPULATE_READ) != 0)
        return errno;
    return write_protect(uffd, begin, end, UFFDIO_WRITEPROTECT_MODE_WP);
}

int uffd_unprotect(const struct uffd *uffd, uint64_t begin, uint64_t end)
{
    if (fault_hit("uffd.lift"))
        return errno;
    return write_protect(uffd, begin, end, 0);
}

void uffd_wake(const struct uffd *uffd, uint64_t begin, uint64_t end)
{
    struct uffdio_range range = {.start = begin, .len = end - begin};

    (void)ioctl(uffd->fd, UFFDIO_WAKE, &range);
}

struct uffd_message uffd_read_event(const struct uffd *uffd)
{
    struct uffd_msg raw;
    ssize_t n = TEMP_FAILURE_RETRY(read(uffd->fd, &raw, sizeof(raw)));

    if (n != sizeof(raw))
        return (struct uffd_message){.event = UFFD_NONE};
    switch (raw.event) {
    case UFFD_EVENT_PAGEFAULT:
        return (struct uffd_message){.event = UFFD_FAULT, .begin = raw.arg.pagefault.address};
    case UFFD_EVENT_REMAP:
        return (struct uffd_message){.event = UFFD_REMAPPED,
                                     .begin = raw.arg.remap.from,
                                     .end = raw.arg.remap.from + raw.arg.remap.len,
                                     .to = raw.arg.remap.to};
    case UFFD_EVENT_REMOVE:
    case UFFD_EVENT_UNMAP:
        return (struct uffd_message){.event = raw.event == UFFD_EVENT_REMOVE ? UFFD_REMOVED
                                                                             : UFFD_UNMAPPED,
                                     .begin = raw.arg.remove.start,
                                     .end = raw.arg.remove.end};
    default:
        return (struct uffd_message){.event = UFFD_NONE};
    }
}
