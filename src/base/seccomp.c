/* SPDX-License-Identifier: BSD-3-Clause */
/* seccomp.c -- lets a child make system calls for which a filter may kill; see seccomp.h. */
#include "base/seccomp.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)64 << 10)

static const struct {
    long number;
    const char *name;
} calls[SECCOMP_CALL_COUNT] = {
#define SECCOMP_ROW(call) {SYS_##call, #call},
    SECCOMP_CALLS(SECCOMP_ROW)
#undef SECCOMP_ROW
};

/* What the child shows, in memory that both see. */
struct trial {
    volatile unsigned at;
    volatile bool survived[SECCOMP_CALL_COUNT];
};

/* Runs in the child.  Nothing here may change memory but ${trial}, errno and this stack. */
static int make_calls(void *context)
{
    struct trial *trial = context;

    while (trial->at < SECCOMP_CALL_COUNT) {
        (void)syscall(calls[trial->at].number, -1L, -1L, -1L, -1L, -1L, -1L);
        trial->survived[trial->at] = true;
        trial->at++;
    }
    (void)syscall(SYS_exit_group, 0);
    return 0;
}

/* Before Linux 5.16, a core dump kills all processes with the same memory. */
static bool may_share_memory(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;

    return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 16));
}

/* Make the calls from ${trial->at} on, in a child, until one kills it.  False: no child could be
 * made. */
static bool run_child(struct trial *trial, char *stack)
{
    sigset_t all, before;
    int share = may_share_memory() ? CLONE_VM | CLONE_VFORK : 0;

    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) /* no handler runs in the child */
        return false;
    pid_t child = clone(make_calls, stack + STACK_BYTES, share, trial);
    while (child > 0 && waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return child > 0;
}

static void try_all(atomic_uint *known)
{
    size_t bytes = STACK_BYTES + sizeof(struct trial);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned found = 1u << SECCOMP_CALL_COUNT;

    if (memory == MAP_FAILED)
        return;
    struct trial *trial = (struct trial *)(void *)(memory + STACK_BYTES);
    for (; trial->at < SECCOMP_CALL_COUNT; trial->at++)
        if (!run_child(trial, memory))
            break;
    bool is_complete = trial->at >= SECCOMP_CALL_COUNT;
    for (unsigned i = 0; i < SECCOMP_CALL_COUNT; i++)
        found |= (unsigned)trial->survived[i] << i;
    (void)munmap(memory, bytes);
    if (is_complete)
        atomic_store(known, found);
}

bool seccomp_survives(enum seccomp_call call)
{
    /* A bit for each call, and one more if they are known.  Threads find the same. */
    static atomic_uint known;

    if (atomic_load(&known) == 0) {
        if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
            return true; /* there is no filter, but there may be one later */
        try_all(&known);
    }
    /* If nothing could be tried, the call is not made. */
    if ((atomic_load(&known) & 1u << call) != 0)
        return true;
    errno = EPERM;
    return false;
}

const char *seccomp_call_name(enum seccomp_call call)
{
    return calls[call].name;
}
