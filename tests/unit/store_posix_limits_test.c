/* SPDX-License-Identifier: BSD-3-Clause */
/* store_posix_limits_test.c -- the POSIX store under signals and at the limits of the host. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "support/posix_bench.h"

static void create_unnamed(struct bench *b, struct store_dir *at, struct store_file **file)
{
    char name[64];

    snprintf(name, sizeof(name), "sidestep-test-%d", (int)getpid());
    assert_ok(store_file_create(at, name, 0, file, &b->err));
    assert_ok(store_unlink(at, name, &b->err));
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    alarms++;
}

TEST(many_signals_lose_no_byte)
{
    enum { BYTES = 1 << 20, PIECES = 24 };
    struct bench *b = *fixture;
    struct sigaction action = {.sa_handler = on_alarm}, before; /* no SA_RESTART */
    struct itimerval storm = {{0, 1000}, {0, 1000}}, calm = {{0, 0}, {0, 0}};
    OWNED unsigned char *piece = malloc(BYTES), *seen = malloc(BYTES);
    OWNED_FILE *file = NULL;

    alarms = 0;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &storm, NULL);
    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    assert_ok(store_file_allocate(file, (uint64_t)BYTES * PIECES, &b->err));
    for (int i = 0; i < PIECES || alarms < 20; i++) {
        memset(piece, i, BYTES);
        assert_ok(store_file_write_at(file, piece, BYTES, (uint64_t)(i % PIECES) * BYTES, &b->err));
        assert_ok(store_file_read_at(file, seen, BYTES, (uint64_t)(i % PIECES) * BYTES, &b->err));
        assert_memory_equal(piece, seen, BYTES);
    }
    assert_ok(store_file_sync(file, &b->err));
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_ok(store_file_close(TAKE(file), &b->err));
    setitimer(ITIMER_REAL, &calm, NULL);
    sigaction(SIGALRM, &before, NULL);
}

TEST(the_size_limit_is_an_error_and_no_signal)
{
    struct bench *b = *fixture;
    struct rlimit before, limit;
    OWNED_FILE *file = NULL;
    sigset_t pending, mask;
    struct store_stat st;
    char bytes[8192] = "";

    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 6000;
    setrlimit(RLIMIT_FSIZE, &limit);
    enum sidestep_status wrote = store_file_write_at(file, bytes, sizeof(bytes), 0, &b->err);
    enum sidestep_status cut = store_file_truncate(file, 7000, NULL);
    (void)store_file_allocate(file, 7000, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(wrote, SIDESTEP_ENOSPC);
    assert_int_equal(b->err.sys_errno, EFBIG);
    assert_non_null(strstr(b->err.message, "of 'f': File too large"));
    assert_int_equal(cut, SIDESTEP_ENOSPC);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGXFSZ), 0);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGXFSZ), 0);
    assert_ok(store_file_stat(file, &st, &b->err));
    assert_int_equal(st.size, 6000);
}

TEST(no_descriptors_left_is_an_error)
{
    struct bench *b = *fixture;
    struct rlimit before, limit;
    struct store_file *file = NULL, *direct = NULL;
    struct store_dir *dir = NULL;
    int lowest_free = dup(b->root_fd);

    close(lowest_free);
    put(b, "f", "text");
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = (rlim_t)lowest_free;
    setrlimit(RLIMIT_NOFILE, &limit);
    enum sidestep_status create = store_file_create(b->root, "g", 0, &file, NULL);
    enum sidestep_status list = store_dir_list(b->root, NULL, NULL, NULL);
    enum sidestep_status descend = store_dir_open(store_posix(), NULL, "/", &dir, NULL);
    enum sidestep_status open = store_file_open(b->root, "f", 0, &file, &b->err);
    limit.rlim_cur++;
    setrlimit(RLIMIT_NOFILE, &limit);
    /* One descriptor is enough: the file is buffered then. */
    enum sidestep_status open_direct = store_file_open(b->root, "f", STORE_DIRECT, &direct, NULL);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(create, SIDESTEP_EIO);
    assert_int_equal(list, SIDESTEP_EIO);
    assert_int_equal(descend, SIDESTEP_EIO);
    assert_int_equal(open, SIDESTEP_EIO);
    assert_non_null(strstr(b->err.message, "open 'f': Too many open files"));
    assert_ok(open_direct);
    assert_int_equal(store_file_alignment(direct), 0);
    store_file_discard(direct);
}

