/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_device_test.c -- devices write to memory past the page tables. A state that is pinned before
 * a save is copied; one that is pinned later is not changed before it is copied. The device is a
 * disk that fills a registered buffer of io_uring. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "support/attack.h"

static struct io_uring ring;
static bool has_ring, may_pin;
static int source = -1; /* a file with epoch 2, read past the page cache if possible */

static void need_device(void)
{
    need_cow();
    if (may_pin)
        return;
    print_message(has_ring ? "so much may not be locked here (RLIMIT_MEMLOCK)\n"
                           : "io_uring is not allowed here\n");
    skip();
}

static bool pin(void *memory, size_t bytes)
{
    struct iovec buffer = {memory, bytes};

    return io_uring_register_buffers(&ring, &buffer, 1) == 0;
}

static void unpin(void)
{
    assert_int_equal(io_uring_unregister_buffers(&ring), 0);
}

/* The disk writes epoch 2 to the state, which is pinned. */
static void let_device_write(void)
{
    struct io_uring_cqe *cqe;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    io_uring_prep_read_fixed(sqe, source, attacked, ATTACK_BYTES, 0, 0);
    assert_int_equal(io_uring_submit(&ring), 1);
    assert_int_equal(io_uring_wait_cqe(&ring, &cqe), 0);
    assert_int_equal(cqe->res, ATTACK_BYTES);
    io_uring_cqe_seen(&ring, cqe);
    assert_int_equal(attacked[ATTACK_BYTES - 8], 2);
}

static void make_source(void)
{
    char path[128];
    struct scratch disk;
    uint64_t *words = map(ATTACK_BYTES);

    assert_true(scratch_make(&disk, NULL));
    snprintf(path, sizeof(path), "%s/source", disk.path);
    for (size_t n = 0; n < WORDS(ATTACK_BYTES); n++)
        words[n] = n << 24 ^ 2;
    source = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(source >= 0 && write(source, words, ATTACK_BYTES) == (ssize_t)ATTACK_BYTES);
    assert_int_equal(fsync(source), 0);
    int direct = open(path, O_RDONLY | O_DIRECT);
    if (direct >= 0) {
        close(source);
        source = direct;
    }
    scratch_remove(&disk);
    munmap(words, ATTACK_BYTES);
}

/* ---- pinned before the call */

TEST(pinned_memory_is_copied)
{
    need_device();
    attack_begin(0);
    expect_ok(start()); /* planned while nothing is pinned */
    expect_ok(finish());
    expect_cow(ATTACK_BYTES, "");
    assert_true(pin(attacked, ATTACK_BYTES));
    for (int i = 0; i < 2; i++) {
        fill(1);
        attack_start();
        let_device_write();
        expect_ok(attack_finish());
        expect_cow(0, "'t0': this process has 8 MiB pinned for devices");
        expect_epoch(1);
    }
    unpin();
    fill(1);
    attack_start();
    fill(2);
    expect_ok(attack_finish());
    expect_cow(ATTACK_BYTES, "");
    expect_epoch(1);
    attack_end();
}

/* The negative control: no check for pinned memory, and no comparison. */
TEST(the_test_notices_unchecked_pins)
{
    need_device();
    attack_begin(0);
    assert_true(pin(attacked, ATTACK_BYTES));
    fault_arm("trust.", 1, true, 0);
    attack_start();
    let_device_write();
    expect_ok(attack_finish());
    fault_arm("", 0, false, 0);
    assert_int_equal(job.info.snapshot, SIDESTEP_SNAPSHOT_COW);
    assert_true(attack_has_won());
    unpin();
    attack_end();
}

static size_t pinned_kib(void)
{
    char line[128];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "VmPin: %lu", &kib);
    fclose(file);
    return kib;
}

static bool set_buffer(unsigned slot, void *memory, size_t bytes)
{
    struct iovec buffer = {memory, bytes};
    __u64 tag = 0;

    return io_uring_register_buffers_update_tag(&ring, slot, &buffer, &tag, 1) == 1;
}

/* The kernel counts a huge page for the first of two buffers in it, and no more when that one is
 * gone. */
