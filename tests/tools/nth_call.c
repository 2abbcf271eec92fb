/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nth_call.c -- runs a program, and kills it at its N-th system call on files, or makes that call
 * fail.
 *
 *      nth_call [-k N] [-e ERRNO] [-d] [-s] [-a] [-l LIST] PROGRAM [ARGUMENT...]
 *
 *      -k N      at call N (from 1); 0: at none
 *      -e ERRNO  the call fails with this number; without it: SIGKILL before the call
 *      -d        the call is carried out, and then reported to have failed; only calls that change
 *                something are counted
 *      -s        all later calls fail too
 *      -a        count from the start of the program, not only where it says
 *      -l LIST   write the names of all counted calls to this file, one per line; "*" precedes a
 *                call that was made to fail, or at which the program was killed
 *
 * Calls of all threads are counted together (strace counts per thread), without -a between the two
 * calls with which saver_tool encloses its work. A seccomp filter stops the program only at these
 * calls, so all others run at full speed. Exit status: the program's, or 128 + its signal.
 */
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <unistd.h>

#define FROM_HERE (-4242)
#define TO_HERE (-4243)
#define COUNTED (sizeof(counted) / sizeof(counted[0]))

static const struct {
    long number;
    const char *name;
} counted[] = {
#define CALL(name)                                                                                 \
    {                                                                                              \
        SYS_##name, #name                                                                          \
    }
    CALL(openat),     CALL(openat2), CALL(mkdirat),   CALL(renameat2),      CALL(unlinkat),
    CALL(linkat),     CALL(fsync),   CALL(fdatasync), CALL(write),          CALL(pwrite64),
    CALL(read),       CALL(pread64), CALL(fallocate), CALL(ftruncate),      CALL(close),
    CALL(fstat),      CALL(statx),   CALL(fstatfs),   CALL(fcntl),          CALL(getdents64),
    CALL(readlinkat), CALL(getcwd),  CALL(fadvise64), CALL(io_uring_setup), CALL(io_uring_enter),
#ifdef SYS_open
    CALL(open),       CALL(mkdir),   CALL(rename),    CALL(unlink),         CALL(rmdir),
    CALL(stat),       CALL(lstat),   CALL(link),      CALL(readlink),
#endif
#ifdef SYS_newfstatat
    CALL(newfstatat),
#endif
#ifdef SYS_renameat
    CALL(renameat),
#endif
#undef CALL
};

static struct {
    unsigned long nth;
    int error;
    bool done, sticky;
    FILE *list;
    bool counting;
    unsigned long calls;
} plan;

static void die(const char *what)
{
    perror(what);
    exit(125);
}

/* Does the call change files or names? */
static bool changes(const char *name, const uint64_t *arguments)
{
    static const char *const looks[] = {
        "openat2", "open",  "read",       "pread64",        "fstat",     "statx",
        "fstatfs", "fcntl", "getdents64", "getcwd",         "fadvise64", "io_uring_setup",
        "stat",    "lstat", "readlinkat", "io_uring_enter", "readlink",  "newfstatat"};

    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
        if (strcmp(name, looks[i]) == 0)
            return false;
    return strcmp(name, "openat") != 0 || (arguments[2] & O_CREAT) != 0;
}

static const char *name_of(uint64_t number)
{
    for (size_t i = 0; i < COUNTED; i++)
        if ((uint64_t)counted[i].number == number)
            return counted[i].name;
    return NULL;
}

/* Return ${result} to the program.  ${skips}: without making the call. */
static void set_result(pid_t thread, long result, bool skips)
{
#if defined(__x86_64__)
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &regs) != 0)
        return; /* the thread was killed meanwhile */
    if (skips)
        regs.orig_rax = (unsigned long long)-1;
    regs.rax = (unsigned long long)result;
    (void)ptrace(PTRACE_SETREGS, thread, NULL, &regs);
#elif defined(__aarch64__)
    struct user_regs_struct regs;
    int none = -1;
    struct iovec call = {&none, sizeof(none)}, all = {&regs, sizeof(regs)};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &all) != 0)
        return;
    regs.regs[0] = (unsigned long long)result;
    (void)ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &all);
    if (skips)
        (void)ptrace(PTRACE_SETREGSET, thread, (void *)0x404 /* NT_ARM_SYSTEM_CALL */, &call);
