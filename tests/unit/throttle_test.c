/* SPDX-License-Identifier: BSD-3-Clause */
/* throttle_test.c -- the throttle: priorities, back-off, bandwidth limits, lists of processors. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/fault.h"
#include "engine/throttle.h"
#include "support/scratch.h"
#include "support/unit.h"

TEST(lists_of_processors)
{
    static const char *const bad[] = {"",   "x",   "-1",  "0-",   "1-0", "0,",
                                      ",0", "0 1", "0-x", "1024", "0x1", "0-99999999999999999999"};
    struct sidestep_error err = {0};
    struct throttle n;
    cpu_set_t before, after;
    char far[32];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(throttle_init(&n, false, 0, bad[i], &err), SIDESTEP_EINVAL);
        throttle_destroy(&n);
    }
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int first = 0, absent = CPU_SETSIZE - 1;
    while (!CPU_ISSET(first, &before))
        first++;
    if (!CPU_ISSET(absent, &before)) {
        snprintf(far, sizeof(far), "%d", absent);
        assert_int_equal(throttle_init(&n, false, 0, far, &err), SIDESTEP_EINVAL);
        throttle_destroy(&n);
    }
    snprintf(far, sizeof(far), "%d,%d-%d", first, absent, absent);
    assert_int_equal(throttle_init(&n, false, 0, far, &err), SIDESTEP_OK);
    throttle_attach_thread(&n);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_ISSET(first, &after));
    throttle_detach_thread(&n);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    throttle_destroy(&n);
}

/* Runs on another thread, because it may not be possible to raise it again. */
static void *work(void *argument)
{
    struct throttle *n = argument;
    int idle = n->rights.raise ? SCHED_IDLE : SCHED_OTHER;

    throttle_attach_thread(n);
    assert_int_equal(sched_getscheduler(0), idle);
    throttle_wait_begin(n);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    throttle_wait_begin(n);
    throttle_wait_end(n);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    throttle_wait_end(n);
    assert_int_equal(sched_getscheduler(0), idle);
    throttle_detach_thread(n);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    throttle_wait_begin(n);
    throttle_attach_thread(n); /* while somebody waits */
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    throttle_detach_thread(n);
    throttle_wait_end(n);
    return NULL;
}

TEST(priorities_rise_while_somebody_waits)
{
    struct throttle n;
    pthread_t thread;

    for (unsigned long denied = 0; denied <= 2; denied++) {
        fault_arm("priority.policy", denied, true, EPERM);
        assert_int_equal(throttle_init(&n, true, 0, NULL, NULL), SIDESTEP_OK);
        fault_arm("", 0, false, 0);
        assert_true(denied == 0 || !n.rights.raise);
        assert_int_equal(pthread_create(&thread, NULL, work, &n), 0);
        pthread_join(thread, NULL);
        throttle_destroy(&n);
    }
}

struct taking {
    struct throttle *n;
    atomic_bool stop;
    atomic_bool begun;
    atomic_bool done;
    uint64_t held_ns;
};

static void *take(void *argument)
{
    struct taking *t = argument;

    atomic_store(&t->begun, true);
    t->held_ns = throttle_acquire(t->n, 1, 0, NULL, &t->stop);
    atomic_store(&t->done, true);
    return NULL;
}

static void nap(void)
{
    struct timespec while_ms = {.tv_nsec = 60000000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &while_ms, NULL);
}

TEST(pauses_hold_until_they_end)
{
    enum { RESUME, WAIT, STOP, WAYS };
    struct throttle n;
    pthread_t thread;

    assert_int_equal(throttle_init(&n, false, 0, NULL, NULL), SIDESTEP_OK);
    for (int way = 0; way < WAYS; way++) {
        struct taking t = {.n = &n};
        throttle_set_paused(&n, true);
        assert_int_equal(pthread_create(&thread, NULL, take, &t), 0);
        do
            nap();
        while (!atomic_load(&t.begun));
        nap();
        assert_false(atomic_load(&t.done));
        if (way == RESUME)
            throttle_set_paused(&n, false);
        if (way == WAIT)
            throttle_wait_begin(&n);
        if (way == STOP)
            atomic_store(&t.stop, true);
        pthread_join(thread, NULL);
        assert_true(t.held_ns > 0);
        if (way == WAIT)
            throttle_wait_end(&n);
    }
    throttle_destroy(&n);
}

/* The bandwidth limit is never exceeded: the n-th piece waits for those before it. The first goes
 * at once. */
