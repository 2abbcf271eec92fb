/* SPDX-License-Identifier: BSD-3-Clause */
/* huge_pages_test.c -- tensors are put on huge pages, and keep their addresses and contents. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "snapshot/huge_page.h"
#include "snapshot/memory_map.h"
#include "support/held.h"

#define HUGE (2 * MIB)

static bool no_page_is_left; /* the kernel has no huge page for save_and_collapse() */

/* Bytes of [memory, memory + bytes) on huge pages, as the kernel counts them; -1: it does not. */
static long huge_bytes_at(const void *memory, size_t bytes)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    unsigned long begin = 0, end = 0, first, last, from = (unsigned long)(uintptr_t)memory;
    char line[512];
    long sum = -1, kib;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {
            begin = first;
            end = last;
        }
        if (begin >= from && end <= from + bytes &&
            sscanf(line, "AnonHugePages: %ld kB", &kib) == 1)
            sum = (sum < 0 ? 0 : sum) + kib * 1024;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

static struct sidestep_huge_pages ask(void)
{
    struct sidestep_huge_pages report = SIDESTEP_HUGE_PAGES_INIT;
    struct sidestep_state_dict *state = new_state(NULL);

    expect_ok(sidestep_state_dict_huge_pages(state, &report, &job.err));
    sidestep_state_dict_free(&state);
    return report;
}

/* These tests count in huge pages of 2 MiB. With pages of 16 KiB they have 32 MiB. */
static void need_huge_pages_of_2_mib(void)
{
    if (huge_page_bytes() == HUGE)
        return;
    print_message("huge pages have %zu bytes here\n", (size_t)huge_page_bytes());
    skip();
}

/* Allocate 16 MiB on small pages, at a multiple of 2 MiB, with room around. An emulator may ignore
 * all advice: then it also takes what does not exist, and the test is skipped. */
static unsigned char *small_pages(unsigned char **map_of_it)
{
    *map_of_it = map(20 * MIB);
    if (madvise(*map_of_it, 20 * MIB, 9999) == 0) {
        munmap(*map_of_it, 20 * MIB);
        print_message("madvise() takes any advice, and does nothing\n");
        skip();
    }
    unsigned char *memory = (unsigned char *)(((uintptr_t)*map_of_it + HUGE) / HUGE * HUGE);
    assert_int_equal(madvise(*map_of_it, 20 * MIB, MADV_NOHUGEPAGE), 0);
    memset(*map_of_it, 1, 20 * MIB);
    return memory;
}

TEST(they_are_as_large_as_the_kernel_says)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "r");
    unsigned long bytes = 0;

    if (file == NULL || fscanf(file, "%lu", &bytes) != 1) {
        print_message("skipped: this kernel does not say how large huge pages are\n");
        bytes = 0;
    }
    if (file != NULL)
        fclose(file);
    if (bytes == 0)
        skip();
    assert_int_equal(huge_page_bytes(), bytes);
}

TEST(tensors_get_huge_pages)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = small_pages(&mapping);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory + 64, 6 * MIB, 1, 0);
    add(memory + 6 * MIB + 128, 9 * MIB, 1, 0); /* shares a huge page with the first */
    fill(1);
    struct sidestep_huge_pages report = ask();
    if (report.sys_errno == EINVAL) {
        print_message("no MADV_COLLAPSE here\n");
        end();
        munmap(mapping, 20 * MIB);
        skip();
    }
    assert_int_equal(report.bytes, 12 * MIB); /* from 2 to 14 MiB */
    assert_int_equal(report.huge_bytes, report.bytes);
    assert_int_equal(report.sys_errno, 0);
    assert_true(report.took_ns != 0);
    assert_int_equal(huge_bytes_at(mapping, 20 * MIB), 12 * MIB);
    for (size_t i = 0; i < job.count; i++)
        for (size_t n = 0; n < WORDS(job.tensors[i].bytes); n++)
            assert_true(job.tensors[i].words[n] == (n << 24 ^ i << 20 ^ 1));
    save_and_overwrite();
    assert_int_equal(ask().huge_bytes, 12 * MIB); /* protection by granules has split none */
    end();
    munmap(mapping, 20 * MIB);
}

