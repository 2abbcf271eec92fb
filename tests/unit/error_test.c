/* SPDX-License-Identifier: BSD-3-Clause */
/* error_test.c -- what is put in front of a message, and that nothing is put there twice. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/error.h"

static void what_was_done_stands_in_front(void **state)
{
    struct sidestep_error err = {0};

    (void)state;
    assert_int_equal(FAIL(&err, SIDESTEP_EIO, "broken"), SIDESTEP_EIO);
    error_wrap(&err, "read '%s'", "a");
    error_wrap(&err, "load '%s'", "b");
    assert_string_equal(err.message, "load 'b': read 'a': broken");
    assert_int_equal(err.status, SIDESTEP_EIO);
}

/* The control of the check that all other tests run under. */
static void what_is_said_twice_ends_a_test(void **state)
{
    int status = 0;
    pid_t child = fork();

    (void)state;
    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct sidestep_error err = {0};
        (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would go on with the tests */
        (void)freopen("/dev/null", "w", stderr);
        (void)FAIL(&err, SIDESTEP_EIO, "save 'a': broken");
        error_wrap(&err, "save '%s'", "a");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_done_stands_in_front),
        cmocka_unit_test(what_is_said_twice_ends_a_test),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