TEST(pins_that_are_not_counted_are_seen)
{
    unsigned char *memory = map(ATTACK_BYTES + 2 * MIB), *was = attacked;

    need_device();
    attacked = (unsigned char *)(((uintptr_t)memory + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    (void)madvise(attacked, ATTACK_BYTES, MADV_HUGEPAGE);
    attack_begin(0);
    assert_int_equal(io_uring_register_buffers_sparse(&ring, 9), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_true(set_buffer(i, attacked + i * 2 * MIB, 4096));
    assert_true(set_buffer(8, attacked, ATTACK_BYTES));
    for (unsigned i = 0; i < 4; i++)
        assert_true(set_buffer(i, NULL, 0));
    bool counted = pinned_kib() != 0;
    attack_start();
    fill(2);
    expect_ok(attack_finish());
    expect_cow(0, "'t0': this process has 8 MiB pinned for devices");
    expect_epoch(1);
    unpin();
    attack_end();
    attacked = was;
    munmap(memory, ATTACK_BYTES + 2 * MIB);
    if (counted) {
        print_message("no huge pages here, or a kernel that counts them\n");
        skip();
    }
}

TEST(memory_pinned_during_the_call_is_copied)
{
    need_device();
    attack_begin(0);
    assert_true(pin(attacked, ATTACK_BYTES));
    fault_arm("trust.others", 1, false, 0); /* as if it happened after the first check */
    attack_start();
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    let_device_write();
    expect_ok(attack_finish());
    expect_cow(0, "8 MiB were pinned for devices during the call");
    expect_epoch(1);
    unpin();
    attack_end();
}

/* With SIDESTEP_TENSOR_CPU_WRITES, pinned memory is write-protected. */
TEST(cpu_written_memory_is_protected)
{
    unsigned char *buffer = map(MIB);

    need_device();
    assert_true(pin(buffer, MIB));
    attack_begin(SIDESTEP_TENSOR_CPU_WRITES);
    attack_start();
    fill(2);
    expect_ok(attack_finish());
    expect_cow(ATTACK_BYTES, "");
    expect_epoch(1);
    unpin();
    attack_end();
    munmap(buffer, MIB);
}

/* ---- pinned while it is protected */

static void touch_nothing(void)
{
    assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_DONTNEED), 0);
}

static void map_the_zero_page(void)
{
    touch_nothing();
    for (size_t at = 0; at < ATTACK_BYTES; at += 4096)
        assert_int_equal(*(volatile unsigned char *)(attacked + at), 0);
}

static void use_huge_pages(void)
{
    assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_HUGEPAGE), 0);
    touch_nothing();
    fill(1);
}

static void use_small_pages(void)
{
    assert_int_equal(madvise(attacked, ATTACK_BYTES, MADV_NOHUGEPAGE), 0);
    touch_nothing();
    fill(1);
}

/* A part is already unprotected when it is pinned. */
static void lift_some(void)
{
    attack_write(attacked + 5 * MIB, 0, 1);
}

static const struct pages {
    const char *name;
    void (*prepare)(void);
    void (*meanwhile)(void);
    bool is_zero;
} pages[] = {
    {"small pages", use_small_pages, NULL, false},
    {"huge pages", use_huge_pages, NULL, false},
    {"pages that were never touched", touch_nothing, NULL, true},
    {"the zero page", map_the_zero_page, NULL, true},
    {"pages of which some are lifted", use_small_pages, lift_some, false},
};

static void expect_zeros(void)
{
    uint64_t *loaded = malloc(ATTACK_BYTES);
    struct sidestep_state_dict *target = new_state(&loaded);

    expect_ok(sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err));
    for (size_t n = 0; n < WORDS(ATTACK_BYTES); n++)
        assert_int_equal(loaded[n], 0);
    sidestep_state_dict_free(&target);
    free(loaded);
}

/* Pinning waits until the memory is copied, in each state that a page may have. */
TEST(memory_pinned_later_stays_protected)
{
    need_device();
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        print_message("# %s\n", pages[i].name);
        attack_begin(0);
        pages[i].prepare();
        attack_start();
        if (pages[i].meanwhile != NULL)
            pages[i].meanwhile();
        assert_true(pin(attacked, ATTACK_BYTES));
        let_device_write();
        expect_ok(attack_finish());
        expect_cow(ATTACK_BYTES, "");
        assert_true(job.info.faults != 0);
        if (pages[i].is_zero)
            expect_zeros();
        else
            expect_epoch(1);
        unpin();
        attack_end();
    }
}