TEST(a_refusing_kernel_is_reported)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = small_pages(&mapping);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 4 * MIB, 1, 0);
    fault_arm("huge.collapse", 1, true, ENOMEM);
    struct sidestep_huge_pages report = ask();
    fault_arm("", 0, false, 0);
    assert_int_equal(report.bytes, 4 * MIB);
    assert_int_equal(report.huge_bytes, 0);
    assert_int_equal(report.sys_errno, ENOMEM);
    assert_int_equal(sidestep_state_dict_huge_pages(NULL, &report, &job.err), SIDESTEP_EINVAL);
    struct sidestep_state_dict *tensors = new_state(NULL);
    report.struct_size = 0;
    assert_int_equal(sidestep_state_dict_huge_pages(tensors, &report, &job.err), SIDESTEP_EINVAL);
    expect_ok(sidestep_state_dict_huge_pages(tensors, NULL, &job.err));
    fault_arm("memory", 1, false, 0);
    assert_int_equal(sidestep_state_dict_huge_pages(tensors, NULL, &job.err), SIDESTEP_ENOMEM);
    fault_arm("", 0, false, 0);
    sidestep_state_dict_free(&tensors);
    end();
    munmap(mapping, 20 * MIB);
}

struct covered {
    uint64_t at; /* an address */
    unsigned mappings, with_it;
    uint64_t last_end;
};

static void take_huge(void *context, const struct memory_map_huge *mapping)
{
    struct covered *c = context;

    assert_true(c->last_end <= mapping->begin && mapping->begin < mapping->end);
    assert_true(mapping->huge_bytes <= mapping->end - mapping->begin);
    c->last_end = mapping->end;
    if (!mapping->asks)
        return;
    c->mappings++;
    c->with_it += mapping->begin <= c->at && c->at < mapping->end;
}

/* Mappings with huge pages are reported one by one, those between them are not. */
TEST(huge_page_mappings_are_reported_one_by_one)
{
    unsigned char *mapping, *memory = small_pages(&mapping);
    struct covered asked = {.at = (uintptr_t)memory},
                   not_asked = {.at = (uintptr_t)memory + 4 * MIB};
    assert_int_equal(madvise(memory, 4 * MIB, MADV_HUGEPAGE), 0);
    assert_int_equal(madvise(memory + 8 * MIB, 4 * MIB, MADV_HUGEPAGE), 0);
    assert_int_equal(memory_map_read_huge(take_huge, &asked, &job.err), SIDESTEP_OK);
    assert_int_equal(memory_map_read_huge(take_huge, &not_asked, &job.err), SIDESTEP_OK);
    munmap(mapping, 20 * MIB);
    if (asked.mappings == 0) {
        print_message("no huge pages here\n");
        skip();
    }
    assert_true(asked.mappings >= 2);
    assert_int_equal(asked.with_it, 1);
    assert_int_equal(not_asked.with_it, 0);
}

/* The program rewrites its state while a child shares its pages, which splits them. */
static void rewrite_beside_a_child(uint64_t epoch)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    fill(epoch);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A save that finds small pages, and its result within ${tries} times 20 ms. */
static struct sidestep_save_info save_and_collapse(unsigned tries)
{
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;

    fault_arm(no_page_is_left ? "huge.missing|huge.collapse" : "huge.missing", 1, true, ENOMEM);
    expect_ok(start());
    expect_ok(sidestep_save_watch(job.save, SIDESTEP_SAVE_COMMITTED, -1, &job.err));
    for (unsigned i = 0; i < tries && info.huge_ns == 0; i++) {
        (void)usleep(20000);
        assert_int_equal(sidestep_save_poll(job.save, &info), SIDESTEP_OK);
    }
    fault_arm("", 0, false, 0);
    expect_ok(finish());
    return info;
}

