/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_posix_file.c -- does the operations on files of the host's file systems.
 *
 * With STORE_DIRECT a file has two descriptors: one is buffered, and one has O_DIRECT.  Aligned
 * requests use the second, all others the first.  The kernel keeps the two coherent by page: it
 * writes back the cached pages of a direct request before it, and drops them afterwards.  So no
 * page may be written in both ways at once.  Therefore offsets in a file that is written are
 * aligned to at least a page, even if the device allows 512 bytes.  Offsets in a file that is only
 * read, and addresses in memory, are aligned as the device requires.
 */
#include "store/store_posix.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* One system call moves at most 0x7ffff000 bytes; this is aligned to every page size. */
#define MAX_CALL_BYTES ((size_t)1 << 30)
#define DEFAULT_ALIGNMENT 4096u

#ifdef SYS_cachestat
#define CALL_CACHESTAT SYS_cachestat
#else
#define CALL_CACHESTAT 451 /* the same on all architectures */
#endif

struct posix_file {
    struct store_file base;
    int fd;
    int direct_fd;           /* -1: none */
    size_t alignment;        /* of offsets and lengths of direct requests; constant */
    size_t memory_alignment; /* of their addresses; constant */
    atomic_bool direct;      /* becomes false when the kernel refuses a direct request */
    bool locked;             /* its descriptor is on the list of store_posix_lock.c */
    atomic_int sync_errno;   /* of the first file_sync() that failed; 0: none */
    char name[];
};

static struct posix_file *file_of(struct store_file *file)
{
    return (struct posix_file *)(void *)file;
}

/*
 * Blocks SIGXFSZ between begin and end, and removes the one that our call raised.  A call that
 * makes a file larger than RLIMIT_FSIZE raises this signal in the calling thread, which may be the
 * trainer's.  ${all}: blocks all other signals, too.
 */
struct signal_guard {
    sigset_t before;
    bool was_pending;
};

static void signal_guard_begin(struct signal_guard *guard, bool all)
{
    sigset_t set, pending;

    sigemptyset(&set);
    if (all)
        sigfillset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, &guard->before);
    guard->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

static void signal_guard_end(const struct signal_guard *guard, bool failed)
{
    static const struct timespec now = {0};
    int saved = errno;
    sigset_t xfsz;

    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    if (failed && saved == EFBIG && !guard->was_pending)
        (void)TEMP_FAILURE_RETRY(sigtimedwait(&xfsz, NULL, &now));
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    errno = saved;
}

/* ---- opening */

static struct posix_file *file_new(struct store *store, const char *name,
                                   struct sidestep_error *err)
{
    size_t bytes = strlen(name) + 1;
    struct posix_file *file = memory_new(1, sizeof(*file) + bytes);

    if (file == NULL) {
        (void)FAIL_NOMEM(err, sizeof(*file) + bytes);
        return NULL;
    }
    file->base.store = store;
    file->fd = file->direct_fd = -1;
    memcpy(file->name, name, bytes);
    return file;
}

/* The alignment of direct requests to ${fd}, at least DEFAULT_ALIGNMENT.  0: the file does not
 * support them. */
static size_t direct_alignment(int fd, bool writes, size_t *memory_alignment)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), alignment = page;

    *memory_alignment = max_u64(DEFAULT_ALIGNMENT, page);
#ifdef STATX_DIOALIGN
    struct statx stx;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
        (stx.stx_mask & STATX_DIOALIGN) != 0) {
        if (stx.stx_dio_offset_align == 0)
            return 0;
        alignment = stx.stx_dio_offset_align;
        *memory_alignment = stx.stx_dio_mem_align;
    }
#else
    (void)fd;
#endif
    return max_u64(max_u64(alignment, DEFAULT_ALIGNMENT), writes ? page : 0);
}

