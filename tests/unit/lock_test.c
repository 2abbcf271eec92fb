/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_test.c -- locks exclude, conditions wake and time out, and a wrong order ends a test. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/unit.h"

#define ROUNDS 1000u

struct counter {
    struct {
        struct lock lock;
        struct lock_condition changed;
        unsigned count;
        unsigned wanted;
    } shared;
};

static void counter_init(struct counter *counter, unsigned wanted)
{
    *counter = (struct counter){.shared.wanted = wanted};
    lock_init(&counter->shared.lock, LOCK_SAVE);
    lock_condition_init(&counter->shared.changed);
}

static void counter_destroy(struct counter *counter)
{
    lock_condition_destroy(&counter->shared.changed);
    lock_destroy(&counter->shared.lock);
}

static void *count(void *argument)
{
    struct counter *counter = argument;

    for (unsigned i = 0; i < ROUNDS; i++) {
        lock_acquire(&counter->shared.lock);
        unsigned before = counter->shared.count;
        counter->shared.count = before + 1;
        if (counter->shared.count == counter->shared.wanted)
            lock_wake_all(&counter->shared.changed);
        lock_release(&counter->shared.lock);
    }
    return NULL;
}

TEST(threads_exclude_and_wake_each_other)
{
    struct counter counter;
    pthread_t threads[4];

    counter_init(&counter, ARRAY_LENGTH(threads) * ROUNDS);
    for (size_t i = 0; i < ARRAY_LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, &counter), 0);
    lock_acquire(&counter.shared.lock);
    while (counter.shared.count < counter.shared.wanted)
        lock_wait(&counter.shared.lock, &counter.shared.changed);
    lock_release(&counter.shared.lock);
    for (size_t i = 0; i < ARRAY_LENGTH(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    counter_destroy(&counter);
}

TEST(a_wait_ends_when_it_is_late)
{
    struct counter counter;

    counter_init(&counter, 0);
    lock_acquire(&counter.shared.lock);
    assert_false(
        lock_wait_until(&counter.shared.lock, &counter.shared.changed, clock_now(clock_system())));
    lock_release(&counter.shared.lock);
    counter_destroy(&counter);
}

/* Does a process that acquires the two locks, one after the other, go on? */
static bool may_acquire(enum lock_kind first, enum lock_kind second)
{
    int status = 0;
    pid_t child = fork();

    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct lock one, other;
        (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would go on with the tests */
        (void)close(STDERR_FILENO);
        lock_init(&one, first);
        lock_init(&other, second);
        lock_acquire(&one);
        lock_acquire(&other);
        lock_release(&one);
        lock_release(&other);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) || WTERMSIG(status) == SIGABRT);
    return WIFEXITED(status);
}

TEST(locks_are_acquired_from_the_outside_in)
{
    assert_true(may_acquire(LOCK_PRUNE, LOCK_SERIES));
    assert_true(may_acquire(LOCK_PRUNE, LOCK_FAULT));
    assert_true(may_acquire(LOCK_PIPELINE, LOCK_COW));
}

TEST(another_order_ends_a_test)
{
    assert_false(may_acquire(LOCK_SERIES, LOCK_PRUNE));
    assert_false(may_acquire(LOCK_FAULT, LOCK_PRUNE));
    assert_false(may_acquire(LOCK_COW, LOCK_PIPELINE));
}

TEST(two_locks_of_one_kind_end_a_test)
{
    assert_false(may_acquire(LOCK_SAVE, LOCK_SAVE));
    assert_false(may_acquire(LOCK_PRUNE, LOCK_PRUNE));
    assert_false(may_acquire(LOCK_FAULT, LOCK_FAULT));
}

TEST(a_lock_that_is_not_held_is_not_released)
{
    int status = 0;
    pid_t child = fork();

    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct lock lock;
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        lock_init(&lock, LOCK_SAVE);
        lock_release(&lock);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}
