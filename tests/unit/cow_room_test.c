/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_room_test.c -- write protection with a pool that is smaller than the state: who waits for a
 * slot, who must not wait, and when it cannot work. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/priority.h"
#include "snapshot/pool_slots.h"
#include "support/held.h"

#define CAP (16 * MIB)

/* ---- slots */

static struct image_window windows[64];
static struct image image = {.windows = windows, .window_count = 64};
static uint8_t pool[1]; /* only addresses are compared */

static struct pool_slots *new_places(uint64_t bytes, uint64_t reserve)
{
    struct pool_slots *places = NULL;

    assert_int_equal(pool_slots_new(&places, &image, NULL), SIDESTEP_OK);
    pool_slots_set_shared(places, pool, bytes * image_align(), reserve * image_align());
    return places;
}

static void size_windows(const unsigned *sizes, size_t count)
{
    uint64_t at = 0;

    for (size_t i = 0; i < 64; i++) {
        windows[i].offset = at;
        windows[i].bytes = sizes[i % count] * image_align();
        at += windows[i].bytes;
    }
    image.body_bytes = at;
}

/* The page of the slot; -1: none. */
static long take(struct pool_slots *places, size_t i, enum pool_slots_order who)
{
    uint8_t *place = pool_slots_acquire(places, i, who);

    assert_ptr_equal(place, pool_slots_get(places, i));
    return place != NULL ? (long)((place - pool) / (long)image_align()) : -1;
}

TEST(the_reserve_is_kept)
{
    size_windows((const unsigned[]){2}, 1);
    struct pool_slots *places = new_places(10, 4);
    assert_int_equal(take(places, 40, POOL_SLOTS_OUT_OF_ORDER), 4);
    assert_int_equal(take(places, 41, POOL_SLOTS_OUT_OF_ORDER), 6);
    assert_int_equal(take(places, 42, POOL_SLOTS_OUT_OF_ORDER), 8);
    assert_int_equal(take(places, 43, POOL_SLOTS_OUT_OF_ORDER), -1);
    assert_int_equal(take(places, 40, POOL_SLOTS_OUT_OF_ORDER), 4); /* it has one already */
    assert_int_equal(take(places, 0, POOL_SLOTS_IN_ORDER), 0);
    assert_int_equal(take(places, 1, POOL_SLOTS_IN_ORDER), 2);
    assert_int_equal(take(places, 2, POOL_SLOTS_IN_ORDER), -1);
    pool_slots_return(places, 41);
    assert_int_equal(take(places, 2, POOL_SLOTS_IN_ORDER), -1); /* no more than needed */
    assert_int_equal(take(places, 2, POOL_SLOTS_AHEAD), 6);
    pool_slots_return(places, 0);
    assert_int_equal(take(places, 43, POOL_SLOTS_OUT_OF_ORDER), -1);
    assert_int_equal(take(places, 3, POOL_SLOTS_AHEAD), 0);
    assert_int_equal(pool_slots_peak_bytes(places), 10 * image_align());
    pool_slots_free(&places);
}

TEST(the_lowest_slots_are_used)
{
    size_windows((const unsigned[]){3, 1, 2, 4}, 4);
    struct pool_slots *places = new_places(40, 0);
    for (size_t i = 0; i < 8; i++)
        assert_int_not_equal(take(places, i, POOL_SLOTS_OUT_OF_ORDER), -1);
    assert_int_equal(pool_slots_peak_bytes(places), 20 * image_align());
    pool_slots_return(places, 1); /* 1 page at 3 */
    pool_slots_return(places, 3); /* 4 at 6, and those of */
    pool_slots_return(places, 2); /* 2 at 4: now one stretch */
    pool_slots_return(places, 2); /* has none: no effect */
    assert_int_equal(take(places, 11, POOL_SLOTS_OUT_OF_ORDER), 3);
    assert_int_equal(take(places, 8, POOL_SLOTS_OUT_OF_ORDER), 7);
    assert_int_equal(take(places, 9, POOL_SLOTS_OUT_OF_ORDER), 20);
    for (size_t i = 0; i < 64; i++)
        pool_slots_return(places, i);
    assert_int_equal(take(places, 0, POOL_SLOTS_OUT_OF_ORDER), 0);
    assert_int_equal(pool_slots_peak_bytes(places), 21 * image_align());
    pool_slots_free(&places);
}

