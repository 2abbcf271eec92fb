/* SPDX-License-Identifier: BSD-3-Clause */
/* seccomp_test.c -- saves and loads under a seccomp filter that kills for a system call, or fails
 * it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "sidestep/sidestep_tools.h"
#include "snapshot/snapshot.h"
#include "store/store.h"
#include "support/one_scratch.h"

#define COUNT (1 << 20)

static float data[COUNT], loaded[COUNT];

static const long numbers[] = {
#define NUMBER(call) SYS_##call,
    SECCOMP_CALLS(NUMBER)
#undef NUMBER
};

/* From now on, the calls of ${mask} get ${action}. */
static bool filter(unsigned mask, unsigned action)
{
    struct sock_filter program[2 * SECCOMP_CALL_COUNT + 2];
    unsigned short used = 0;

    program[used++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < SECCOMP_CALL_COUNT; i++)
        if ((mask & 1u << i) != 0) {
            program[used++] =
                (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[i], 0, 1);
            program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
        }
    program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog all = {.len = used, .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

static struct sidestep_state_dict *state_of(float *values)
{
    static const int64_t shape[] = {COUNT};
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "w",
                                     .dtype = SIDESTEP_FLOAT32,
                                     .ndim = 1,
                                     .shape = shape,
                                     .data = values};
    struct sidestep_state_dict *state = NULL;

    if (sidestep_state_dict_new(&state, NULL) != SIDESTEP_OK ||
        sidestep_state_dict_add_tensor(state, &tensor, NULL) != SIDESTEP_OK)
        return NULL;
    return state;
}

/* Save and load.  Returns the number of the line that failed, or 0. */
static int save_and_load(void)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_save *save = NULL;
    struct sidestep_error err = {0};
    char path[256];

    if (sidestep_engine_open(&engine, NULL, &err) != SIDESTEP_OK)
        return __LINE__;
    struct sidestep_state_dict *state = state_of(data), *to = state_of(loaded);
    if (state == NULL || to == NULL)
        return __LINE__;
    if (sidestep_save_async(engine, at(path, "ckpt"), state, NULL, &save, &err) != SIDESTEP_OK ||
        sidestep_save_finish(&save, NULL, &err) != SIDESTEP_OK)
        return __LINE__;
    if (sidestep_load(engine, path, to, NULL, NULL, &err) != SIDESTEP_OK)
        return __LINE__;
    if (memcmp(data, loaded, sizeof(data)) != 0)
        return __LINE__;
    sidestep_state_dict_free(&state);
    sidestep_state_dict_free(&to);
    if (sidestep_engine_close(&engine, &err) != SIDESTEP_OK)
        return __LINE__;
    return 0;
}

/* In a child: what the filter kills for is not called, and a save works. */
static int work_under(unsigned mask, unsigned action)
{
    struct sidestep_doctor_report report = {0};
    bool kills = action != (SECCOMP_RET_ERRNO | EPERM), is_told = false;

    if (!filter(mask, action))
        return 77;
    for (unsigned i = 0; i < SECCOMP_CALL_COUNT; i++)
        if (seccomp_survives((enum seccomp_call)i) == (kills && (mask & 1u << i) != 0))
            return 100 + (int)i;
    if (waitpid(-1, NULL, __WALL) != -1 || errno != ECHILD) /* nothing is left of the trial */
        return 120;
    if (save_and_load() != 0)
        return 121;
    if (sidestep_doctor(scratch.path, &report, NULL) != SIDESTEP_OK)
        return 122;
    for (size_t i = 0; i < report.count; i++)
        is_told |= strcmp(sidestep_doctor_report_finding(&report, i)->name, "seccomp") == 0;
    return is_told == kills ? 0 : 123;
}

static void expect_life(unsigned mask, unsigned action)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(work_under(mask, action));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("# SKIP no filter can be installed here\n");
        skip();
    }
    if (status != 0)
        print_message("# calls 0x%x, action 0x%x\n", mask, action);
    assert_int_equal(status, 0);
}

static const unsigned actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD,
                                   SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO | EPERM};

TEST(a_filter_that_kills_for_one_call)
{
    for (unsigned i = 0; i < SECCOMP_CALL_COUNT; i++)
        expect_life(1u << i, SECCOMP_RET_KILL_PROCESS);
}

TEST(a_filter_for_all_calls)
{
    for (size_t i = 0; i < ARRAY_LENGTH(actions); i++)
        expect_life((1u << SECCOMP_CALL_COUNT) - 1, actions[i]);
}

/* The control: without the trial, the call ends the process. */
TEST(the_filter_kills)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        if (!filter(1u << SECCOMP_vmsplice, SECCOMP_RET_KILL_PROCESS))
            _exit(77);
        (void)syscall(SYS_vmsplice, -1, NULL, 0, 0);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("# SKIP no filter can be installed here\n");
        skip();
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

EACH_TEST(scratch_setup, scratch_teardown);
