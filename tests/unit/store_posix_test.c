/* SPDX-License-Identifier: BSD-3-Clause */
/* store_posix_test.c -- the POSIX store with unusual files, hostile paths, and other processes. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "support/posix_bench.h"

/* ---- strangers among the names */

/* All kinds of names that are not files or directories, besides a file and a directory. */
static void plant_strangers(struct bench *b)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    OWNED_FD fd = socket(AF_UNIX, SOCK_STREAM, 0);

    put(b, "file", "inside");
    assert_int_equal(mkdirat(b->root_fd, "dir", 0777), 0);
    put(b, "dir/file", "inside");
    assert_int_equal(symlinkat("file", b->root_fd, "link"), 0);
    assert_int_equal(symlinkat("dir", b->root_fd, "dirlink"), 0);
    assert_int_equal(symlinkat("../dir", b->root_fd, "dir/dirlink"), 0);
    assert_int_equal(symlinkat("file", b->root_fd, "dir/link"), 0);
    assert_int_equal(symlinkat("/", b->root_fd, "rootlink"), 0);
    assert_int_equal(symlinkat("/etc/passwd", b->root_fd, "outlink"), 0);
    assert_int_equal(symlinkat("/proc/self/fd/0", b->root_fd, "magic"), 0);
    assert_int_equal(symlinkat("nowhere", b->root_fd, "dangling"), 0);
    assert_int_equal(symlinkat("loop", b->root_fd, "loop"), 0);
    assert_int_equal(mkfifoat(b->root_fd, "fifo", 0666), 0);
    assert_int_equal(mkfifoat(b->root_fd, "dir/fifo", 0666), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", b->scratch.path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)mknodat(b->root_fd, "device", S_IFCHR | 0666, makedev(1, 5)); /* /dev/zero, as root */
}

static const char *const strangers[] = {
    "link",
    "dirlink",
    "rootlink",
    "outlink",
    "magic",
    "dangling",
    "loop",
    "fifo",
    "socket",
    "device",
    "dir",
    "dir/dirlink",
    "dir/link",
    "dir/fifo",
    "dirlink/file",
    "dir/dirlink/file",
    "rootlink/etc/passwd",
    "link/file",
    "loop/file",
    "magic/file",
    "dangling/file",
    "outlink/x",
    "dir/link/x",
    "dirlink/fifo",
    "rootlink/dev/zero",
    "dirlink/dirlink/file",
};
/* Beginnings of untrusted paths. */
static const char *const prefixes[] = {"", "./", "../", "/", "dir/../", "dirlink/../"};

static void refuse_strangers(struct bench *b, size_t *vectors)
{
    for (size_t p = 0; p < ARRAY_LENGTH(prefixes); p++)
        for (size_t i = 0; i < ARRAY_LENGTH(strangers); i++)
            for (uint32_t flags = 0; flags <= STORE_WRITE; flags++, ++*vectors) {
                struct store_file *file = NULL;
                char path[128];
                snprintf(path, sizeof(path), "%s%s", prefixes[p], strangers[i]);
                struct stat st;
                if (fstatat(b->root_fd, "device", &st, AT_SYMLINK_NOFOLLOW) != 0 &&
                    strcmp(path, "device") == 0)
                    continue; /* only root makes devices */
                enum sidestep_status status = store_file_open(b->root, path, flags, &file, &b->err);
                if (status != SIDESTEP_EUNSAFE)
                    fail_msg("'%s': %s", path, status != 0 ? b->err.message : "was opened");
            }
}

TEST(links_fifos_and_devices_are_refused)
{
    struct bench *b = *fixture;
    size_t vectors = 0;

    plant_strangers(b);
    refuse_strangers(b, &vectors);
    fault_arm("posix.openat2", 1, true, ENOSYS);
    refuse_strangers(b, &vectors);
    assert_true(fault_hits() >= ARRAY_LENGTH(strangers));
    fault_arm("posix.openat2", 1, true, EPERM);
    refuse_strangers(b, &vectors);
    fault_arm("", 0, false, 0);
    assert_true(vectors >= 150);
}