static bool same_inode(int a, int b)
{
    struct stat first, second;

    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Open the second descriptor.  O_DIRECT is only faster, so on any error the file stays buffered. */
static void open_direct(struct posix_file *file, int at_fd, int access)
{
    char path[32];

    if (fault_hit("posix.direct"))
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
    int fd = open(path, access | O_DIRECT | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) /* there is no /proc */
        fd = store_posix_open_beneath(at_fd, file->name, access | O_DIRECT | O_NONBLOCK);
    if (fd < 0)
        return;
    file->alignment = direct_alignment(fd, access != O_RDONLY, &file->memory_alignment);
    if (file->alignment == 0 || file->memory_alignment == 0 || !same_inode(fd, file->fd)) {
        (void)close(fd);
        return;
    }
    file->direct_fd = fd;
    atomic_init(&file->direct, true);
}

enum sidestep_status store_posix_file_create(struct store_dir *at, const char *name, uint32_t flags,
                                             struct store_file **out, struct sidestep_error *err)
{
    TRY(store_posix_check_name(name, err));
    OWNED struct posix_file *file = file_new(at->store, name, err);
    if (file == NULL)
        return SIDESTEP_ENOMEM;
    file->fd =
        openat(store_posix_fd(at), name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file->fd < 0)
        return store_posix_fail_change(at, "create", name, err);
    if (flags & STORE_DIRECT)
        open_direct(file, store_posix_fd(at), O_RDWR);
    *out = &TAKE(file)->base;
    return SIDESTEP_OK;
}

/* Check that the file is regular, and remove O_NONBLOCK.  open() had this flag so that it does not
 * wait on a FIFO. */
static enum sidestep_status check_opened(int fd, int access, const char *name,
                                         struct sidestep_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return FAIL_SYS(err, "stat '%s'", name);
    if (!S_ISREG(st.st_mode))
        return FAIL(err, SIDESTEP_EUNSAFE, "open '%s': not a regular file", name);
    if (fcntl(fd, F_SETFL, access) != 0)
        return FAIL_SYS(err, "open '%s'", name);
    return SIDESTEP_OK;
}

/* ${*is_link}: there is a symbolic link, which ${follow} allows to follow. */
static int open_name(int at_fd, const char *name, int flags, bool follow, bool *is_link)
{
    int fd = store_posix_open_beneath(at_fd, name, flags);

    *is_link = fd < 0 && errno == ELOOP && follow;
    return *is_link ? store_posix_open_followed(at_fd, name, flags) : fd;
}

enum sidestep_status store_posix_file_open(struct store_dir *at, const char *name, uint32_t flags,
                                           struct store_file **out, struct sidestep_error *err)
{
    int access = flags & STORE_WRITE ? O_RDWR : O_RDONLY;
    OWNED struct posix_file *file = file_new(at->store, name, err);
    bool is_link;

    assert((flags & (STORE_FOLLOW | STORE_WRITE)) != (STORE_FOLLOW | STORE_WRITE));
    if (file == NULL)
        return SIDESTEP_ENOMEM;
    OWNED_FD fd = open_name(store_posix_fd(at), name, access | O_NONBLOCK | O_NOCTTY,
                            (flags & STORE_FOLLOW) != 0, &is_link);
    if (fd < 0 && is_link && (errno == ENOENT || errno == ENOTDIR))
        return error_set(err, SIDESTEP_EIO, errno, HERE,
                         "open '%s': it is a symbolic link that leads to nothing; if its storage "
                         "is not mounted, mount it",
                         name);
    if (fd < 0 && (errno == ENXIO || errno == ENODEV || errno == EISDIR)) /* socket, device */
        return error_set(err, SIDESTEP_EUNSAFE, errno, HERE, "open '%s': not a regular file", name);
    if (fd < 0)
        return FAIL_SYS(err, "open '%s'", name);
    TRY(check_opened(fd, access, name, err));
    file->fd = fd;
    if (flags & STORE_DROP_CACHE)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (flags & STORE_DIRECT)
        open_direct(file, store_posix_fd(at), access);
    fd = -1;
    *out = &TAKE(file)->base;
    return SIDESTEP_OK;
}

/* ---- bytes */

/* The descriptor for a request: the direct one if the request is aligned and the kernel allows. */
static int choose_fd(struct posix_file *file, const void *memory, size_t bytes, uint64_t offset)
{
    if (file->direct_fd < 0 || !atomic_load_explicit(&file->direct, memory_order_relaxed))
        return file->fd;
    bool fits =
        (bytes | offset) % file->alignment == 0 && (uintptr_t)memory % file->memory_alignment == 0;
    return fits ? file->direct_fd : file->fd;
}

/* After a failed call: is it worth another try?  If the kernel refuses a direct request, because it
 * requires another alignment than it reported, this and all later requests are buffered. */
static bool is_worth_retry(struct posix_file *file, int fd)
{
    if (errno == EINTR)
        return true;
    if (errno != EINVAL || fd == file->fd)
        return false;
    atomic_store_explicit(&file->direct, false, memory_order_relaxed);
    return true;
}

static enum sidestep_status write_all(struct posix_file *file, const unsigned char *from,
                                      size_t bytes, uint64_t offset, struct sidestep_error *err)
{
    while (bytes != 0) {
        size_t length = min_u64(bytes, MAX_CALL_BYTES);
        int fd = choose_fd(file, from, length, offset);
        ssize_t n = fault_hit("posix.pwrite") ? -1 : pwrite(fd, from, length, (off_t)offset);
        if (n < 0 && is_worth_retry(file, fd))
            continue;
        if (n < 0)
            return FAIL_SYS(err, "write %zu bytes at %llu of '%s'", length,
                            (unsigned long long)offset, file->name);
        if (n == 0)
            return FAIL(err, SIDESTEP_EIO, "write %zu bytes at %llu of '%s': nothing was written",
                        length, (unsigned long long)offset, file->name);
        from += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return SIDESTEP_OK;
}

bool store_posix_is_too_large(uint64_t offset, uint64_t bytes)
{
    uint64_t end;

    if (checked_add(offset, bytes, &end) && end <= INT64_MAX)
        return false;
    errno = EFBIG;
    return true;
}

enum sidestep_status store_posix_file_write_at(struct store_file *base, const void *from,
                                               size_t bytes, uint64_t offset,
                                               struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);
    struct signal_guard guard;

    if (store_posix_is_too_large(offset, bytes))
        return FAIL_SYS(err, "write %zu bytes at %llu of '%s'", bytes, (unsigned long long)offset,
                        file->name);
    signal_guard_begin(&guard, false);
    enum sidestep_status status = write_all(file, from, bytes, offset, err);
    signal_guard_end(&guard, status != SIDESTEP_OK);
    return status;
}

/*
 * Is all of this range in the page cache?  cachestat(2) tells, for which glibc has no function yet.
 * RWF_NOWAIT does not serve, because it starts to read ahead what is not cached.
 */
static bool is_cached(int fd, uint64_t offset, size_t bytes)
{
    struct {
        uint64_t offset;
        uint64_t bytes;
    } range = {.offset = offset, .bytes = bytes};
    struct {
        uint64_t cached, dirty, written, evicted, recently_evicted; /* pages */
    } stat = {0};

    return syscall(CALL_CACHESTAT, fd, &range, &stat, 0) == 0 &&
           stat.cached * (uint64_t)sysconf(_SC_PAGESIZE) >= bytes;
}

/* Choose the buffered descriptor if the page cache has the range: it is faster than any disk. */
static int choose_read_fd(struct posix_file *file, const void *to, size_t bytes, uint64_t offset)
{
    int fd = choose_fd(file, to, bytes, offset), saved = errno;

    if (fd != file->fd && is_cached(file->fd, offset, bytes))
        fd = file->fd;
    errno = saved;
    return fd;
}

enum sidestep_status store_posix_file_read_at(struct store_file *base, void *to, size_t bytes,
                                              uint64_t offset, struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);
    unsigned char *next = to;

    if (store_posix_is_too_large(offset, bytes))
        return FAIL(err, SIDESTEP_ECORRUPT, "read %zu bytes at %llu of '%s': no file is that large",
                    bytes, (unsigned long long)offset, file->name);
    while (bytes != 0) {
        size_t length = min_u64(bytes, MAX_CALL_BYTES);
        int fd = choose_read_fd(file, next, length, offset);
        ssize_t n = fault_hit("posix.pread") ? -1 : pread(fd, next, length, (off_t)offset);
        if (n < 0 && is_worth_retry(file, fd))
            continue;
        if (n < 0)
            return FAIL_SYS(err, "read %zu bytes at %llu of '%s'", length,
                            (unsigned long long)offset, file->name);
        if (n == 0)
            return FAIL(err, SIDESTEP_ECORRUPT, "read '%s': file ends at %llu, %zu bytes early",
                        file->name, (unsigned long long)offset, bytes);
        next += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return SIDESTEP_OK;
}

/* ---- bytes through io_uring */

/* A request past the limit of file sizes would raise SIGXFSZ in a thread that does not block it. */
static bool exceeds_limit(uint64_t end)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || end > limit.rlim_cur;
}