/* Map 2.2 GiB of addresses to the same 2 MiB of memory. */
static unsigned char *map_repeatedly(size_t bytes, size_t piece)
{
    OWNED_FD fd = memfd_create("piece", 0);
    unsigned char *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(fd >= 0 && all != MAP_FAILED);
    assert_int_equal(ftruncate(fd, (off_t)piece), 0);
    for (size_t at = 0; at < bytes; at += piece)
        assert_true(mmap(all + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
                    MAP_FAILED);
    return all;
}

TEST(one_read_may_exceed_two_gigabytes)
{
    const size_t piece = (size_t)2 << 20, bytes = piece * 1100;
    struct bench *b = *fixture;
    OWNED_FILE *file = NULL;
    OWNED_DIR *shm = NULL;

    assert_ok(store_dir_open(store_posix(), NULL, "/dev/shm", &shm, &b->err));
    create_unnamed(b, shm, &file);
    assert_ok(store_file_write_at(file, "end", 3, bytes - 3, &b->err));
    unsigned char *all = map_repeatedly(bytes, piece);
    assert_ok(store_file_read_at(file, all, bytes, 0, &b->err));
    assert_memory_equal(all + bytes - 3, "end", 3);
    assert_int_equal(store_file_read_at(file, all, bytes, 1, &b->err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(b->err.message, "file ends at 2306867200"));
    munmap(all, bytes);
}

static bool write_text(const char *path, const char *text)
{
    OWNED_FD fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Enter a mount namespace; without root, also a user namespace, as its root. */
static bool leave_mounts(void)
{
    char user[32], group[32];

    if (geteuid() == 0)
        return unshare(CLONE_NEWNS) == 0;
    snprintf(user, sizeof(user), "0 %u 1", (unsigned)geteuid());
    snprintf(group, sizeof(group), "0 %u 1", (unsigned)getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/uid_map", user) &&
           write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/gid_map", group);
}

/* Runs in a child with its own mounts. Returns 0, the line that failed, or -1: not allowed here. */
static int fill_small_tmpfs(const char *path)
{
    static const char bytes[200 * 1024];
    struct sidestep_error err = {0};
    struct store_dir *dir = NULL;
    struct store_file *file = NULL;

    if (!leave_mounts() || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", path, "tmpfs", 0, "size=128k") != 0)
        return -1;
#define CHECK(condition)                                                                           \
    if (!(condition))                                                                              \
    return __LINE__
    CHECK(store_dir_open(store_posix(), NULL, path, &dir, &err) == SIDESTEP_OK);
    CHECK(store_file_create(dir, "f", 0, &file, &err) == SIDESTEP_OK);
    CHECK(store_file_allocate(file, sizeof(bytes), &err) == SIDESTEP_ENOSPC);
    CHECK(err.sys_errno == ENOSPC && strstr(err.message, "reserve space for 'f'") != NULL);
    CHECK(store_file_write_at(file, bytes, sizeof(bytes), 0, &err) == SIDESTEP_ENOSPC);
    CHECK(strstr(err.message, "of 'f': No space left on device") != NULL);
    CHECK(store_file_truncate(file, 0, &err) == SIDESTEP_OK);
    CHECK(store_file_write_at(file, bytes, 64 * 1024, 0, &err) == SIDESTEP_OK);
    CHECK(store_file_close(file, &err) == SIDESTEP_OK);
#undef CHECK
    store_dir_close(dir);
    return 0;
}

static int wait_for(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

TEST(a_full_disk_is_reported)
{
    struct bench *b = *fixture;
    int pipe_fds[2], result = -2;

    assert_int_equal(pipe(pipe_fds), 0);
    pid_t child = fork();
    if (child == 0) {
        result = fill_small_tmpfs(b->scratch.path);
        _exit(write(pipe_fds[1], &result, sizeof(result)) != sizeof(result));
    }
    close(pipe_fds[1]);
    ssize_t got = read(pipe_fds[0], &result, sizeof(result));
    close(pipe_fds[0]);
    wait_for(child);
    assert_int_equal(got, sizeof(result));
    if (result == -1) {
        print_message("skipped: this user may not mount a tmpfs\n");
        skip();
    }
    assert_int_equal(result, 0); /* else: the line of fill_small_tmpfs() */
}

EACH_TEST(setup, teardown);
