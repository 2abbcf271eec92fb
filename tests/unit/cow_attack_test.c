/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_attack_test.c -- whatever can be done to memory that is held: the checkpoint has the bytes of
 * the call, or the save fails and says so.  The rows are those of the table in snapshot/cow.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/attack.h"

/* What some distributions' headers do not know. */
#define ADVICE_COLD 20
#define ADVICE_PAGEOUT 21
#define ADVICE_POPULATE_READ 22
#define ADVICE_POPULATE_WRITE 23
#define ADVICE_DONTNEED_LOCKED 24
#define ADVICE_COLLAPSE 25
#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE 103

#define AT (2 * MIB)    /* what is attacked ... */
#define BYTES (3 * MIB) /* ... and so much of it: no granule begins or ends there */
#define PAGE ((size_t)4096)

enum outcome {
    HELD,     /* the save has the bytes of the call */
    REFUSED,  /* it fails */
    NOT_HERE, /* this machine does not let us */
};

static unsigned char *part(void)
{
    return attacked + AT;
}

static enum outcome advise(int advice, enum outcome then)
{
    if (madvise(part(), BYTES, advice) == 0)
        return then;
    return NOT_HERE;
}

/* ---- madvise(2) */

static enum outcome discard(void)
{
    return advise(MADV_DONTNEED, REFUSED);
}

static enum outcome discard_locked(void)
{
    return advise(ADVICE_DONTNEED_LOCKED, REFUSED);
}

static enum outcome let_it_be_freed(void)
{
    return advise(MADV_FREE, REFUSED);
}

static enum outcome page_out(void)
{
    return advise(ADVICE_PAGEOUT, HELD);
}

static enum outcome make_cold(void)
{
    return advise(ADVICE_COLD, HELD);
}

static enum outcome populate_read(void)
{
    return advise(ADVICE_POPULATE_READ, HELD);
}

static enum outcome populate_write(void)
{
    return advise(ADVICE_POPULATE_WRITE, HELD);
}

static enum outcome collapse(void)
{
    (void)advise(ADVICE_COLLAPSE, HELD); /* refused for what is protected, and that is right */
    return HELD;
}

static enum outcome change_page_size(void)
{
    (void)advise(MADV_HUGEPAGE, HELD);
    return advise(MADV_NOHUGEPAGE, HELD);
}

static enum outcome advise_children(void)
{
    if (madvise(attacked, AT, MADV_WIPEONFORK) != 0 || madvise(part(), BYTES, MADV_DONTFORK) != 0)
        return NOT_HERE;
    pid_t child = fork();
    if (child == 0)
        _exit(attacked[0]);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return HELD;
}

static enum outcome guard(void)
{
    return advise(ADVICE_GUARD_INSTALL, REFUSED);
}

static enum outcome guard_and_open(void)
{
    if (advise(ADVICE_GUARD_INSTALL, REFUSED) == NOT_HERE)
        return NOT_HERE;
    return advise(ADVICE_GUARD_REMOVE, REFUSED);
}

static enum outcome lock_it(void)
{
    return mlock(part(), BYTES) == 0 && munlock(part(), BYTES) == 0 ? HELD : NOT_HERE;
}

/* ---- mappings */

static enum outcome unmap(void)
{
    assert_int_equal(munmap(part(), BYTES), 0);
    return REFUSED;
}