int store_posix_file_async_fd(struct store_file *base, const void *memory, size_t bytes,
                              uint64_t offset, bool is_write)
{
    struct posix_file *file = file_of(base);

    if (bytes == 0 || bytes > MAX_CALL_BYTES || store_posix_is_too_large(offset, bytes) ||
        (is_write && exceeds_limit(offset + bytes)))
        return -1;
    int fd = is_write ? choose_fd(file, memory, bytes, offset)
                      : choose_read_fd(file, memory, bytes, offset);
    return fd == file->direct_fd ? fd : -1;
}

/* Can io_uring cause this error where the storage is fine?  Then a call does the request, or tells
 * the real error. */
static bool is_ring_error(int sys_errno)
{
    return sys_errno == EINVAL || sys_errno == EINTR || sys_errno == EAGAIN ||
           sys_errno == ECANCELED || sys_errno == EOPNOTSUPP;
}

enum sidestep_status store_posix_file_async_end(struct store_file *base, void *memory, size_t bytes,
                                                uint64_t offset, bool is_write, int result,
                                                struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);
    size_t done = result > 0 ? (size_t)result : 0;

    assert(done <= bytes);
    if (done == bytes)
        return SIDESTEP_OK;
    errno = result < 0 ? -result : 0;
    if (result < 0 && !is_ring_error(errno))
        return FAIL_SYS(err, "%s %zu bytes at %llu of '%s'", is_write ? "write" : "read", bytes,
                        (unsigned long long)offset, file->name);
    unsigned char *rest = (unsigned char *)memory + done;
    if (is_write)
        return store_posix_file_write_at(base, rest, bytes - done, offset + done, err);
    return store_posix_file_read_at(base, rest, bytes - done, offset + done, err);
}

