/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_limit_test.c -- saves and loads in a process with little memory beside its state: by
 * RLIMIT_DATA, and in a cgroup. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cgroup.h"
#include "base/owned.h"
#include "support/held.h"

#define STATE_BYTES (128 * MIB)
#define CAP_BYTES (32 * MIB)
/* What a save may use beyond its cap, with threads and their stacks. */
#define BESIDE_BYTES (64 * MIB)
/* Under protection, the limit also counts reserved addresses: room for 96 threads. */
#define RESERVED_BYTES (96 * MIB)
/* A state that is loaded, and limits that leave more and less than 16 times its size. */
#define LOADED_BYTES (32 * MIB)
#define MUCH_MEMORY (24 * LOADED_BYTES)
#define LITTLE_MEMORY (12 * LOADED_BYTES)
#define NO_DIRECT_IO 255

static struct rlimit unlimited;
static unsigned char *memory;

static void let_it_have(size_t more)
{
    struct rlimit limit = unlimited;

    limit.rlim_cur = memory_of("VmData") + more;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
}

static void let_it_have_all(void)
{
    assert_int_equal(setrlimit(RLIMIT_DATA, &unlimited), 0);
}

/* Memory beyond the limit must not be had. */
static void need_limit(void)
{
    need_plain_memory();
    let_it_have(BESIDE_BYTES);
    void *more =
        mmap(NULL, STATE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    let_it_have_all();
    if (more == MAP_FAILED)
        return;
    munmap(more, STATE_BYTES);
    print_message("RLIMIT_DATA has no effect here\n");
    skip();
}

static int setup_state(void **state)
{
    memory = map(STATE_BYTES);
    return getrlimit(RLIMIT_DATA, &unlimited) == 0 ? setup(state) : -1;
}

static int teardown_state(void **state)
{
    munmap(memory, STATE_BYTES);
    return teardown(state);
}

static int lift(void **state)
{
    (void)state;
    held_pool_bytes = 0;
    return setrlimit(RLIMIT_DATA, &unlimited);
}

static void opened(enum sidestep_snapshot snapshot, size_t cap)
{
    held_pool_bytes = cap;
    begin(snapshot);
    add(memory, STATE_BYTES, 1, 0);
    fill(1);
}

/* The state is rewritten when the call returns: the worst case for memory. */
static void a_cap_is_enough(enum sidestep_snapshot snapshot, size_t reserved)
{
    let_it_have(CAP_BYTES + BESIDE_BYTES + reserved);
    opened(snapshot, CAP_BYTES);
    for (int i = 0; i < 3; i++) {
        fill(1);
        expect_ok(start());
        fill(2);
        expect_ok(finish());
        assert_int_equal(job.info.snapshot, snapshot);
        let_it_have_all();
        expect_epoch(1);
        let_it_have(BESIDE_BYTES);
    }
    let_it_have_all();
    end();
}

TEST(a_cap_is_enough_for_copies)
{
    need_limit();
    a_cap_is_enough(SIDESTEP_SNAPSHOT_COPY, 0);
}

TEST(a_cap_is_enough_under_protection)
{
    need_limit();
    need_cow();
    a_cap_is_enough(SIDESTEP_SNAPSHOT_COW, RESERVED_BYTES);
}

/* Also the control: the limit is effective. */
TEST(without_a_cap_it_fails_and_harms_nothing)
{
    need_limit();
    opened(SIDESTEP_SNAPSHOT_COPY, CAP_BYTES);
    expect_ok(start());
    expect_ok(finish());
    end();
    opened(SIDESTEP_SNAPSHOT_COPY, 0);
    let_it_have(BESIDE_BYTES);
    fill(3);
    assert_int_equal(start(), SIDESTEP_ENOMEM);
    assert_non_null(strstr(job.err.message, "memory"));
    let_it_have_all();
    expect_epoch(1);
    expect_ok(start());
    fill(2);
    expect_ok(finish());
    expect_epoch(3);
    end();
}

/* ---- cgroups */

static const struct {
    const char *place, *limit;
} versions[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                {"/sys/fs/cgroup", "memory.max"}};

static bool write_text(const char *dir, const char *file, const char *text)
{
    char path[192];

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    OWNED_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Make a cgroup with a limit.  False: not possible here. */
static bool make_cgroup(char dir[128], uint64_t bytes)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        snprintf(dir, 128, "%s/sidestep-unit-%d", versions[i].place, (int)getpid());
        if (mkdir(dir, 0755) != 0)
            continue;
        if (write_text(dir, versions[i].limit, text))
            return true;
        (void)rmdir(dir);
    }
    return false;
}