static void *map_over(void *at)
{
    void *memory =
        mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

static enum outcome replace(void)
{
    (void)map_over(part());
    return REFUSED;
}

static enum outcome move_away(void)
{
    void *other = map(BYTES);

    assert_true(mremap(part(), BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
    munmap(other, BYTES);
    return REFUSED;
}

static enum outcome move_contents_away(void)
{
    void *other = mremap(part(), BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

    if (other == MAP_FAILED)
        return NOT_HERE;
    munmap(other, BYTES);
    return REFUSED;
}

static enum outcome move_over(void)
{
    void *other = map(BYTES);

    memset(other, 7, BYTES);
    assert_true(mremap(other, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, part()) == part());
    return REFUSED;
}

static enum outcome forbid_writing(void)
{
    assert_int_equal(mprotect(part(), BYTES, PROT_READ), 0);
    assert_int_equal(mprotect(part(), BYTES, PROT_READ | PROT_WRITE), 0);
    return HELD;
}

static enum outcome forbid_all_for_now(void)
{
    assert_int_equal(mprotect(part(), BYTES, PROT_NONE), 0);
    assert_int_equal(mprotect(part(), BYTES, PROT_READ | PROT_WRITE), 0);
    return HELD;
}

static enum outcome forbid_all(void)
{
    assert_int_equal(mprotect(part(), BYTES, PROT_NONE), 0);
    return REFUSED;
}

static enum outcome use_a_key(void)
{
    int key = pkey_alloc(0, 0);

    if (key < 0)
        return NOT_HERE;
    assert_int_equal(pkey_mprotect(part(), BYTES, PROT_READ | PROT_WRITE, key), 0);
    assert_int_equal(pkey_set(key, PKEY_DISABLE_WRITE), 0);
    assert_int_equal(pkey_set(key, 0), 0);
    return HELD;
}

/* ---- others who write */

/* In a child, which may do so for its parent; nobody waits for it before the save goes on. */
static pid_t other_process;

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

static int write_as_one(void *argument)
{
    memset(argument, 9, BYTES);
    return 0;
}

/* As between vfork(2) and exec, but for the stack. */
static enum outcome write_in_a_process_that_shares_memory(void)
{
    unsigned char *stack = map(MIB);
    pid_t child = clone(write_as_one, stack + MIB, CLONE_VM | SIGCHLD, part());

    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap(stack, MIB);
    return HELD;
}

/* ---- another user of userfaultfd, in the same process */

static int other_uffd(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

    assert_true(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
    return fd;
}

static enum outcome lift_by_another(void)
{
    int fd = other_uffd();
    struct uffdio_writeprotect lift = {.range = {(uintptr_t)part(), BYTES}};
    int failed = ioctl(fd, UFFDIO_WRITEPROTECT, &lift);

    close(fd);
    return failed == 0 ? REFUSED : HELD; /* kernels may well refuse it */
}

static enum outcome unregister_by_another(void)
{
    int fd = other_uffd();
    struct uffdio_range range = {(uintptr_t)part(), BYTES};
    int failed = ioctl(fd, UFFDIO_UNREGISTER, &range);

    close(fd);
    return failed == 0 ? REFUSED : HELD;
}

/* Pages of the next epoch where there were none. */
static enum outcome copy_by_another(void)
{
    int fd = other_uffd();
    struct uffdio_copy copy = {
        .dst = (uintptr_t)part(), .src = (uintptr_t)attacked, .len = 16 * PAGE};
    int failed = ioctl(fd, UFFDIO_COPY, &copy);

    close(fd);
    return failed == 0 ? REFUSED : HELD;
}

/* ---- what the kernel looks at, or moves */

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

/* PAGEMAP_SCAN that protects what it reports. */
static enum outcome scan_and_protect(void)
{
    struct {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t inverted, mask, any, returned;
    } scan = {.size = sizeof(scan),
              .flags = 1, /* PM_SCAN_WP_MATCHING */
              .start = (uintptr_t)part(),
              .end = (uintptr_t)part() + BYTES,
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

/* To where they are: they are not moved, but the kernel looks at each. */
static enum outcome migrate(void)
{
    void *address = part();
    int node = 0, status = -1;
    long failed = syscall(SYS_move_pages, 0, 1ul, &address, &node, &status, 2);

    return failed == 0 ? HELD : NOT_HERE;
}

/* ---- all of them */

static const struct attack {
    const char *name;
    enum outcome (*act)(void);
    const char *said;   /* where the save fails: one of these words, "a|b" */
    bool untouched;     /* of memory that was never touched */
    bool goes;          /* the part is not there, or not to be written, any more */
    bool comes_to_pass; /* unseen without the checks: the control */
} attacks[] = {
    {.name = "MADV_DONTNEED", .act = discard, .said = "discarded"},
    {.name = "MADV_DONTNEED_LOCKED", .act = discard_locked, .said = "discarded"},
    {.name = "MADV_FREE", .act = let_it_be_freed, .said = "discarded"},
    {.name = "MADV_PAGEOUT", .act = page_out},
    {.name = "MADV_COLD", .act = make_cold},
    {.name = "MADV_POPULATE_READ", .act = populate_read, .untouched = true},
    {.name = "MADV_POPULATE_WRITE", .act = populate_write},
    {.name = "MADV_COLLAPSE", .act = collapse},
    {.name = "MADV_HUGEPAGE", .act = change_page_size},
    {.name = "MADV_WIPEONFORK, MADV_DONTFORK", .act = advise_children},
    {.name = "MADV_GUARD_INSTALL", .act = guard, .said = "protection|read memory", .goes = true},
    {.name = "MADV_GUARD_REMOVE",
     .act = guard_and_open,
     .said = "protection",
     .comes_to_pass = true},
    {.name = "mlock", .act = lock_it},
    {.name = "munmap", .act = unmap, .said = "unmapped|read memory", .goes = true},
    {.name = "mmap over it", .act = replace, .said = "unmapped|read memory"},
    {.name = "mremap away", .act = move_away, .said = "moved|read memory", .goes = true},
    {.name = "mremap with MREMAP_DONTUNMAP",
     .act = move_contents_away,
     .said = "moved|read memory"},
    {.name = "mremap over it", .act = move_over, .said = "unmapped|read memory"},
    {.name = "mprotect to PROT_READ and back", .act = forbid_writing},
    {.name = "mprotect to PROT_NONE and back", .act = forbid_all_for_now},
    {.name = "mprotect to PROT_NONE", .act = forbid_all, .said = "read memory", .goes = true},
    {.name = "pkey_mprotect", .act = use_a_key},
    {.name = "process_vm_writev", .act = write_by_process_vm_writev},
    {.name = "/proc/PID/mem", .act = write_by_proc_mem},
    {.name = "fork", .act = write_in_a_forked_child},
    {.name = "clone with CLONE_VM", .act = write_in_a_process_that_shares_memory},
    {.name = "UFFDIO_WRITEPROTECT by another", .act = lift_by_another, .said = "protection"},
    {.name = "UFFDIO_UNREGISTER by another", .act = unregister_by_another, .said = "protection"},
    {.name = "UFFDIO_COPY by another",
     .act = copy_by_another,
     .said = "protection",
     .untouched = true},
    {.name = "soft-dirty", .act = clear_soft_dirty},
    {.name = "referenced", .act = clear_references},
    {.name = "PAGEMAP_SCAN with PM_SCAN_WP_MATCHING", .act = scan_and_protect},
    {.name = "compaction", .act = compact},
    {.name = "move_pages", .act = migrate},
};

static bool says_one_of(const char *message, const char *words)
{
    char text[64];

    snprintf(text, sizeof(text), "%s", words);
    for (char *word = strtok(text, "|"); word != NULL; word = strtok(NULL, "|"))
        if (strstr(message, word) != NULL)
            return true;
    return false;
}

/* The program goes on, wherever it has memory. */
static void write_next_epoch(const struct attack *attack)
{
    memset(attacked, 2, AT);
    if (!attack->goes)
        memset(part(), 2, BYTES);
    memset(attacked + AT + BYTES, 2, ATTACK_BYTES - AT - BYTES);
}

static void expect_what_was_there(const struct attack *attack)
{
    uint64_t *loaded = malloc(ATTACK_BYTES);
    struct sidestep_state_dict *target = new_state(&loaded);

    expect_ok(sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err));
    for (size_t n = 0; n < WORDS(ATTACK_BYTES); n++)
        assert_int_equal(loaded[n], attack->untouched ? 0 : (n << 24 ^ 1));
    sidestep_state_dict_free(&target);
    free(loaded);
}

/* Begin a save, attack it, go on.  ${outcome}: as the attack says. */
static enum sidestep_status run_attack(const struct attack *attack, const char *switched_off,
                                       enum outcome *outcome)
{
    attacked = map(ATTACK_BYTES);
    attack_begin(0);
    if (attack->untouched)
        assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_DONTNEED), 0);
    fault_arm(switched_off, 1, true, 0);
    attack_start();
    other_process = 0;
    *outcome = attack->act();
    int refused_because = errno;
    if (*outcome != NOT_HERE)
        write_next_epoch(attack);
    enum sidestep_status status = attack_finish();
    fault_arm("", 0, false, 0);
    if (other_process != 0)
        assert_int_equal(waitpid(other_process, NULL, 0), other_process);
    errno = refused_because;
    return status;
}

static void end_attack(void)
{
    int saved = errno;

    attack_end();
    (void)map_over(part()); /* whatever is there now */
    munmap(attacked, ATTACK_BYTES);
    errno = saved;
}

static void it_is_held_or_refused(void **state)
{
    const struct attack *attack = *state;
    enum outcome outcome;

    need_cow();
    enum sidestep_status status = run_attack(attack, "none", &outcome);
    if (outcome == REFUSED) {
        print_message("# %s\n", job.err.message);
        assert_true(status == SIDESTEP_EINVAL || status == SIDESTEP_EIO);
        assert_non_null(strstr(job.err.message, "'t0'"));
        assert_true(says_one_of(job.err.message, attack->said));
    } else if (outcome == HELD) {
        expect_ok(status);
        expect_cow(ATTACK_BYTES, "");
        expect_what_was_there(attack);
    }
    end_attack();
    if (outcome == NOT_HERE) {
        print_message("not on this machine: %s\n", strerror(errno));
        skip();
    }
}

/* The negative control of those that no event tells of. */
static void unseen_it_wins(void **state)
{
    const struct attack *attack = *state;
    enum outcome outcome;

    need_cow();
    enum sidestep_status status = run_attack(attack, "trust.", &outcome);
    bool won = status == SIDESTEP_OK && outcome != NOT_HERE && attack_has_won();
    end_attack();
    if (outcome == NOT_HERE) {
        print_message("not on this machine\n");
        skip();
    }
    assert_true(won);
}

#define COUNT (sizeof(attacks) / sizeof(attacks[0]))

int main(void)
{
    struct CMUnitTest tests[2 * COUNT];
    char names[2 * COUNT][64];
    size_t count = 0;

    for (size_t i = 0; i < COUNT; i++)
        for (int control = 0; control <= (int)attacks[i].comes_to_pass; control++) {
            snprintf(names[count], sizeof(names[count]), "%s%s", attacks[i].name,
                     control ? ", unseen" : "");
            tests[count] = (struct CMUnitTest){
                .name = names[count],
                .test_func = control ? unseen_it_wins : it_is_held_or_refused,
                .initial_state = (void *)(uintptr_t)&attacks[i],
            };
            count++;
        }
    return _cmocka_run_group_tests("attacks", tests, count, setup, teardown);
}