/* The negative control: without protection nothing waits. */
TEST(the_test_notices_pins_without_protection)
{
    need_device();
    attack_begin(0);
    fault_arm("uffd.unprotected|trust.", 1, true, 0);
    attack_start();
    assert_true(pin(attacked, ATTACK_BYTES));
    let_device_write();
    expect_ok(attack_finish());
    fault_arm("", 0, false, 0);
    assert_true(attack_has_won());
    unpin();
    attack_end();
}

/* A read past the page cache is a short pin, too. */
TEST(memory_read_into_later_stays_protected)
{
#ifdef __SANITIZE_THREAD__
    print_message("ThreadSanitizer does not know that protected memory makes pread() wait\n");
    skip();
#endif
    need_device();
    attack_begin(0);
    attack_start();
    assert_int_equal(pread(source, attacked, ATTACK_BYTES, 0), ATTACK_BYTES);
    expect_ok(attack_finish());
    expect_cow(ATTACK_BYTES, "");
    assert_int_equal(attacked[ATTACK_BYTES - 8], 2);
    expect_epoch(1);
    attack_end();
}

/* ---- pinned by a driver that does not count it */

/* What is written was copied before, so the device comes too late. */
TEST(memory_may_change_when_it_is_released)
{
    need_device();
    attack_begin(0);
    assert_true(pin(attacked, ATTACK_BYTES));
    fault_arm("trust.others", 1, true, 0);
    fault_delay("posix.pwrite", 20000);
    expect_ok(start());
    expect_ok(sidestep_save_wait(job.save, SIDESTEP_SAVE_RELEASED, -1, &job.err));
    let_device_write();
    expect_ok(finish());
    fault_arm("", 0, false, 0);
    fault_delay("", 0);
    expect_cow(ATTACK_BYTES, "");
    expect_epoch(1);
    unpin();
    attack_end();
}

/* ---- messages */

static void doctor_says(const char *name, const char *words)
{
    struct sidestep_doctor_report report = {0};
    bool said = false;

    expect_ok(sidestep_doctor(scratch.path, &report, &job.err));
    for (size_t i = 0; i < report.count; i++)
        said = said || (strcmp(sidestep_doctor_report_finding(&report, i)->name, name) == 0 &&
                        strstr(sidestep_doctor_report_finding(&report, i)->text, words) != NULL);
    assert_true(said);
    sidestep_doctor_report_release(&report);
}

TEST(doctor_reports_pinned_memory)
{
    need_device();
    doctor_says("pinned_memory", "this process has no memory pinned");
    assert_true(pin(attacked, ATTACK_BYTES));
    doctor_says("pinned_memory", "this process has 8.0 MiB pinned for devices: saves copy");
    unpin();
}

/* ---- the library's own pinned memory */

TEST(saves_and_loads_pin_nothing)
{
    need_device();
    held_io = SIDESTEP_IO_URING;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(attacked, ATTACK_BYTES, 1, 0);
    fill(1);
    attack_start();
    assert_int_equal(pinned_kib(), 0);
    expect_ok(attack_finish());
    expect_epoch(1);
    assert_int_equal(pinned_kib(), 0);
    attack_end();
}

TEST(without_proc_status_the_state_is_copied)
{
    need_cow();
    attack_begin(0);
    fault_arm("bypass.status", 1, true, EACCES);
    attack_start();
    fill(2);
    expect_ok(attack_finish());
    fault_arm("", 0, false, 0);
    expect_cow(0, "open /proc/self/status");
    expect_epoch(1);
    attack_end();
}

static int setup_device(void **state)
{
    if (setup(state) != 0)
        return -1;
    attacked = map(ATTACK_BYTES);
    has_ring = io_uring_queue_init(8, &ring, 0) == 0;
    may_pin = has_ring && pin(attacked, ATTACK_BYTES);
    if (may_pin)
        unpin();
    make_source();
    return 0;
}

static int teardown_device(void **state)
{
    if (has_ring)
        io_uring_queue_exit(&ring);
    munmap(attacked, ATTACK_BYTES);
    close(source);
    return teardown(state);
}

ALL_TESTS(setup_device, teardown_device);