TEST(split_huge_pages_are_joined_again)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = small_pages(&mapping);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 12 * MIB, 1, 0);
    fill(1);
    struct sidestep_huge_pages report = ask();
    if (report.sys_errno == EINVAL || !cow_works) {
        print_message("no MADV_COLLAPSE, or no write protection here\n");
        end();
        munmap(mapping, 20 * MIB);
        skip();
    }
    rewrite_beside_a_child(2);
    assert_true(huge_bytes_at(mapping, 20 * MIB) < (long)(12 * MIB));
    struct sidestep_save_info info = save_and_collapse(500);
    assert_true(info.huge_bytes > 0 && info.huge_bytes <= 12 * MIB);
    assert_true(info.huge_ns != 0);
    assert_int_equal(huge_bytes_at(mapping, 20 * MIB), 12 * MIB);
    expect_epoch(2);
    for (size_t n = 0; n < WORDS(12 * MIB); n++)
        assert_true(job.tensors[0].words[n] == (n << 24 ^ 2));
    end();
    munmap(mapping, 20 * MIB);
}

/* Memory that asks for nothing, on small pages also where all memory gets huge ones. ${touched}
 * bytes of it are there. */
static unsigned char *plain_pages(unsigned char **map_of_it, size_t touched)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    char line[64] = "[never]";

    if (file != NULL) {
        assert_non_null(fgets(line, sizeof(line), file));
        fclose(file);
    }
    if (strstr(line, "[never]") != NULL) {
        print_message("no huge pages here\n");
        skip();
    }
    *map_of_it = map(20 * MIB);
    unsigned char *memory = (unsigned char *)(((uintptr_t)*map_of_it + HUGE) / HUGE * HUGE);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    memset(memory, 1, touched);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
    return memory;
}

static void need_collapse(unsigned char *memory)
{
    if (cow_works && madvise(memory, HUGE, MADV_COLLAPSE) == 0)
        return;
    print_message("no MADV_COLLAPSE, or no write protection here\n");
    skip();
}

/* Nobody has asked: the first save that protects small pages makes them huge. */
TEST(small_pages_become_huge)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = plain_pages(&mapping, 16 * MIB);
    need_collapse(memory + 14 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 12 * MIB, 1, 0);
    fill(1);
    struct sidestep_save_info info = save_and_collapse(500);
    assert_int_equal(info.huge_bytes, 12 * MIB);
    assert_int_equal(huge_bytes_at(mapping, 20 * MIB), 14 * MIB);
    expect_epoch(1);
    save_and_overwrite();
    end();
    munmap(mapping, 20 * MIB);
}

static void expect_small(unsigned char *memory, size_t bytes)
{
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, bytes, 1, 0);
    struct sidestep_save_info info = save_and_collapse(5);
    end();
    assert_int_equal(info.huge_bytes, 0);
}

/* Controls: what the program wants small, what would take memory, and what a child has, too. */
TEST(pages_that_should_be_small_stay_small)
{
    unsigned char *mapping, *memory = small_pages(&mapping);

    expect_small(memory, 12 * MIB);
    assert_true(huge_bytes_at(mapping, 20 * MIB) <= 0);
    munmap(mapping, 20 * MIB);
}

TEST(pages_that_were_never_touched_stay_away)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = plain_pages(&mapping, HUGE - 4096);

    assert_int_equal(*(volatile unsigned char *)(memory + HUGE - 4096), 0); /* the zero page */
    expect_small(memory, 2 * HUGE);
    assert_true(huge_bytes_at(mapping, 20 * MIB) <= 0);
    munmap(mapping, 20 * MIB);
}

TEST(pages_of_a_child_stay_small)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = plain_pages(&mapping, 8 * MIB);
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    expect_small(memory, 8 * MIB);
    assert_true(huge_bytes_at(mapping, 20 * MIB) <= 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap(mapping, 20 * MIB);
}

/* A kernel that has no huge page left is asked a few times, and then no more. */
TEST(a_kernel_without_huge_pages_is_left_alone)
{
    need_huge_pages_of_2_mib();
    unsigned char *mapping, *memory = plain_pages(&mapping, 16 * MIB);

    need_collapse(memory + 14 * MIB);
    no_page_is_left = true;
    expect_small(memory, 12 * MIB);
    no_page_is_left = false;
    assert_int_equal(huge_bytes_at(mapping, 20 * MIB), HUGE);
    munmap(mapping, 20 * MIB);
}

ALL_TESTS(setup, teardown);