/* ---- size and durability */

/*
 * Keeps the size: other processes watch it grow, and a writer may need less.  Blocks signals: on
 * some kernels, tmpfs gives all pages back when a signal arrives, and with a fast timer it would
 * never finish.
 */
enum sidestep_status store_posix_file_allocate(struct store_file *base, uint64_t bytes,
                                               struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);
    struct signal_guard guard;
    int failed = -1;

    if (bytes == 0)
        return SIDESTEP_OK;
    if (!store_posix_is_too_large(0, bytes)) {
        signal_guard_begin(&guard, true);
        if (!fault_hit("posix.fallocate"))
            failed = fallocate(file->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
        signal_guard_end(&guard, failed != 0);
    }
    if (failed != 0 && errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS)
        return FAIL_SYS(err, "reserve space for '%s'", file->name);
    return SIDESTEP_OK;
}

enum sidestep_status store_posix_file_truncate(struct store_file *base, uint64_t bytes,
                                               struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);
    struct signal_guard guard;
    int failed = -1;

    if (!store_posix_is_too_large(0, bytes)) {
        signal_guard_begin(&guard, false);
        failed = (int)TEMP_FAILURE_RETRY(ftruncate(file->fd, (off_t)bytes));
        signal_guard_end(&guard, failed != 0);
    }
    if (failed != 0)
        return FAIL_SYS(err, "truncate '%s' to %llu bytes", file->name, (unsigned long long)bytes);
    return SIDESTEP_OK;
}