/* In a child that is in the cgroup: 0 if a copy of a state of half the limit is right although the
 * pool must be smaller, else the line where it is not.  ${pool_bytes}: a cap of the program. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ & 0xff;                                                                \
    } while (0)
static int save_with_pool(const char *path, uint64_t pool_bytes)
{
    opened(SIDESTEP_SNAPSHOT_COPY, pool_bytes);
    snprintf(job.path, sizeof(job.path), "%s/it", path);
    for (uint64_t epoch = 1; epoch < 4; epoch++) {
        fill(epoch);
        CHECK(start() == SIDESTEP_OK);
        fill(epoch + 10);
        CHECK(finish() == SIDESTEP_OK);
        CHECK((job.info.flags & SIDESTEP_SAVE_STREAMED) != 0);
        CHECK(strstr(job.info.pool_reason, "of memory are left") != NULL);
    }
    end();
    return 0;
}

static int enter_cgroup(const char *dir)
{
    char pid[16];

    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    CHECK(write_text(dir, "cgroup.procs", pid));
    return 0;
}

/* How a child ended that did ${work} in a cgroup with ${limit} bytes. */
static int in_a_child(uint64_t limit, int (*work)(const char *path, uint64_t argument),
                      uint64_t argument)
{
    struct scratch disk; /* files in memory would count, too */
    char dir[128];
    int status;

    assert_true(scratch_make(&disk, NULL));
    if (!make_cgroup(dir, limit)) {
        scratch_remove(&disk);
        print_message("no cgroup can be made here\n");
        skip();
    }
    munmap(memory, STATE_BYTES); /* the child's own state counts in its cgroup */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memory = map(STATE_BYTES);
        status = enter_cgroup(dir);
        _exit(status != 0 ? status : work(disk.path, argument));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    memory = map(STATE_BYTES);
    (void)rmdir(dir);
    scratch_remove(&disk);
    return status;
}

/* The state has more than half of what the cgroup may have. */
TEST(a_pool_fits_into_the_memory_of_a_cgroup)
{
    need_plain_memory();
    assert_int_equal(in_a_child(STATE_BYTES + 2 * BESIDE_BYTES, save_with_pool, 0), 0);
}

