/* SPDX-License-Identifier: BSD-3-Clause */
/* error_test.c -- messages get a prefix once, not twice. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "support/unit.h"

TEST(wrapped_errors_begin_with_the_action)
{
    struct sidestep_error err = {0};

    assert_int_equal(FAIL(&err, SIDESTEP_EIO, "broken"), SIDESTEP_EIO);
    error_wrap(&err, "read '%s'", "a");
    error_wrap(&err, "load '%s'", "b");
    assert_string_equal(err.message, "load 'b': read 'a': broken");
    assert_int_equal(err.status, SIDESTEP_EIO);
}

/* "open 'a': open directory 'a': ..." names one thing twice; two files, or two names, stay. */
TEST(a_wrapped_opening_names_its_file_once)
{
    static const struct {
        const char *reason, *what, *message;
    } cases[] = {
        {"open directory 'a/b': no", "open checkpoint 'a/b'", "open checkpoint 'a/b': no"},
        {"open 'b': no", "open 'a/b'", "open 'a/b': no"},
        {"open '.metadata': no", ".metadata", ".metadata: no"},
        {"open 'b': no", "open 'ab'", "open 'ab': open 'b': no"},
        {"open 'b': no", "copy 'a' to 'b'", "copy 'a' to 'b': open 'b': no"},
        {"open 'c': no", "open 'a'", "open 'a': open 'c': no"},
        {"sync 'a': no", "open 'a'", "open 'a': sync 'a': no"},
        {"open 'a'", "read 'a'", "read 'a': open 'a'"},
    };
    struct sidestep_error err = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)FAIL(&err, SIDESTEP_EIO, "%s", cases[i].reason);
        error_wrap(&err, "%s", cases[i].what);
        assert_string_equal(err.message, cases[i].message);
    }
}

/* A URL may have a user and a password, which a message must not have. */
TEST(a_message_has_no_password_of_a_url)
{
    static const struct {
        const char *said, *message;
    } cases[] = {
        {"open 's3://AKIA:its/secret@b/x': no", "open 's3://***@b/x': no"},
        {"http://me:pw@h:80/p?q and https://you@i/", "http://***@h:80/p?q and https://***@i/"},
        {"http://me:p@w@h", "http://***@h"},
        {"'s3://b/x@y': no", "'s3://b/x@y': no"},
        {"http://h:80/x@y", "http://h:80/x@y"},
        {"http://h: no, ask me@home", "http://h: no, ask me@home"},
        {"http://[::1]:9000/x@y", "http://[::1]:9000/x@y"},
        {"s3://", "s3://"},
    };
    struct sidestep_error err = {0};
    char cut[2 * sizeof(err.message)];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)FAIL(&err, SIDESTEP_EIO, "%s", cases[i].said);
        assert_string_equal(err.message, cases[i].message);
        (void)FAIL(&err, SIDESTEP_EIO, "broken");
        error_wrap(&err, "%s", cases[i].said);
        assert_memory_equal(err.message, cases[i].message, strlen(cases[i].message));
    }
    memset(cut, 'x', sizeof(cut) - 1);
    cut[sizeof(cut) - 1] = '\0';
    (void)FAIL(&err, SIDESTEP_EIO, "s3://AKIA:%s@b", cut);
    assert_string_equal(err.message, "s3://***");
}

/* The control of the check that runs in all other tests. */
TEST(a_repeated_prefix_ends_a_test)
{
    int status = 0;
    pid_t child = fork();

    assert_int_not_equal(child, -1);
    if (child == 0) {
        struct sidestep_error err = {0};
        (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would continue with the tests */
        (void)close(STDERR_FILENO);
        (void)FAIL(&err, SIDESTEP_EIO, "save 'a': broken");
        error_wrap(&err, "save '%s'", "a");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

/* A store or a codec of a program may return any status; all else is its mistake. */
TEST(callbacks_may_return_any_status)
{
    struct sidestep_error why = {.message = "broken"}, err = {0};

    for (int status = SIDESTEP_EINVAL; status < ERROR_STATUS_COUNT; status++)
        assert_int_equal(error_from_callback("the store", "s", "stat", status, &why, &err), status);
    assert_string_equal(err.message, "the store 's': stat(): broken");
    assert_int_equal(error_from_callback("the store", "s", "stat", ERROR_STATUS_COUNT, &why, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(error_from_callback("the store", "s", "stat", -1, &why, &err),
                     SIDESTEP_EINVAL);
}
