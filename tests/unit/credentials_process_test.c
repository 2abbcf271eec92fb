/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * credentials_process_test.c -- programs of credential_process that do not end, or not alone. Other
 * programs are in tests/objects/test_client_credentials.py.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "object/credentials_source.h"
#include "support/one_scratch.h"

#define PATIENCE_MS 60000 /* for what happens at once, on a machine that is busy */

static struct sidestep_error err;

/* Runs a script that finds a FIFO at descriptor 3.  ${*held} is its other end: it is hung up when
 * all processes that the script started have ended. */
static enum sidestep_status run_script(const char *script, struct buffer *output, int *held)
{
    char fifo[256], command[512];

    (void)unlink(at(fifo, "held"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    *held = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(*held >= 0);
    snprintf(command, sizeof(command), "sh -c \"exec 3>'%s'; %s\"", fifo, script);
    enum sidestep_status status = credentials_run(command, output, &err);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* it has been reaped */
    return status;
}

static void expect_nobody(int held)
{
    struct pollfd hung_up = {.fd = held};

    assert_int_equal(poll(&hung_up, 1, PATIENCE_MS), 1);
    (void)close(held);
}

/* It says what there is to say, and leaves a daemon that holds its output. */
TEST(a_daemon_that_stays_is_not_waited_for)
{
    OWNED_BUFFER output = {0};
    char pid[32] = "";
    int held;

    assert_int_equal(run_script("sleep 300 & echo said; echo $! >&3", &output, &held), SIDESTEP_OK);
    assert_non_null(memmem(output.bytes, output.length, "said", 4));
    assert_true(read(held, pid, sizeof(pid) - 1) > 0);
    assert_int_equal(kill(atoi(pid), 0), 0); /* a daemon may be meant to stay */
    assert_int_equal(kill(atoi(pid), SIGKILL), 0);
    expect_nobody(held);
}

/* A program that has closed its output, and lives on, is killed at the end of its time. */
TEST(a_program_without_output_does_not_run_for_ever)
{
    OWNED_BUFFER output = {0};
    int held;

    fault_arm("credentials.closed", 1, true, 0);
    assert_int_equal(run_script("exec >&- ; sleep 300", &output, &held), SIDESTEP_ETIMEDOUT);
    fault_arm("", 0, false, 0);
    expect_nobody(held);
}

/* What it has started ends with it. */
TEST(all_of_a_program_is_killed)
{
    OWNED_BUFFER output = {0};
    int held;

    assert_int_equal(run_script("sleep 300 & cat /dev/zero", &output, &held), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "prints more than"));
    expect_nobody(held);
}

/* A program may ignore SIGCHLD, or reap all of its children. */
TEST(a_program_that_somebody_else_reaps)
{
    OWNED_BUFFER output = {0};
    int held;

    (void)signal(SIGCHLD, SIG_IGN);
    assert_int_equal(run_script("echo said; false", &output, &held), SIDESTEP_OK);
    (void)signal(SIGCHLD, SIG_DFL);
    assert_non_null(memmem(output.bytes, output.length, "said", 4));
    expect_nobody(held);
}

EACH_TEST(scratch_setup, scratch_teardown);
