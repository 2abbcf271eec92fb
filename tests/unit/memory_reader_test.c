/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_reader_test.c -- memory that may be unmapped is read, or an error says that it cannot be
 * read; through a pipe and without one. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "snapshot/memory_reader.h"
#include "support/reader.h"
#include "support/unit.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define LARGEST_PAGE ((size_t)65536)
#define PAGES 64u

static struct memory_reader reader;
static uint8_t *memory; /* PAGES pages, of which each word has its number */
static uint8_t copy[PAGES * LARGEST_PAGE];

static void each_way(void (*check)(void))
{
    need_reader();
    for (int pipe = 0; pipe < 2; pipe++) {
        memory =
            mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        for (size_t i = 0; i < PAGES * PAGE / sizeof(uint32_t); i++)
            ((uint32_t *)(void *)memory)[i] = (uint32_t)i;
        if (pipe == 0)
            fault_arm("reader.pipe", 1, true, EMFILE);
        check();
        fault_arm("", 0, false, 0);
        assert_int_equal(reader.pipe[0] >= 0, pipe != 0);
        memory_reader_close(&reader);
        assert_int_equal(munmap(memory, PAGES * PAGE), 0);
    }
}

/* Copy [at, at + bytes), and compare. */
static int copy_range(size_t at, size_t bytes)
{
    struct iovec to = {copy, bytes}, from = {memory + at, bytes};

    memset(copy, 0xa5, sizeof(copy));
    int failed = memory_reader_copy(&reader, &to, &from, 1);
    if (failed == 0)
        assert_memory_equal(copy, memory + at, bytes);
    assert_int_equal(copy[bytes], 0xa5);
    return failed;
}

static void parts_arrive(void)
{
    struct iovec to[MEMORY_READER_PARTS], from[MEMORY_READER_PARTS];
    size_t part = MEMORY_READER_BYTES / MEMORY_READER_PARTS, step = 2 * part;

    assert_int_equal(copy_range(0, MEMORY_READER_BYTES), 0);
    assert_int_equal(copy_range(PAGE - 1, MEMORY_READER_BYTES), 0);
    assert_int_equal(copy_range(77, 1), 0);
    for (size_t i = 0; i < MEMORY_READER_PARTS; i++) { /* in another order, off the pages */
        to[i] = (struct iovec){copy + (MEMORY_READER_PARTS - 1 - i) * part, part};
        from[i] = (struct iovec){memory + i * step / 2 + 13, part};
    }
    assert_int_equal(memory_reader_copy(&reader, to, from, MEMORY_READER_PARTS), 0);
    for (size_t i = 0; i < MEMORY_READER_PARTS; i++)
        assert_memory_equal(to[i].iov_base, from[i].iov_base, part);
}

TEST(parts_are_copied)
{
    each_way(parts_arrive);
}

/* After an error, nothing of it is left in what is read next. */
static void errors_are_told(void)
{
    assert_int_equal(copy_range(0, 2 * PAGE), 0);
    assert_int_equal(mprotect(memory + 3 * PAGE, PAGE, PROT_NONE), 0);
    for (size_t at = 0; at < 5 * PAGE; at += PAGE / 2) {
        bool readable = at + 2 * PAGE <= 3 * PAGE || at >= 4 * PAGE;
        assert_int_equal(copy_range(at, 2 * PAGE), readable ? 0 : EFAULT);
    }
    assert_int_equal(munmap(memory + 8 * PAGE, PAGE), 0);
    assert_int_equal(copy_range(5 * PAGE, 8 * PAGE), EFAULT);
    assert_int_equal(copy_range(8 * PAGE, PAGE), EFAULT);
    assert_int_equal(copy_range(9 * PAGE, 8 * PAGE), 0);
}

TEST(memory_that_is_gone_is_an_error)
{
    if (8 * PAGE > MEMORY_READER_BYTES) {
        print_message("8 pages are more than a reader reads at once\n");
        skip();
    }
    each_way(errors_are_told);
}

TEST(memory_that_was_never_touched_is_zero)
{
    need_reader();
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(copy_range(0, MEMORY_READER_BYTES), 0);
    assert_int_equal(copy[0] | copy[MEMORY_READER_BYTES - 1], 0);
    memory_reader_close(&reader);
    munmap(memory, PAGES * PAGE);
}

/* Keys are of threads: a key that keeps the thread that reads away does not keep the program from
 * its memory. */
TEST(protection_keys_do_not_matter)
{
    need_reader();
    int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key < 0) {
        print_message("no memory protection keys here\n");
        skip();
    }
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memory[5] = 7;
    assert_int_equal(pkey_mprotect(memory, PAGE, PROT_READ | PROT_WRITE, key), 0);
    struct iovec to = {copy, PAGE}, from = {memory, PAGE};
    assert_int_equal(memory_reader_copy(&reader, &to, &from, 1), 0);
    assert_int_equal(copy[5], 7);
    memory_reader_close(&reader);
    munmap(memory, PAGES * PAGE);
    pkey_free(key);
}

ALL_TESTS(NULL, NULL);
