/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_others_test.c -- what other processes and the kernel can do to memory while a save has it
 * write-protected. The checkpoint has the bytes of the call, or the save fails and says why. The
 * rows are those of the table in snapshot/cow.h. */
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "support/attack_table.h"

#define ADVICE_PAGEOUT 21
#define CALL_PROCESS_MADVISE 440 /* missing in the headers of some distributions */
#define CALL_PIDFD_OPEN 434
#define SET_MEMORY_MERGE 67
#define PAGE ((size_t)4096)

/* ---- writes by other processes */

/* Write in a child, which may do so for its parent; the save goes on at once. */
static enum outcome write_from_outside(bool (*write_it)(pid_t parent))
{
    pid_t parent = getpid();

    other_process = fork();
    if (other_process == 0)
        _exit(write_it(parent) ? 0 : 1);
    return HELD;
}

static bool write_by_call(pid_t parent)
{
    static unsigned char bytes[64 << 10];
    struct iovec local = {bytes, sizeof(bytes)}, remote = {part(), sizeof(bytes)};

    return process_vm_writev(parent, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(bytes);
}

static bool write_by_file(pid_t parent)
{
    static unsigned char bytes[64 << 10];
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/mem", (int)parent);
    int fd = open(path, O_WRONLY);
    return fd >= 0 && pwrite(fd, bytes, sizeof(bytes), (off_t)(uintptr_t)part()) > 0;
}

static enum outcome write_by_process_vm_writev(void)
{
    return write_from_outside(write_by_call);
}

static enum outcome write_by_proc_mem(void)
{
    return write_from_outside(write_by_file);
}

static enum outcome write_in_a_forked_child(void)
{
    pid_t child = fork();

    if (child == 0) {
        memset(attacked, 9, ATTACK_BYTES);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return HELD;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static enum outcome write_in_a_process_that_shares_memory(void)
{
    errno = ENOTSUP; /* a sanitizer does not know its stack */
    return NOT_HERE;
}
#else
static int write_as_one(void *argument)
{
    attack_write(argument, 9, PART_BYTES);
    return 0;
}

/* As between vfork(2) and exec, except for the stack. */
static enum outcome write_in_a_process_that_shares_memory(void)
{
    unsigned char *stack = map(MIB);
    pid_t child = clone(write_as_one, stack + MIB, CLONE_VM | SIGCHLD, part());

    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap(stack, MIB);
    return HELD;
}
#endif

/* ---- the kernel inspects or moves pages */

static enum outcome write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return done ? HELD : NOT_HERE;
}

static enum outcome clear_soft_dirty(void)
{
    return write_file("/proc/self/clear_refs", "4");
}

static enum outcome clear_references(void)
{
    return write_file("/proc/self/clear_refs", "1");
}

/* PAGEMAP_SCAN with protection of the reported pages. */
static enum outcome scan_and_protect(void)
{
    struct {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t inverted, mask, any, returned;
    } scan = {.size = sizeof(scan),
              .flags = 1, /* PM_SCAN_WP_MATCHING */
              .start = (uintptr_t)part(),
              .end = (uintptr_t)part() + PART_BYTES,
              .any = 0x3e};
    int fd = open("/proc/self/pagemap", O_RDONLY);
    int failed = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'f', 16, sizeof(scan)), &scan);

    close(fd);
    return failed == 0 ? HELD : NOT_HERE;
}

static enum outcome compact(void)
{
    return write_file("/proc/sys/vm/compact_memory", "1");
}

/* Migrate pages to their present node: they do not move, but the kernel handles each. */
static enum outcome migrate(void)
{
    void *address = part();
    int node = 0, status = -1;
    long failed = syscall(SYS_move_pages, 0, 1ul, &address, &node, &status, 2);

    return failed == 0 ? HELD : NOT_HERE;
}

/* ---- pages that are swapped out */

static size_t status_kib(const char *format)
{
    char line[128];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, format, &kib);
    fclose(file);
    return kib;
}

static enum outcome swap_out(void)
{
    if (advise(ADVICE_PAGEOUT, HELD) != HELD)
        return NOT_HERE;
    errno = ENODEV; /* there is no swap, or it is full */
    return status_kib("VmSwap: %zu") != 0 ? HELD : NOT_HERE;
}

static bool advise_the_parent(pid_t parent)
{
    struct iovec range = {part(), PART_BYTES};
    int fd = (int)syscall(CALL_PIDFD_OPEN, parent, 0);

    return fd >= 0 && syscall(CALL_PROCESS_MADVISE, fd, &range, 1ul, ADVICE_PAGEOUT, 0u) > 0;
}

static enum outcome advise_by_another_process(void)
{
    return write_from_outside(advise_the_parent);
}

/* ---- pages that are merged */

#define KSM "/sys/kernel/mm/ksm/"

static unsigned long ksm_number(const char *name)
{
    char line[128], format[64];
    unsigned long number = 0;
    FILE *file = fopen("/proc/self/ksm_stat", "r");

    snprintf(format, sizeof(format), "%s %%lu", name);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, format, &number);
    if (file != NULL)
        fclose(file);
    return number;
}

static bool are_merged(void)
{
    return ksm_number("ksm_merging_pages") != 0;
}

/* Merge the part with itself, while it is protected. */
static enum outcome merge(void)
{
    char was[3][32];
    static const char *const files[] = {KSM "run", KSM "sleep_millisecs", KSM "pages_to_scan"};
    static const char *const set[] = {"1", "1", "20000"};
    bool merged = false;

