/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_attack_test.c -- what a program can do to its memory while a save has it write-protected. The
 * checkpoint has the bytes of the call, or the save fails and says why. The rows are those of the
 * table in snapshot/cow.h. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/attack_table.h"

/* Missing in the headers of some distributions. */
#define ADVICE_COLD 20
#define ADVICE_PAGEOUT 21
#define ADVICE_POPULATE_READ 22
#define ADVICE_POPULATE_WRITE 23
#define ADVICE_DONTNEED_LOCKED 24
#define ADVICE_COLLAPSE 25
#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE 103

/* The same for UFFDIO_MOVE. */
struct move_request {
    uint64_t to, from, bytes, mode;
    int64_t moved;
};
#define REQUEST_MOVE _IOWR(UFFDIO, 0x05, struct move_request)

#define CALL_MSEAL 462
#define PAGE ((size_t)4096)

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
    (void)advise(ADVICE_COLLAPSE, HELD); /* it is refused for protected memory, which is right */
    return HELD;
}

static enum outcome change_page_size(void)
{
    (void)advise(MADV_HUGEPAGE, HELD);
    return advise(MADV_NOHUGEPAGE, HELD);
}

static enum outcome advise_children(void)
{
    if (madvise(attacked, PART_AT, MADV_WIPEONFORK) != 0 ||
        madvise(part(), PART_BYTES, MADV_DONTFORK) != 0)
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
    return mlock(part(), PART_BYTES) == 0 && munlock(part(), PART_BYTES) == 0 ? HELD : NOT_HERE;
}

/* ---- mappings */

static enum outcome unmap(void)
{
    assert_int_equal(munmap(part(), PART_BYTES), 0);
    return REFUSED;
}

static void *map_over(void *at)
{
    void *memory = mmap(at, PART_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

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
    void *other = map(PART_BYTES);

    assert_true(mremap(part(), PART_BYTES, PART_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, other) ==
                other);
    munmap(other, PART_BYTES);
    return REFUSED;
}

static enum outcome move_contents_away(void)
{
    void *other = mremap(part(), PART_BYTES, PART_BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

    if (other == MAP_FAILED)
        return NOT_HERE;
    munmap(other, PART_BYTES);
    return REFUSED;
}

static enum outcome move_over(void)
{
    void *other = map(PART_BYTES);

    memset(other, 7, PART_BYTES);
    assert_true(mremap(other, PART_BYTES, PART_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, part()) ==
                part());
    return REFUSED;
}

static enum outcome forbid_writing(void)
{
    assert_int_equal(mprotect(part(), PART_BYTES, PROT_READ), 0);
    assert_int_equal(mprotect(part(), PART_BYTES, PROT_READ | PROT_WRITE), 0);
    return HELD;
}

static enum outcome forbid_all_for_now(void)
{
    assert_int_equal(mprotect(part(), PART_BYTES, PROT_NONE), 0);
    assert_int_equal(mprotect(part(), PART_BYTES, PROT_READ | PROT_WRITE), 0);
    return HELD;
}

static enum outcome forbid_all(void)
{
    assert_int_equal(mprotect(part(), PART_BYTES, PROT_NONE), 0);
    return REFUSED;
}

static enum outcome use_a_key(void)
{
    int key = pkey_alloc(0, 0);

    if (key < 0)
        return NOT_HERE;
    assert_int_equal(pkey_mprotect(part(), PART_BYTES, PROT_READ | PROT_WRITE, key), 0);
    assert_int_equal(pkey_set(key, PKEY_DISABLE_WRITE), 0);
    assert_int_equal(pkey_set(key, 0), 0);
    return HELD;
}

/* Afterwards it cannot be unmapped. */
static enum outcome seal(void)
{
    return syscall(CALL_MSEAL, part(), PART_BYTES, 0ul) == 0 ? HELD : NOT_HERE;
}

/* ---- another user of userfaultfd, in the same process */

/* Send a request to another userfaultfd, which kernels may refuse. */
static enum outcome ask_another(unsigned long request, void *argument)
{
    struct uffdio_api api = {.api = UFFD_API};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return NOT_HERE;
    assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
    int failed = ioctl(fd, request, argument);
    close(fd);
    return failed == 0 ? REFUSED : HELD;
}

static enum outcome lift_by_another(void)
{
    struct uffdio_writeprotect lift = {.range = {(uintptr_t)part(), PART_BYTES}};

    return ask_another(UFFDIO_WRITEPROTECT, &lift);
}

static enum outcome unregister_by_another(void)
{
    struct uffdio_range range = {(uintptr_t)part(), PART_BYTES};

    return ask_another(UFFDIO_UNREGISTER, &range);
}

/* Fill missing pages with the contents of another page. */
static enum outcome copy_by_another(void)
{
    struct uffdio_copy copy = {
        .dst = (uintptr_t)part(), .src = (uintptr_t)attacked, .len = 16 * PAGE};

    return ask_another(UFFDIO_COPY, &copy);
}

static enum outcome zero_by_another(void)
{
    struct uffdio_zeropage zero = {.range = {(uintptr_t)part(), 16 * PAGE}};

    return ask_another(UFFDIO_ZEROPAGE, &zero);
}

/* Move the pages to a range of the other one. */
static enum outcome move_by_another(void)
{
    unsigned char *to = map(PART_BYTES);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)to, PART_BYTES},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct move_request move = {
        .to = (uintptr_t)to, .from = (uintptr_t)part(), .bytes = PART_BYTES};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    bool moved = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 &&
                 ioctl(fd, UFFDIO_REGISTER, &range) == 0 && ioctl(fd, REQUEST_MOVE, &move) == 0;

    if (fd >= 0)
        close(fd);
    munmap(to, PART_BYTES);
    return moved ? REFUSED : NOT_HERE;
}

