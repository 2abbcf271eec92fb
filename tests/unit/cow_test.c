/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_test.c -- write protection: which memory can be protected, and what happens if the machine
 * refuses. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/held.h"

/* ---- which memory */

TEST(private_memory_is_protected)
{
    need_cow();
    unsigned char *memory = map(8 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory + 64, 3 * MIB, 1, 0);
    add(memory + 64 + 3 * MIB + 64, 3 * MIB, 1, 0);
    for (int i = 0; i < 3; i++) {
        save_and_overwrite();
        expect_cow(6 * MIB - 2 * (size_t)sysconf(_SC_PAGESIZE), "");
        assert_int_equal(job.info.copy_reason[0], 0);
        assert_int_equal(job.info.cow_bytes + job.info.copy_bytes, 6 * MIB);
        assert_true(job.info.faults != 0 || job.info.fault_bytes == 0);
        assert_true(job.info.release_ns != 0);
    }
    end();
    munmap(memory, 8 * MIB);
}

/* Tensor 0 can be protected, tensor 1 not. */
static void expect_copied(void *memory, int64_t stride, uint32_t flags, const char *reason)
{
    unsigned char *good = map(4 * MIB);

    begin(SIDESTEP_SNAPSHOT_COW);
    add(good, 4 * MIB, 1, 0);
    add(memory, 2 * MIB, stride, flags);
    for (int i = 0; i < 2; i++) {
        save_and_overwrite();
        expect_cow(4 * MIB, reason);
        assert_true(job.info.cow_bytes <= 4 * MIB);
        assert_int_equal(job.info.copy_bytes, 2 * MIB);
    }
    end();
    munmap(good, 4 * MIB);
}

TEST(shared_memory_is_copied)
{
    need_cow();
    void *memory = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    expect_copied(memory, 1, 0, "'t1': its memory is shared");
    munmap(memory, 2 * MIB);
}

TEST(files_are_copied)
{
    need_cow();
    char path[128];
    snprintf(path, sizeof(path), "%s/file", scratch.path);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 2 * MIB) == 0);
    void *memory = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    assert_true(memory != MAP_FAILED);
    expect_copied(memory, 1, 0, "'t1': its memory is a file's");
    munmap(memory, 2 * MIB);
    close(fd);
}

TEST(the_stack_is_copied)
{
    need_cow();
    uint64_t memory[WORDS(2 * MIB)];
    expect_copied(memory, 1, 0, "'t1': its memory is a stack");
}

TEST(pinned_and_strided_tensors_are_copied)
{
    need_cow();
    void *memory = map(4 * MIB);
    expect_copied(memory, 1, SIDESTEP_TENSOR_PINNED, "'t1': its memory is pinned");
    fault_arm("cuda.pinned", 2, false, 0); /* what the driver answers */
    expect_copied(memory, 1, 0, "'t1': its memory is pinned");
    fault_arm("", 0, false, 0);
    expect_copied(memory, 2, 0, "'t1': it is not contiguous");
    munmap(memory, 4 * MIB);
}

TEST(pinned_memory_that_only_the_cpu_writes_is_protected)
{
    need_cow();
    void *memory = map(4 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 4 * MIB, 1, SIDESTEP_TENSOR_CPU_WRITES);
    fault_arm("cuda.pinned", 1, true, 0);
    save_and_overwrite();
    fault_arm("", 0, false, 0);
    expect_cow(4 * MIB, "");
    end();
    munmap(memory, 4 * MIB);
}