    if (advise(MADV_MERGEABLE, HELD) != HELD)
        return NOT_HERE;
    for (size_t i = 0; i < 3; i++) {
        FILE *file = fopen(files[i], "r+");
        if (file == NULL)
            return NOT_HERE;
        assert_non_null(fgets(was[i], sizeof(was[i]), file));
        fclose(file);
    }
    for (size_t i = 3; i-- > 0;)
        assert_int_equal(write_file(files[i], set[i]), HELD);
    merged = attack_await(are_merged);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(write_file(files[i], was[i]), HELD);
    errno = EOPNOTSUPP; /* Debian 13's kernel for ARM64 does not merge pages that are protected */
    return merged ? REFUSED : NOT_HERE;
}

static bool shows_merging(void)
{
    char line[128];
    bool shows = false;
    FILE *file = fopen("/proc/self/ksm_stat", "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        shows = shows || strstr(line, "ksm_mergeable") != NULL;
    if (file != NULL)
        fclose(file);
    return shows;
}

static void expect_copied_for_merging(void)
{
    fill(1);
    attack_start();
    fill(2);
    expect_ok(attack_finish());
    expect_cow(0, "'t0': its pages may be merged with others (KSM)");
    expect_epoch(1);
}

/* Memory is mergeable before the call; also after a save that planned without that. */
static void mergeable_memory_is_copied(void **state)
{
    (void)state;
    need_cow();
    need_plain_memory(); /* all of it is given to KSM, and taken back */
    if (!shows_merging()) {
        print_message("this kernel does not say what may be merged\n");
        skip();
    }
    attacked = map(ATTACK_BYTES);
    attack_begin(0);
    expect_ok(start());
    expect_ok(finish());
    expect_cow(ATTACK_BYTES, "");
    assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_MERGEABLE), 0);
    expect_copied_for_merging();
    assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_UNMERGEABLE), 0);
    assert_int_equal(prctl(SET_MEMORY_MERGE, 1, 0, 0, 0), 0);
    expect_copied_for_merging();
    assert_int_equal(prctl(SET_MEMORY_MERGE, 0, 0, 0, 0), 0);
    fill(1);
    attack_start();
    fill(2);
    expect_ok(attack_finish());
    expect_cow(ATTACK_BYTES, "");
    expect_epoch(1);
    attack_end();
    munmap(attacked, ATTACK_BYTES);
}

/* ---- the heap */

/* Free memory, so that malloc() has no reason to ask for more. */
static bool give_malloc_room(void)
{
    if (mallopt(M_MMAP_THRESHOLD, 32 << 20) != 1 || mallopt(M_TRIM_THRESHOLD, 256 << 20) != 1)
        return false;
    void *room = malloc(8 * MIB);
    assert_non_null(room);
    free(room);
    return true;
}

static void memory_removed_by_brk_fails_the_save(void **state)
{
    (void)state;
    need_cow();
    bool has_room = give_malloc_room();
    unsigned char *heap = has_room ? sbrk((intptr_t)(ATTACK_BYTES + 2 * PAGE)) : (void *)-1;
    if (heap == (void *)-1) {
        print_message("there is no heap that grows here\n");
        skip();
    }
    attacked = (unsigned char *)(((uintptr_t)heap + PAGE) / PAGE * PAGE);
    attack_begin(0);
    attack_start();
    assert_ptr_equal(sbrk(0), heap + ATTACK_BYTES + 2 * PAGE);
    assert_true(brk(attacked + PART_AT) == 0);
    assert_int_equal(attack_finish(), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "tensor 't0'"));
    assert_non_null(strstr(job.err.message, "unmapped"));
    attack_end();
}

/* ---- two tensors in one granule */

static void the_tensor_that_lost_its_memory_is_named(void **state)
{
    unsigned char *memory = map(6 * MIB);

    (void)state;
    need_cow();
    attacked = (unsigned char *)(((uintptr_t)memory + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    held_ahead = SIDESTEP_COPY_AHEAD_NEVER;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(attacked, MIB, 1, 0);
    add(attacked + MIB, 3 * MIB, 1, 0);
    fill(1);
    attack_start();
    assert_int_equal(madvise(attacked + MIB + 64 * PAGE, PAGE, MADV_DONTNEED), 0);
    assert_int_equal(attack_finish(), SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "tensor 't1'"));
    attack_end();
    munmap(memory, 6 * MIB);
}

/* ---- all of them */

static const struct attack attacks[] = {
    {.name = "process_vm_writev", .act = write_by_process_vm_writev},
    {.name = "/proc/PID/mem", .act = write_by_proc_mem},
    {.name = "fork", .act = write_in_a_forked_child},
    {.name = "clone with CLONE_VM", .act = write_in_a_process_that_shares_memory},
    {.name = "soft-dirty", .act = clear_soft_dirty},
    {.name = "referenced", .act = clear_references},
    {.name = "PAGEMAP_SCAN with PM_SCAN_WP_MATCHING", .act = scan_and_protect},
    {.name = "compaction", .act = compact},
    {.name = "move_pages", .act = migrate},
    {.name = "swap", .act = swap_out},
    {.name = "process_madvise", .act = advise_by_another_process},
    {.name = "KSM",
     .act = merge,
     .expected_words = "protection",
     .is_zero = true,
     .has_control = true},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(mergeable_memory_is_copied),
        cmocka_unit_test(the_tensor_that_lost_its_memory_is_named),
        cmocka_unit_test(memory_removed_by_brk_fails_the_save),
    };

    return run_attacks("attacks", attacks, sizeof(attacks) / sizeof(attacks[0])) +
           cmocka_run_group_tests_name("others", others, setup, teardown);
}
