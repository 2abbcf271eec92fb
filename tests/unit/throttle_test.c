/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbour_test.c -- who gives way to whom: priorities, pauses, limits, lists of processors. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "base/fault.h"
#include "engine/throttle.h"
#include "support/scratch.h"

static void lists_of_processors(void **state)
{
    static const char *const bad[] = {"",   "x",   "-1",  "0-",   "1-0", "0,",
                                      ",0", "0 1", "0-x", "1024", "0x1", "0-99999999999999999999"};
    struct sidestep_error err = {0};
    struct neighbour n;
    cpu_set_t before, after;
    char far[32];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(neighbour_init(&n, false, 0, bad[i], &err), SIDESTEP_EINVAL);
        neighbour_destroy(&n);
    }
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int first = 0, absent = CPU_SETSIZE - 1;
    while (!CPU_ISSET(first, &before))
        first++;
    if (!CPU_ISSET(absent, &before)) {
        snprintf(far, sizeof(far), "%d", absent);
        assert_int_equal(neighbour_init(&n, false, 0, far, &err), SIDESTEP_EINVAL);
        neighbour_destroy(&n);
    }
    snprintf(far, sizeof(far), "%d,%d-%d", first, absent, absent);
    assert_int_equal(neighbour_init(&n, false, 0, far, &err), SIDESTEP_OK);
    neighbour_join(&n);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_ISSET(first, &after));
    neighbour_leave(&n);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    neighbour_destroy(&n);
}

/* On a thread of its own: it may not be possible to raise it again. */
static void *work(void *argument)
{
    struct neighbour *n = argument;
    int idle = n->rights.raise ? SCHED_IDLE : SCHED_OTHER;

    neighbour_join(n);
    assert_int_equal(sched_getscheduler(0), idle);
    neighbour_wait_begin(n);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    neighbour_wait_begin(n);
    neighbour_wait_end(n);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    neighbour_wait_end(n);
    assert_int_equal(sched_getscheduler(0), idle);
    neighbour_leave(n);
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    neighbour_wait_begin(n);
    neighbour_join(n); /* while somebody waits */
    assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    neighbour_leave(n);
    neighbour_wait_end(n);
    return NULL;
}

static void priorities_follow_who_waits(void **state)
{
    struct neighbour n;
    pthread_t thread;

    (void)state;
    for (unsigned long denied = 0; denied <= 2; denied++) {
        fault_arm("priority.policy", denied, true, EPERM);
        assert_int_equal(neighbour_init(&n, true, 0, NULL, NULL), SIDESTEP_OK);
        fault_arm("", 0, false, 0);
        assert_true(denied == 0 || !n.rights.raise);
        assert_int_equal(pthread_create(&thread, NULL, work, &n), 0);
        pthread_join(thread, NULL);
        neighbour_destroy(&n);
    }
}

struct taking {
    struct neighbour *n;
    atomic_bool stop;
    atomic_bool begun;
    atomic_bool done;
    uint64_t held_ns;
};

static void *take(void *argument)
{
    struct taking *t = argument;

    atomic_store(&t->begun, true);
    t->held_ns = neighbour_take(t->n, 1, 0, NULL, &t->stop);
    atomic_store(&t->done, true);
    return NULL;
}

static void nap(void)
{
    struct timespec while_ms = {.tv_nsec = 60000000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &while_ms, NULL);
}

static void pauses_hold_until_they_end(void **state)
{
    enum { RESUME, WAIT, STOP, WAYS };
    struct neighbour n;
    pthread_t thread;

    (void)state;
    assert_int_equal(neighbour_init(&n, false, 0, NULL, NULL), SIDESTEP_OK);
    for (int way = 0; way < WAYS; way++) {
        struct taking t = {.n = &n};
        neighbour_pause(&n, true);
        assert_int_equal(pthread_create(&thread, NULL, take, &t), 0);
        do
            nap();
        while (!atomic_load(&t.begun));
        nap();
        assert_false(atomic_load(&t.done));
        if (way == RESUME)
            neighbour_pause(&n, false);
        if (way == WAIT)
            neighbour_wait_begin(&n);
        if (way == STOP)
            atomic_store(&t.stop, true);
        pthread_join(thread, NULL);
        assert_true(t.held_ns > 0);
        if (way == WAIT)
            neighbour_wait_end(&n);
    }
    neighbour_destroy(&n);
}