TEST(read_only_memory_is_copied)
{
    need_cow();
    uint64_t *memory = map(2 * MIB), *good = map(4 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(good, 4 * MIB, 1, 0);
    add(memory, 2 * MIB, 1, 0);
    fill(1);
    assert_int_equal(mprotect(memory, 2 * MIB, PROT_READ), 0);
    expect_ok(start());
    job.count = 1;
    fill(2);
    job.count = 2;
    expect_ok(finish());
    expect_cow(4 * MIB, "'t1': its memory is read-only");
    expect_epoch(1);
    end();
    munmap(memory, 2 * MIB);
    munmap(good, 4 * MIB);
}

TEST(small_states_are_copied)
{
    need_cow();
    void *memory = map(MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, MIB - 8192, 1, 0);
    save_and_overwrite();
    expect_cow(0, "too small");
    end();
    munmap(memory, MIB);
}

TEST(tensors_sharing_memory_are_saved_twice)
{
    need_cow();
    unsigned char *memory = map(4 * MIB);
    uint64_t *loaded[2] = {malloc(3 * MIB), malloc(3 * MIB)};
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 3 * MIB, 1, 0);
    add(memory + MIB, 3 * MIB, 1, 0);
    for (size_t n = 0; n < WORDS(4 * MIB); n++)
        ((uint64_t *)(void *)memory)[n] = n;
    expect_ok(start());
    memset(memory, 0xff, 4 * MIB);
    expect_ok(finish());
    expect_cow(6 * MIB, "");
    struct sidestep_state_dict *target = new_state(loaded);
    expect_ok(sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err));
    for (size_t n = 0; n < WORDS(3 * MIB); n++)
        assert_true(loaded[0][n] == n && loaded[1][n] == n + WORDS(MIB));
    sidestep_state_dict_free(&target);
    end();
    free(loaded[0]);
    free(loaded[1]);
    munmap(memory, 4 * MIB);
}

/* Pages that were never touched, were discarded, or are the zero page. */
static void expect_untouched_pages_to_be_held(bool huge)
{
    uint64_t *memory = map(8 * MIB), zero[4] = {0};

    if (huge)
        assert_int_equal(madvise(memory, 8 * MIB, MADV_HUGEPAGE), 0);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 8 * MIB, 1, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(madvise(memory, 8 * MIB, MADV_DONTNEED), 0);
        for (size_t n = 0; n < WORDS(2 * MIB); n += 512)
            zero[0] |= memory[n]; /* maps the zero page */
        fault_delay("cow.stage", 3000);
        expect_ok(start());
        fill(2);
        expect_ok(finish());
        fault_delay("", 0);
        expect_cow(8 * MIB, "");
        uint64_t *loaded = malloc(8 * MIB);
        struct sidestep_state_dict *target = new_state(&loaded);
        expect_ok(sidestep_load(job.engine, job.path, target, NULL, NULL, &job.err));
        for (size_t n = 0; n < WORDS(8 * MIB); n++)
            assert_int_equal(loaded[n], 0);
        sidestep_state_dict_free(&target);
        free(loaded);
    }
    end();
    munmap(memory, 8 * MIB);
}

TEST(untouched_pages_are_held)
{
    need_cow();
    expect_untouched_pages_to_be_held(false);
    expect_untouched_pages_to_be_held(true);
}

TEST(untouched_pages_are_held_by_old_kernels)
{
    need_cow();
    for (int huge = 0; huge < 2; huge++) {
        fault_arm("uffd.unpopulated", 1, true, EINVAL);
        expect_untouched_pages_to_be_held(huge != 0);
        assert_non_null(fault_fired());
        fault_arm("", 0, false, 0);
    }
}

/* Old kernels cannot scan pages, so their entries are read.  If that fails, too, nobody knows. */
TEST(protection_is_checked_by_old_kernels)
{
    need_cow();
    unsigned char *memory = map(8 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 8 * MIB, 1, 0);
    fault_arm("cow.scan", 1, true, ENOTTY);
    save_and_overwrite();
    assert_non_null(fault_fired());
    expect_cow(8 * MIB, "");
    fault_arm("cow.scan|cow.pagemap", 1, true, EIO);
    fill(1);
    expect_ok(start());
    assert_int_equal(finish(), SIDESTEP_EIO);
    assert_non_null(strstr(job.err.message, "whether memory is still protected"));
    fault_arm("", 0, false, 0);
    save_and_overwrite();
    expect_cow(0, "memory changed in spite of its write protection in an earlier save");
    end();
    munmap(memory, 8 * MIB);
}

/* ---- what the machine refuses */