/* In whichever order windows are opened, the one whose turn it is gets a slot in the end. */
TEST(every_window_gets_a_slot)
{
    unsigned seed = 7;

    size_windows((const unsigned[]){3, 1, 5, 2, 4}, 5);
    for (unsigned round = 0; round < 200; round++) {
        struct pool_slots *places = new_places(24, 10);
        for (size_t next = 0, done = 0; done < 64;) {
            seed = seed * 1103515245u + 12345u;
            if (next < 64)
                (void)take(places, next + (seed >> 8) % (64 - next), POOL_SLOTS_OUT_OF_ORDER);
            if (next < 64 && take(places, next, POOL_SLOTS_IN_ORDER) >= 0) {
                next++;
            } else {
                assert_true(done < next); /* an earlier window has a slot, and will be written */
                pool_slots_return(places, done++);
            }
        }
        pool_slots_free(&places);
    }
}

TEST(no_memory_for_slots)
{
    struct pool_slots *places = NULL;
    struct sidestep_error err = {0};

    fault_arm("memory", 1, false, ENOMEM);
    assert_int_equal(pool_slots_new(&places, &image, &err), SIDESTEP_ENOMEM);
    fault_arm("", 0, false, 0);
    assert_null(places);
    pool_slots_free(&places);
}

/* ---- saves */

TEST(saves_need_no_more_than_the_cap)
{
    need_cow();
    unsigned char *memory = map(96 * MIB);
    held_pool_bytes = CAP;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory + 64, 60 * MIB, 1, 0);
    add(memory + 60 * MIB + 128, 30 * MIB, 1, 0);
    for (int i = 0; i < 3; i++) {
        fault_delay(i == 1 ? "posix.pwrite" : "", i == 1 ? 4000 : 0);
        save_and_overwrite();
        fault_delay("", 0);
        expect_cow(90 * MIB - 5 * (size_t)sysconf(_SC_PAGESIZE), "");
        assert_int_equal(job.info.cow_bytes + job.info.copy_bytes, 90 * MIB);
        assert_int_equal(job.info.flags & SIDESTEP_SAVE_STREAMED, 0);
        assert_true(job.info.faults_disk != 0);
        assert_true(job.info.pool_bytes <= CAP && job.info.pool_bytes >= CAP / 2);
    }
    end();
    held_pool_bytes = 0;
    munmap(memory, 96 * MIB);
}

static atomic_bool overwritten;

static void *overwrite(void *argument)
{
    fill(2);
    overwritten = true;
    return argument;
}

/* A pause that ends only when the trainer goes on does not delay what the trainer waits for, and
 * the threads that do it leave the idle class. */
TEST(a_pause_does_not_delay_a_trainer_that_waits_for_a_slot)
{
    pthread_t trainer;

    need_cow();
    struct priority_rights rights = priority_probe();
    unsigned char *memory = map(64 * MIB);
    held_pool_bytes = CAP;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 64 * MIB, 1, 0);
    save_and_overwrite();
    sidestep_engine_pause(job.engine);
    fill(1);
    expect_ok(start());
    if (rights.raise)
        await_threads("sidestep-save", true, 1);
    fault_delay("posix.pwrite", 400000); /* so that somebody waits long enough to be seen */
    assert_int_equal(pthread_create(&trainer, NULL, overwrite, NULL), 0);
    if (rights.raise)
        await_threads("sidestep-save", false, 1);
    fault_delay("", 0);
    (void)alarm(60);
    pthread_join(trainer, NULL);
    (void)alarm(0);
    sidestep_engine_resume(job.engine);
    expect_ok(finish());
    assert_true(job.info.faults_disk != 0);
    expect_epoch(1);
    end();
    held_pool_bytes = 0;
    munmap(memory, 64 * MIB);
}

/* While the disk is slow the pool is full, and writes to the state wait. Writes to a page that only
 * the state's neighbours use do not. */