/* A rate is never exceeded: the n-th piece waits for those before it.  The first goes at once. */
static void rates_are_kept(void **state)
{
    struct neighbour n;
    atomic_bool stop = false;
    uint64_t held = 0;

    (void)state;
    assert_int_equal(neighbour_init(&n, false, 1000000, NULL, NULL), SIDESTEP_OK);
    for (int i = 0; i < 4; i++)
        held += neighbour_take(&n, 20000, 0, NULL, &stop); /* 20 ms each */
    assert_true(held >= 50000000u);
    neighbour_wait_begin(&n); /* the limit of all holds for everybody */
    assert_true(neighbour_take(&n, 20000, 0, NULL, &stop) > 0);
    neighbour_destroy(&n);
    assert_int_equal(neighbour_init(&n, false, 0, NULL, NULL), SIDESTEP_OK);
    (void)neighbour_take(&n, 20000, 1000000, NULL, &stop);
    assert_true(neighbour_take(&n, 1u << 30, 1000000, NULL, &stop) > 0);
    neighbour_wait_begin(&n); /* else a quarter of an hour */
    (void)neighbour_take(&n, 1, 1000000, NULL, &stop);
    neighbour_wait_end(&n);
    neighbour_destroy(&n);
}

/* The third number: sectors. */
static void the_kernels_count_is_read(void **state)
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
        {"1 2 36028797018963968", false, 0}, /* more bytes than a number has */
        {"1 2", false, 0},
        {"1 2 x", false, 0},
        {"", false, 0},
    };
    struct scratch scratch;
    char path[256];
    uint64_t bytes;

    (void)state;
    assert_true(scratch_make(&scratch, NULL));
    snprintf(path, sizeof(path), "%s/stat", scratch.path);
    assert_false(disk_readers_sample(path, &bytes));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(cases[i].text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(disk_readers_sample(path, &bytes), cases[i].good);
        if (cases[i].good)
            assert_true(bytes == cases[i].bytes);
    }
    scratch_remove(&scratch);
}

/* Samples as they come, and what is known then, and after a while without any. */
static void reads_of_others_are_seen(void **state)
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
    struct disk_readers readers = {.path = "stat"};
    uint64_t now = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        now += samples[i].ms * 1000000ull;
        bool due = disk_readers_due(&readers, now);
        if (due)
            disk_readers_seen(&readers, samples[i].kib << 10, now);
        if (due != samples[i].due || disk_readers_are_there(&readers, now) != samples[i].others)
            fail_msg("sample %zu", i);
    }
    readers.path[0] = '\0';
    assert_false(disk_readers_due(&readers, now + 50000000));
    disk_readers_watch(&readers, 0); /* no disk */
    assert_int_equal(readers.path[0], '\0');
    assert_false(disk_readers_are_there(&readers, now));
}

static void who_waits_does_not_back_off(void **state)
{
    atomic_bool hurry = true;
    struct neighbour n;

    (void)state;
    assert_int_equal(neighbour_init(&n, false, 0, NULL, NULL), SIDESTEP_OK);
    assert_false(neighbour_backs_off(&n, NULL, 5));
    atomic_store(&n.shared.readers.until_ns, 10);
    assert_true(neighbour_backs_off(&n, NULL, 5));
    assert_false(neighbour_backs_off(&n, NULL, 10));
    assert_false(neighbour_backs_off(&n, &hurry, 5));
    atomic_store(&hurry, false);
    assert_true(neighbour_backs_off(&n, &hurry, 5));
    neighbour_wait_begin(&n);
    assert_false(neighbour_backs_off(&n, NULL, 5));
    neighbour_wait_end(&n);
    assert_true(neighbour_backs_off(&n, NULL, 5));
    neighbour_destroy(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_processors),
        cmocka_unit_test(priorities_follow_who_waits),
        cmocka_unit_test(pauses_hold_until_they_end),
        cmocka_unit_test(rates_are_kept),
        cmocka_unit_test(the_kernels_count_is_read),
        cmocka_unit_test(reads_of_others_are_seen),
        cmocka_unit_test(who_waits_does_not_back_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