/* The control: the cgroup's limit is effective. */
TEST(a_pool_that_does_not_fit_ends_the_process)
{
    need_plain_memory();
    int status = in_a_child(STATE_BYTES + 2 * BESIDE_BYTES, save_with_pool, 2 * STATE_BYTES);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* How much of the checkpoint's largest file is in the page cache, in percent. */
static unsigned cached_percent(void)
{
    char path[256];
    struct stat info;
    size_t cached = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    static unsigned char resident[LOADED_BYTES / 4096 + 4096];

    snprintf(path, sizeof(path), "%s/__0_0.distcp", job.path);
    OWNED_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    size_t bytes = (size_t)info.st_size, pages = (bytes + page - 1) / page;
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(mapped != MAP_FAILED && pages <= sizeof(resident));
    assert_int_equal(mincore(mapped, bytes, resident), 0);
    munmap(mapped, bytes);
    for (size_t i = 0; i < pages; i++)
        cached += resident[i] & 1;
    return (unsigned)(cached * 100 / pages);
}

/* In a child: save, load, and see if the file is in the page cache then. */
static int load_from_disk(const char *path, uint64_t is_cached)
{
    begin(SIDESTEP_SNAPSHOT_COPY);
    snprintf(job.path, sizeof(job.path), "%s/it", path);
    add(memory, LOADED_BYTES, 1, 0);
    fill(1);
    CHECK(start() == SIDESTEP_OK);
    CHECK(finish() == SIDESTEP_OK);
    if ((job.info.flags & SIDESTEP_SAVE_DIRECT_IO) == 0 || cached_percent() > 1)
        return NO_DIRECT_IO;
    expect_epoch(1);
    unsigned percent = cached_percent();
    end();
    if (is_cached != 0 ? percent > 95 : percent <= 1)
        return 0;
    print_message("# %u percent of the file are in the page cache\n", percent);
    return __LINE__ & 0xff;
}

static void expect_cached(uint64_t limit, uint64_t is_cached)
{
    int status = in_a_child(limit, load_from_disk, is_cached);

    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_DIRECT_IO) {
        print_message("no file can be written past the page cache here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

TEST(a_load_leaves_what_it_reads_in_the_page_cache)
{
    need_plain_memory();
    expect_cached(MUCH_MEMORY, 1);
}

/* A sixteenth of the free memory is the most that it may take. */
TEST(a_load_in_little_memory_reads_past_the_page_cache)
{
    need_plain_memory();
    expect_cached(LITTLE_MEMORY, 0);
}

/* Files of a machine: ${path} below the scratch directory. */
static void machine_has(const char *path, const char *text)
{
    char dir[256], *slash;

    snprintf(dir, sizeof(dir), "%s/%s", scratch.path, path);
    for (slash = strchr(dir + strlen(scratch.path) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(dir, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    OWNED_FD fd = open(dir, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void expect_limits(uint64_t bytes, uint64_t room, uint64_t free_bytes, unsigned cpus)
{
    struct cgroup_limits limits;

    cgroup_read(scratch.path, &limits);
    assert_int_equal(limits.memory, bytes);
    assert_int_equal(limits.memory_room, room);
    assert_int_equal(limits.memory_free, free_bytes);
    assert_int_equal(limits.cpus, cpus);
}

TEST(limits_of_both_versions_of_cgroups_are_read)
{
    expect_limits(UINT64_MAX, UINT64_MAX, UINT64_MAX, 0); /* there is nothing */
    machine_has("proc/self/cgroup", "0::/pod/one\n");
    machine_has("sys/fs/cgroup/pod/one/memory.max", "max\n");
    machine_has("sys/fs/cgroup/pod/one/cpu.max", "150000 100000\n");
    machine_has("sys/fs/cgroup/pod/memory.max", "1000\n");
    machine_has("sys/fs/cgroup/pod/memory.current", "900\n");
    machine_has("sys/fs/cgroup/pod/memory.stat",
                "anon 5\ninactive_file 200\nactive_file 100\nfile 350\n");
    machine_has("sys/fs/cgroup/pod/cpu.max", "max 100000\n");
    expect_limits(1000, 400, 300, 2);
    machine_has("sys/fs/cgroup/pod/memory.current", "2000\n"); /* it was lowered */
    expect_limits(1000, 0, 0, 2);
    machine_has("proc/self/cgroup", "4:memory:/a\n2:cpu,cpuacct:/b\n1:name=systemd:/\n0::/\n");
    machine_has("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
    machine_has("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3000\n");
    machine_has("sys/fs/cgroup/memory/a/memory.stat",
                "inactive_file 9\ntotal_inactive_file 500\ntotal_active_file 300\n");
    machine_has("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    machine_has("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "-1\n");
    machine_has("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n");
    expect_limits(5000, 2800, 2500, 0);
    machine_has("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    machine_has("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    expect_limits(5000, 2800, 2500, 1);
    machine_has("proc/self/cgroup", "::\n4:memory\nx\n");
    machine_has("sys/fs/cgroup/memory.max", "no number\n");
    expect_limits(UINT64_MAX, UINT64_MAX, UINT64_MAX, 0);
}

EACH_TEST(NULL, lift);
ALL_TESTS(setup_state, teardown_state);