TEST(writes_to_neighbours_do_not_wait)
{
    pthread_t trainer;

    need_cow();
    unsigned char *memory = map(64 * MIB);
    held_pool_bytes = CAP;
    begin(SIDESTEP_SNAPSHOT_COW);
    for (size_t i = 0; i < 3;
         i++) /* each ends in the middle of a page, where the next one begins */
        add(memory + i * (20 * MIB + 4096) + 64, 20 * MIB, 1, 0);
    fill(1);
    expect_ok(start());
    expect_ok(finish());                 /* planned, allocated */
    fault_delay("posix.pwrite", 900000); /* the disk is nearly stopped */
    fill(1);
    expect_ok(start());
    overwritten = false;
    assert_int_equal(pthread_create(&trainer, NULL, overwrite, NULL), 0);
    (void)alarm(60);
    (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    for (size_t i = 1; i < 3; i++) {
        unsigned char *gap = memory + i * (20 * MIB + 4096);
        memset(gap - 4000, 3, 4000); /* between two tensors */
        assert_int_equal(gap[-1], 3);
    }
    print_message("# the trainer %s\n", overwritten ? "was done" : "waited for room meanwhile");
    fault_delay("", 0);
    expect_ok(finish());
    pthread_join(trainer, NULL);
    (void)alarm(0);
    assert_true(job.info.faults_disk != 0);
    expect_epoch(1);
    end();
    held_pool_bytes = 0;
    munmap(memory, 64 * MIB);
}

static void take_signal(int number)
{
    (void)number;
}

struct reading {
    int file;
    void *memory;
    atomic_bool done;
};

static void *read_file(void *argument)
{
    struct reading *reading = argument;
    ssize_t n = pread(reading->file, reading->memory, 64 * MIB, 0);

    atomic_store(&reading->done, true);
    return (void *)(intptr_t)(n == (ssize_t)(64 * MIB));
}

/* A read(2) that is interrupted while it waits for a slot does not sleep: the kernel reports its
 * fault again and again. It is counted, and served, once. */
TEST(an_interrupted_read_is_one_fault_at_a_time)
{
    struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART}, before;
    struct reading reading = {.done = false};
    char path[128];
    void *all = NULL;
    pthread_t reader;

    need_cow();
    reading.memory = map(64 * MIB);
    snprintf(path, sizeof(path), "%s/input", scratch.path);
    reading.file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(reading.file >= 0 && ftruncate(reading.file, 64 * MIB) == 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    held_pool_bytes = CAP;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(reading.memory, 64 * MIB, 1, 0);
    fill(1);
    fault_delay("posix.pwrite", 100000);
    expect_ok(start());
    assert_int_equal(pthread_create(&reader, NULL, read_file, &reading), 0);
    while (!atomic_load(&reading.done)) { /* one is always pending */
        (void)pthread_kill(reader, SIGUSR1);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    pthread_join(reader, &all);
    fault_delay("", 0);
    assert_non_null(all);
    expect_ok(finish());
    expect_epoch(1);
    assert_true(job.info.faults_disk != 0);
    assert_true(job.info.faults <= 4 * 64 * MIB / (2 * MIB));
    end();
    held_pool_bytes = 0;
    (void)sigaction(SIGUSR1, &before, NULL);
    close(reading.file);
    munmap(reading.memory, 64 * MIB);
}

TEST(eager_copies_need_pool_memory)
{
    need_cow();
    unsigned char *good = map(32 * MIB), *strided = map(80 * MIB);
    for (unsigned mib = 4; mib <= 40; mib += 36) {
        held_pool_bytes = 2 * CAP;
        begin(SIDESTEP_SNAPSHOT_COW);
        add(good, 32 * MIB, 1, 0);
        add(strided, mib * MIB, 2, 0);
        save_and_overwrite();
        expect_cow(mib == 4 ? 32 * MIB : 0,
                   mib == 4 ? "not contiguous" : "pool_bytes is too small");
        assert_true(job.info.copy_bytes >= mib * MIB);
        assert_int_equal((job.info.flags & SIDESTEP_SAVE_STREAMED) != 0, mib == 40);
        end();
    }
    held_pool_bytes = 0;
    munmap(good, 32 * MIB);
    munmap(strided, 80 * MIB);
}

/* Without a cap the pool holds everything, and tensors that cannot be protected are copied to it.
 */
TEST(without_a_cap_unprotectable_memory_is_copied)
{
    need_cow();
    unsigned char *good = map(8 * MIB), *strided = map(160 * MIB);
    begin(SIDESTEP_SNAPSHOT_COW);
    add(good, 8 * MIB, 1, 0);
    add(strided, 80 * MIB, 2, 0);
    for (int i = 0; i < 2; i++) {
        save_and_overwrite();
        expect_cow(8 * MIB, "not contiguous");
        assert_int_equal(job.info.copy_bytes, 80 * MIB);
    }
    end();
    munmap(good, 8 * MIB);
    munmap(strided, 160 * MIB);
}

TEST(unprotectable_memory_under_a_cap_is_copied)
{
    need_cow();
    unsigned char *memory = map(132 * MIB);
    held_pool_bytes = CAP;
    begin(SIDESTEP_SNAPSHOT_COW);
    add(memory, 132 * MIB, 1, 0);
    fault_arm("uffd.protect", 2, false, ENOMEM);
    save_and_overwrite();
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    expect_cow(0, "could not be protected");
    assert_int_equal(job.info.copy_bytes, 132 * MIB);
    save_and_overwrite();
    expect_cow(132 * MIB, "");
    end();
    held_pool_bytes = 0;
    munmap(memory, 132 * MIB);
}

static int setup_threads(void **state)
{
    held_io = SIDESTEP_IO_THREADS; /* every write has a point where it can be delayed */
    return setup(state);
}

ALL_TESTS(setup_threads, teardown);