/* ---- all of them */

static const struct attack attacks[] = {
    {.name = "MADV_DONTNEED", .act = discard, .expected_words = "discarded"},
    {.name = "MADV_DONTNEED_LOCKED", .act = discard_locked, .expected_words = "discarded"},
    {.name = "MADV_FREE", .act = let_it_be_freed, .expected_words = "discarded"},
    {.name = "MADV_PAGEOUT", .act = page_out},
    {.name = "MADV_COLD", .act = make_cold},
    {.name = "MADV_POPULATE_READ", .act = populate_read, .is_untouched = true},
    {.name = "MADV_POPULATE_WRITE", .act = populate_write},
    {.name = "MADV_COLLAPSE", .act = collapse},
    {.name = "MADV_HUGEPAGE", .act = change_page_size},
    {.name = "MADV_WIPEONFORK, MADV_DONTFORK", .act = advise_children},
    {.name = "MADV_GUARD_INSTALL",
     .act = guard,
     .expected_words = "protection|unreadable",
     .part_is_lost = true},
    {.name = "MADV_GUARD_REMOVE",
     .act = guard_and_open,
     .expected_words = "protection",
     .has_control = true},
    {.name = "mlock", .act = lock_it},
    {.name = "munmap", .act = unmap, .expected_words = "unmapped|unreadable", .part_is_lost = true},
    {.name = "mmap over it", .act = replace, .expected_words = "unmapped|unreadable"},
    {.name = "mremap away",
     .act = move_away,
     .expected_words = "moved|unreadable",
     .part_is_lost = true},
    {.name = "mremap with MREMAP_DONTUNMAP",
     .act = move_contents_away,
     .expected_words = "moved|unreadable"},
    {.name = "mremap over it", .act = move_over, .expected_words = "unmapped|unreadable"},
    {.name = "mprotect to PROT_READ and back", .act = forbid_writing},
    {.name = "mprotect to PROT_NONE and back", .act = forbid_all_for_now},
    {.name = "mprotect to PROT_NONE",
     .act = forbid_all,
     .expected_words = "unreadable",
     .part_is_lost = true},
    {.name = "pkey_mprotect", .act = use_a_key},
    {.name = "UFFDIO_WRITEPROTECT by another",
     .act = lift_by_another,
     .expected_words = "protection"},
    {.name = "UFFDIO_UNREGISTER by another",
     .act = unregister_by_another, /* refused since Linux 6.17 */
     .expected_words = "protection|another user"},
    {.name = "UFFDIO_COPY by another",
     .act = copy_by_another,
     .expected_words = "protection",
     .is_untouched = true},
    {.name = "UFFDIO_ZEROPAGE by another",
     .act = zero_by_another,
     .expected_words = "protection",
     .is_untouched = true},
    {.name = "UFFDIO_MOVE by another", .act = move_by_another, .expected_words = "protection"},
    {.name = "mseal", .act = seal},
};

int main(void)
{
    return run_attacks("attacks", attacks, sizeof(attacks) / sizeof(attacks[0]));
}