static enum sidestep_status check_sync_errno(struct posix_file *file, struct sidestep_error *err)
{
    int sys_errno = atomic_load(&file->sync_errno);

    if (sys_errno == 0)
        return SIDESTEP_OK;
    return error_set(err, error_from_errno(sys_errno), sys_errno, HERE,
                     "'%s' is lost: an earlier sync failed", file->name);
}

/*
 * The first failure is final: the kernel marks pages clean even if their write-back failed, so a
 * second fsync may succeed although the bytes are lost.  Only EINTR is tried again.
 */
enum sidestep_status store_posix_file_sync(struct store_file *base, struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);

    TRY(check_sync_errno(file, err));
    if (TEMP_FAILURE_RETRY(fault_hit("posix.fsync") ? -1 : fsync(file->fd)) == 0)
        return SIDESTEP_OK;
    atomic_store(&file->sync_errno, errno);
    return FAIL_SYS(err, "sync '%s'", file->name);
}

enum sidestep_status store_posix_file_stat(struct store_file *base, struct store_stat *out,
                                           struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);
    struct stat st;

    if (fstat(file->fd, &st) != 0)
        return FAIL_SYS(err, "stat '%s'", file->name);
    store_posix_fill_stat(&st, out);
    return SIDESTEP_OK;
}

size_t store_posix_file_alignment(struct store_file *base)
{
    struct posix_file *file = file_of(base);

    return file->direct_fd >= 0 && atomic_load(&file->direct) ? file->alignment : 0;
}

enum sidestep_status store_posix_file_lock(struct store_file *base, bool exclusive,
                                           struct sidestep_error *err)
{
    struct posix_file *file = file_of(base);

    TRY(store_posix_lock_acquire(file->fd, file->name, exclusive, err));
    file->locked = true;
    return SIDESTEP_OK;
}

enum sidestep_status store_posix_file_is_locked(struct store_file *base, bool *is_locked,
                                                struct sidestep_error *err)
{
    const struct posix_file *file = file_of(base);

    return store_posix_lock_is_held(file->fd, file->name, is_locked, err);
}

/* ---- closing */

enum sidestep_status store_posix_file_close(struct store_file *base, struct sidestep_error *err)
{
    OWNED struct posix_file *file = file_of(base);
    int sys_errno = fault_hit("posix.close") ? errno : 0;

    if (file->locked)
        store_posix_lock_untrack(file->fd);
    if (file->direct_fd >= 0 && close(file->direct_fd) != 0)
        sys_errno = errno;
    if (close(file->fd) != 0)
        sys_errno = errno;
    TRY(check_sync_errno(file, err));
    errno = sys_errno;
    if (sys_errno != 0)
        return FAIL_SYS(err, "close '%s'", file->name);
    return SIDESTEP_OK;
}

void store_posix_file_discard(struct store_file *base)
{
    struct posix_file *file = file_of(base);

    if (file->locked)
        store_posix_lock_untrack(file->fd);
    if (file->direct_fd >= 0)
        (void)close(file->direct_fd);
    (void)close(file->fd);
    free(file);
}