/* Readers follow links to regular files, also out of the directory, and open nothing else. */
TEST(readers_follow_links_to_files_only)
{
    static const struct {
        const char *path;
        enum sidestep_status status;
        const char *message;
    } cases[] = {
        {"file", SIDESTEP_OK, NULL},
        {"link", SIDESTEP_OK, NULL},
        {"outlink", SIDESTEP_OK, NULL},
        {"dirlink/file", SIDESTEP_OK, NULL},
        {"dir/dirlink/file", SIDESTEP_OK, NULL},
        {"rootlink/etc/passwd", SIDESTEP_OK, NULL},
        {"no", SIDESTEP_ENOTFOUND, "No such file"},
        {"dir/no", SIDESTEP_ENOTFOUND, "No such file"},
        {"dangling", SIDESTEP_EIO, "a symbolic link that leads to nothing"},
        {"dangling/file", SIDESTEP_EIO, "a symbolic link that leads to nothing"},
        {"link/file", SIDESTEP_EIO, "a symbolic link that leads to nothing"},
        {"loop", SIDESTEP_EIO, "levels of symbolic links"},
        {"dirlink", SIDESTEP_EIO, "not a regular file"},
        {"dirlink/fifo", SIDESTEP_EIO, "not a regular file"},
        {"rootlink/dev/zero", SIDESTEP_EIO, "not a regular file"},
        {"fifo", SIDESTEP_EIO, "not a regular file"},
        {"socket", SIDESTEP_EIO, "not a regular file"},
        {"dir", SIDESTEP_EIO, "not a regular file"},
        {"../x", SIDESTEP_EUNSAFE, NULL},
        {"dirlink/../file", SIDESTEP_EUNSAFE, NULL},
        {"/etc/passwd", SIDESTEP_EUNSAFE, NULL},
    };
    static const int refusals[] = {0, ENOSYS, EPERM};
    struct bench *b = *fixture;
    struct store_stat st;

    plant_strangers(b);
    for (size_t r = 0; r < ARRAY_LENGTH(refusals); r++)
        for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
            OWNED_FILE *file = NULL;
            fault_arm("posix.openat2", refusals[r] != 0, true, refusals[r]);
            enum sidestep_status status =
                store_file_open_to_read(b->root, cases[i].path, 0, &file, &b->err);
            if (status != cases[i].status)
                fail_msg("'%s': %s", cases[i].path, status != 0 ? b->err.message : "was opened");
            if (cases[i].message != NULL && strstr(b->err.message, cases[i].message) == NULL)
                fail_msg("'%s': %s", cases[i].path, b->err.message);
        }
    fault_arm("", 0, false, 0);
    assert_ok(store_stat_to_read(b->root, "dirlink/file", &st, &b->err));
    assert_int_equal(st.size, strlen("inside"));
    assert_int_equal(store_stat_to_read(b->root, "dangling", &st, &b->err), SIDESTEP_EIO);
}

TEST(plain_paths_open_without_openat2)
{
    static const int refusals[] = {0, ENOSYS, EPERM};
    struct bench *b = *fixture;
    char text[6], deep[4200];

    plant_strangers(b);
    memset(deep, 'x', sizeof(deep));
    memcpy(deep, "dir/", 4);
    deep[sizeof(deep) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        OWNED_FILE *file = NULL;
        fault_arm("posix.openat2", refusals[i] != 0, true, refusals[i]);
        assert_ok(store_file_open(b->root, "dir/file", 0, &file, &b->err));
        assert_ok(store_file_read_at(file, text, 6, 0, &b->err));
        assert_memory_equal(text, "inside", 6);
        assert_int_equal(store_file_open(b->root, "dir/no", 0, &file, &b->err), SIDESTEP_ENOTFOUND);
        assert_int_equal(store_file_open(b->root, "file/no", 0, &file, &b->err),
                         SIDESTEP_ENOTFOUND);
        deep[300] = 'x';
        assert_int_equal(store_file_open(b->root, deep, 0, &file, &b->err), SIDESTEP_EINVAL);
        deep[300] = '/';
        assert_int_equal(store_file_open(b->root, deep, 0, &file, &b->err), SIDESTEP_EINVAL);
        assert_int_equal(b->err.sys_errno, ENAMETOOLONG);
    }
}

TEST(names_of_links_mean_the_links)
{
    struct bench *b = *fixture;
    struct store_dir *dir = NULL;
    struct store_file *file = NULL;
    struct store_stat st;

    plant_strangers(b);
    assert_int_equal(store_dir_open(store_posix(), b->root, "dirlink", &dir, &b->err),
                     SIDESTEP_EUNSAFE);
    assert_non_null(strstr(b->err.message, "'dirlink' is a symbolic link"));
    assert_int_equal(store_file_create(b->root, "dangling", 0, &file, &b->err), SIDESTEP_EEXISTS);
    assert_int_equal(store_link(b->root, "link", b->root, "new", &b->err), SIDESTEP_EUNSAFE);
    assert_non_null(strstr(b->err.message, "not a regular file"));
    assert_ok(store_stat(b->root, "link", &st, &b->err));
    assert_int_equal(st.kind, STORE_LINK);
    assert_ok(store_stat(b->root, "fifo", &st, &b->err));
    assert_int_equal(st.kind, STORE_OTHER);
    assert_ok(store_unlink(b->root, "link", &b->err));
    assert_ok(store_stat(b->root, "file", &st, &b->err));
    assert_int_equal(st.kind, STORE_FILE);
    /* A hard link is a file like any other. */
    assert_ok(store_link(b->root, "file", b->root, "hard", &b->err));
    assert_ok(store_file_open(b->root, "hard", 0, &file, &b->err));
    store_file_discard(file);
    /* The user chooses paths of directories, so they may contain links. */
    char path[128];
    snprintf(path, sizeof(path), "%s/dirlink", b->scratch.path);
    assert_ok(store_dir_open(store_posix(), NULL, path, &dir, &b->err));
    store_dir_close(dir);
}

struct race {
    struct bench *bench;
    atomic_bool stop;
};