#else
#error "no way to skip a system call on this machine is known here"
#endif
}

/* A thread is about to make a call.  True: it has to stop again when the call is done. */
static bool at_entry(pid_t program, pid_t thread, uint64_t number, const uint64_t *arguments)
{
    const char *name = name_of(number);

    if (number == SYS_close && (int)arguments[0] == FROM_HERE)
        plan.counting = true;
    else if (number == SYS_close && (int)arguments[0] == TO_HERE)
        plan.counting = false;
    else if (plan.counting && name != NULL && (!plan.done || changes(name, arguments))) {
        plan.calls++;
        bool hit =
            plan.calls == plan.nth || (plan.sticky && plan.nth != 0 && plan.calls > plan.nth);
        if (plan.list != NULL)
            fprintf(plan.list, "%s%s\n", hit ? "*" : "", name);
        if (hit && plan.error == 0)
            kill(program, SIGKILL);
        else if (hit && !plan.done)
            set_result(thread, -plan.error, true);
        return hit && plan.done;
    }
    return false;
}

/* True: the thread has to stop again when the call is done. */
static bool at_call(pid_t program, pid_t thread)
{
    struct __ptrace_syscall_info info;

    return ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof(info), &info) > 0 &&
           info.op == PTRACE_SYSCALL_INFO_SECCOMP &&
           at_entry(program, thread, info.seccomp.nr, (const uint64_t *)info.seccomp.args);
    /* Otherwise it was killed meanwhile. */
}

/* A call is done: if it has succeeded, report that it failed. */
static void at_exit(pid_t thread)
{
    struct __ptrace_syscall_info info;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof(info), &info) > 0 &&
        info.op == PTRACE_SYSCALL_INFO_EXIT && !info.exit.is_error)
        set_result(thread, -plan.error, false);
}

/* Trace the program until it ends; returns its exit status. */
static int trace_until_exit(pid_t program)
{
    for (;;) {
        int status, signal = 0, go_on = PTRACE_CONT;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0)
            die("nth_call: wait");
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread != program)
                continue;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8))
            go_on = at_call(program, thread) ? PTRACE_SYSCALL : PTRACE_CONT;
        else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) /* PTRACE_O_TRACESYSGOOD */
            at_exit(thread);
        else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP)
            signal = WSTOPSIG(status);
        (void)ptrace(go_on, thread, NULL, (void *)(intptr_t)signal);
    }
}

/* Make the calling program stop for its tracer at each counted call. */
static void stop_at_counted_calls(void)
{
    struct sock_filter filter[COUNTED + 3];
    struct sock_fprog program = {.len = COUNTED + 3, .filter = filter};

    filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             (uint32_t)offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < COUNTED; i++)
        filter[1 + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)counted[i].number, (uint8_t)(COUNTED - i), 0);
    filter[COUNTED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[COUNTED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        die("nth_call: seccomp");
}

int main(int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "+k:e:dsal:")) != -1) {
        if (option == 'k')
            plan.nth = strtoul(optarg, NULL, 10);
        else if (option == 'e')
            plan.error = atoi(optarg);
        else if (option == 'd')
            plan.done = true;
        else if (option == 'a')
            plan.counting = true;
        else if (option == 's')
            plan.sticky = true;
        else if (option == 'l' && (plan.list = fopen(optarg, "we")) == NULL)
            die(optarg);
    }
    if (optind >= argc)
        die("nth_call: no program is given");
    pid_t program = fork();
    if (program < 0)
        die("nth_call: fork");
    if (program == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            die("nth_call: ptrace");
        raise(SIGSTOP);
        stop_at_counted_calls();
        execv(argv[optind], argv + optind);
        die(argv[optind]);
    }
    int status;
    if (waitpid(program, &status, 0) != program || !WIFSTOPPED(status))
        die("nth_call: the program does not start");
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL |
                   PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SETOPTIONS, program, NULL, (void *)options) != 0 ||
        ptrace(PTRACE_CONT, program, NULL, NULL) != 0)
        die("nth_call: ptrace");
    status = trace_until_exit(program);
    if (plan.list != NULL && fclose(plan.list) != 0)
        die("nth_call: list");
    return status;
}