TEST(rates_are_never_exceeded)
{
    struct throttle n;
    atomic_bool stop = false;
    uint64_t held = 0;

    assert_int_equal(throttle_init(&n, false, 1000000, NULL, NULL), SIDESTEP_OK);
    for (int i = 0; i < 4; i++)
        held += throttle_acquire(&n, 20000, 0, NULL, &stop); /* 20 ms each */
    assert_true(held >= 50000000u);
    throttle_wait_begin(&n); /* the common limit holds for all */
    assert_true(throttle_acquire(&n, 20000, 0, NULL, &stop) > 0);
    throttle_destroy(&n);
    assert_int_equal(throttle_init(&n, false, 0, NULL, NULL), SIDESTEP_OK);
    (void)throttle_acquire(&n, 20000, 1000000, NULL, &stop);
    assert_true(throttle_acquire(&n, 1u << 30, 1000000, NULL, &stop) > 0);
    throttle_wait_begin(&n); /* otherwise it would take a quarter of an hour */
    (void)throttle_acquire(&n, 1, 1000000, NULL, &stop);
    throttle_wait_end(&n);
    throttle_destroy(&n);
}

/* The third number: sectors. */
TEST(the_kernels_read_count_is_parsed)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t bytes;
    } cases[] = {
        {"  684372    35058 799450458  6908652  3187424   161765 979386160  6041519 0 1 2\n", true,
         799450458ull * 512},
        {"0 0 0", true, 0},
        {"1 2 36028797018963967", true, 36028797018963967ull * 512},
        {"1 2 36028797018963968", false, 0}, /* more bytes than 64 bits can count */
        {"1 2", false, 0},
        {"1 2 x", false, 0},
        {"", false, 0},
    };
    struct scratch scratch;
    char path[256];
    uint64_t bytes;

    assert_true(scratch_make(&scratch, NULL));
    snprintf(path, sizeof(path), "%s/stat", scratch.path);
    assert_false(disk_activity_read_counter(path, &bytes));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(cases[i].text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(disk_activity_read_counter(path, &bytes), cases[i].good);
        if (cases[i].good)
            assert_true(bytes == cases[i].bytes);
    }
    scratch_remove(&scratch);
}

/* Samples in order, and the result after them, and later without any. */
TEST(reads_of_others_are_seen)
{
    static const struct {
        unsigned ms; /* since the last one */
        uint64_t kib;
        bool due, others;
    } samples[] = {
        {5000, 7 << 20, true, false},       /* the first says nothing */
        {10, 7 << 20, true, false},         /* nobody */
        {5, (7 << 20) + 400, false, false}, /* too early */
        {5, (7 << 20) + 15, true, false},   /* next to nothing */
        {10, (7 << 20) + 31, true, true},   /* 16 KiB */
        {79, (7 << 20) + 31, true, true},
        {1, 0, false, false},               /* 80 ms later */
        {300, (7 << 20) + 400, true, true}, /* slow writes: samples are rare */
        {70, 100, true, true},
        {10, 110, true, false}, /* it has begun again */
        {10, 200, true, true},
        {1100, 9000, true, false}, /* read between two saves */
        {10, 9100, true, true},
    };
    struct disk_activity readers = {.path = "stat"};
    uint64_t now = 0;

    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        now += samples[i].ms * 1000000ull;
        bool due = disk_activity_claim_sample(&readers, now);
        if (due)
            disk_activity_record_sample(&readers, samples[i].kib << 10, now);
        if (due != samples[i].due || disk_activity_has_readers(&readers, now) != samples[i].others)
            fail_msg("sample %zu", i);
    }
    readers.path[0] = '\0';
    assert_false(disk_activity_claim_sample(&readers, now + 50000000));
    disk_activity_watch_disk(&readers, 0); /* no disk */
    assert_int_equal(readers.path[0], '\0');
    assert_false(disk_activity_has_readers(&readers, now));
}

TEST(a_save_with_a_waiter_does_not_back_off)
{
    atomic_bool hurry = true;
    struct throttle n;

    assert_int_equal(throttle_init(&n, false, 0, NULL, NULL), SIDESTEP_OK);
    assert_false(throttle_should_back_off(&n, NULL, 5));
    atomic_store(&n.shared.readers.until_ns, 10);
    assert_true(throttle_should_back_off(&n, NULL, 5));
    assert_false(throttle_should_back_off(&n, NULL, 10));
    assert_false(throttle_should_back_off(&n, &hurry, 5));
    atomic_store(&hurry, false);
    assert_true(throttle_should_back_off(&n, &hurry, 5));
    throttle_wait_begin(&n);
    assert_false(throttle_should_back_off(&n, NULL, 5));
    throttle_wait_end(&n);
    assert_true(throttle_should_back_off(&n, NULL, 5));
    throttle_destroy(&n);
}

TEST(the_time_of_a_thread_grows_with_its_work)
{
    struct thread_time before, after;

    thread_time_read(&before);
    do
        thread_time_read(&after);
    while (after.ran < before.ran + 1000000);
    assert_true(after.waited >= before.waited);
    assert_true(after.ran - before.ran < 1000000000);
}