/* Make "dir" alternate between a directory and a link to "outside". */
static void *swap_link(void *argument)
{
    struct race *race = argument;

    while (!race->stop)
        (void)renameat2(race->bench->root_fd, "dir", race->bench->root_fd, "other",
                        RENAME_EXCHANGE);
    return NULL;
}

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The other way, component by component, may also find nothing. */
static bool openat2_works(void)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC};
    OWNED_FD fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));

    return fd >= 0;
}

TEST(a_racing_link_is_never_followed)
{
    struct bench *b = *fixture;
    struct race race = {.bench = b};
    pthread_t thread;

    assert_int_equal(mkdirat(b->root_fd, "dir", 0777), 0);
    assert_int_equal(mkdirat(b->root_fd, "outside", 0777), 0);
    put(b, "dir/file", "inside");
    put(b, "outside/file", "secret");
    assert_int_equal(symlinkat("outside", b->root_fd, "other"), 0);
    assert_int_equal(pthread_create(&thread, NULL, swap_link, &race), 0);
    for (int by_components = 0; by_components < 2; by_components++) {
        size_t opened = 0, refused = 0;
        fault_arm("posix.openat2", (unsigned long)by_components, true, ENOSYS);
        for (double end = seconds_now() + 0.1; seconds_now() < end || opened * refused == 0;) {
            OWNED_FILE *file = NULL;
            char text[7] = "";
            enum sidestep_status status = store_file_open(b->root, "dir/file", 0, &file, &b->err);
            opened += status == SIDESTEP_OK;
            refused += status == SIDESTEP_EUNSAFE;
            if (status == SIDESTEP_OK) {
                assert_ok(store_file_read_at(file, text, 6, 0, &b->err));
                assert_string_equal(text, "inside");
            } else if (!by_components && openat2_works()) {
                assert_int_equal(status, SIDESTEP_EUNSAFE);
            }
        }
    }
    race.stop = true;
    pthread_join(thread, NULL);
}

/* ---- other processes */

static int wait_for(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

TEST(a_lock_dies_with_its_process)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = NULL;
    int ready[2];
    char byte;

    put(b, "f", "");
    assert_ok(store_file_open(b->root, "f", STORE_WRITE, &file, &b->err));
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_file *own = NULL;
        if (store_file_open(b->root, "f", STORE_WRITE, &own, NULL) == SIDESTEP_OK &&
            store_file_lock(own, true, NULL) == SIDESTEP_OK)
            (void)!write(ready[1], "x", 1);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    ssize_t got = read(ready[0], &byte, 1);
    close(ready[0]);
    enum sidestep_status while_held = store_file_lock(file, true, &b->err);
    enum sidestep_status shared_while_held = store_file_lock(file, false, NULL);
    kill(child, SIGKILL);
    wait_for(child);
    assert_int_equal(got, 1);
    assert_int_equal(while_held, SIDESTEP_ELOCKED);
    assert_int_equal(shared_while_held, SIDESTEP_ELOCKED);
    assert_ok(store_file_lock(file, true, &b->err));
}

TEST(nothing_is_left_open_by_exec)
{
    struct bench *b = *fixture;
    OWNED_DIR *dir = NULL;
    OWNED_FILE *created = NULL, *opened = NULL;

    bool was_open[1024];
    for (int fd = 0; fd < 1024; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) != -1;
    assert_ok(store_dir_open(store_posix(), NULL, b->scratch.path, &dir, &b->err));
    assert_ok(store_file_create(b->root, "f", STORE_DIRECT, &created, &b->err));
    assert_ok(store_file_open(b->root, "f", STORE_DIRECT, &opened, &b->err));
    int seen = 0;
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (was_open[fd] || flags == -1)
            continue;
        seen++;
        assert_true((flags & FD_CLOEXEC) != 0);
    }
    assert_true(seen >= 3);
}

TEST(modes_are_up_to_the_umask)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = NULL;
    struct stat st;
    mode_t before = umask(0);

    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    assert_ok(store_dir_make(b->root, "d", &b->err));
    umask(077);
    assert_ok(store_dir_make(b->root, "e", &b->err));
    umask(before);
    assert_int_equal(fstatat(b->root_fd, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0666);
    assert_int_equal(fstatat(b->root_fd, "d", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0777);
    assert_int_equal(fstatat(b->root_fd, "e", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

TEST(traits_distinguish_tmpfs_from_disk)
{
    struct bench *b = *fixture;
    OWNED_DIR *shm = NULL, *proc = NULL;
    struct store_traits traits;

    assert_ok(store_dir_open(store_posix(), NULL, "/dev/shm", &shm, &b->err));
    assert_ok(store_dir_traits(shm, &traits, &b->err));
    assert_string_equal(traits.type_name, "tmpfs");
    assert_true(traits.is_volatile);
    assert_ok(store_dir_open(store_posix(), NULL, "/proc", &proc, &b->err));
    assert_ok(store_dir_traits(proc, &traits, &b->err));
    assert_string_equal(traits.type_name, "0x9fa0");
}

EACH_TEST(setup, teardown);