TEST(refused_protection_is_reported_and_copied)
{
    static const struct {
        const char *point;
        int sys_errno;
        const char *reason;
    } refusals[] = {
        {"uffd.open", EPERM, "userfaultfd needs vm.unprivileged_userfaultfd=1"},
        {"uffd.open", ENOSYS, "userfaultfd is not offered here"},
        {"uffd.open", EINVAL, "has no write protection"},
        {"cow.readv", EPERM, "process_vm_readv"},
        {"cow.eventfd", EMFILE, "eventfd"},
        {"maps.open", EACCES, "/proc/self/maps"},
        {"uffd.register", EBUSY, "tensor 't0': its memory has another userfaultfd"},
        {"uffd.register", ENOMEM, "tensor 't0': it cannot be registered: Cannot allocate"},
    };
    unsigned char *memory = map(4 * MIB);

    need_cow();
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        begin(SIDESTEP_SNAPSHOT_COW);
        add(memory, 4 * MIB, 1, 0);
        fault_arm(refusals[i].point, 1, true, refusals[i].sys_errno);
        save_and_overwrite();
        assert_non_null(fault_fired());
        fault_arm("", 0, false, 0);
        expect_cow(0, refusals[i].reason);
        end();
    }
    munmap(memory, 4 * MIB);
}

TEST(a_failed_protection_falls_back_to_copy)
{
    need_cow();
    unsigned char *memory = map(132 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 132 * MIB, 1, 0);
    fault_arm("uffd.protect", 2, false, ENOMEM); /* one of several stretches */
    save_and_overwrite();
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    expect_cow(1, "tensor 't0': write protection failed: Cannot allocate memory");
    assert_true(job.info.copy_bytes != 0);
    assert_int_equal(job.info.cow_bytes + job.info.copy_bytes, 132 * MIB);
    save_and_overwrite();
    assert_string_equal(job.info.copy_reason, ""); /* of that save only */
    end();
    munmap(memory, 132 * MIB);
}

TEST(a_program_goes_on_when_protection_cannot_be_lifted)
{
    need_cow();
    unsigned char *memory = map(8 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 8 * MIB, 1, 0);
    fill(1);
    fault_arm("uffd.lift", 2, true, ENOMEM);
    fault_delay("cow.stage", 2000);
    expect_ok(start());
    fill(2); /* no write hangs */
    assert_int_equal(finish(), SIDESTEP_EIO);
    assert_non_null(strstr(job.err.message, "write protection of memory is given up"));
    fault_arm("", 0, false, 0);
    fault_delay("", 0);
    save_and_overwrite(); /* by copy */
    expect_cow(0, "failed in an earlier save");
    end();
    munmap(memory, 8 * MIB);
}

/* Save with the ${nth} call at ${point} failing; false: there is no such call. */
static bool try_without(const char *point, unsigned long nth, unsigned *by_cow, unsigned *by_copy)
{
    fill(1);
    fault_arm(point, nth, false, ENOMEM);
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    options.snapshot = SIDESTEP_SNAPSHOT_COW;
    enum sidestep_status status = sidestep_engine_open(&job.engine, &options, &job.err);
    if (status == SIDESTEP_OK) {
        struct sidestep_state_dict *tensors = NULL;
        fault_arm("", 0, false, 0);
        tensors = new_state(NULL);
        fault_arm(point, nth, false, ENOMEM);
        status = sidestep_save_async(job.engine, job.path, tensors, NULL, &job.save, &job.err);
        fill(2);
        if (status == SIDESTEP_OK)
            status = finish();
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        sidestep_state_dict_free(&tensors);
        if (status == SIDESTEP_OK) {
            *by_cow += job.info.snapshot == SIDESTEP_SNAPSHOT_COW;
            *by_copy += job.info.snapshot == SIDESTEP_SNAPSHOT_COPY;
            expect_epoch(1);
        } else {
            assert_true(status == SIDESTEP_ENOMEM || status == SIDESTEP_EUNKNOWN);
        }
        save_and_overwrite();
        end();
        return fired;
    }
    assert_int_equal(status, SIDESTEP_ENOMEM);
    fault_arm("", 0, false, 0);
    return true;
}

TEST(failed_allocations_do_no_harm)
{
    static const char *const points[] = {"memory", "thread.start"};
    unsigned char *memory = map(2 * MIB);
    unsigned by_cow = 0, by_copy = 0;

    need_cow();
    memset(&job, 0, sizeof(job));
    snprintf(job.path, sizeof(job.path), "%s/it", scratch.path);
    add(memory, 2 * MIB, 1, 0);
    for (size_t i = 0; i < 2; i++)
        /* All small numbers, and ever fewer of the large ones. */
        for (unsigned long nth = 1; try_without(points[i], nth, &by_cow, &by_copy);)
            nth += nth < 30 ? 1 : nth / 8;
    assert_true(by_cow != 0 && by_copy != 0);
    munmap(memory, 2 * MIB);
}

ALL_TESTS(setup, teardown);
