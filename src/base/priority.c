/* SPDX-License-Identifier: BSD-3-Clause */
/* priority.c -- see priority.h. */
#include "base/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/seccomp.h"
#include "base/thread.h"

/* A thread with this nice value gets about a tenth of a busy processor.  So a save still ends if
 * its priority cannot be raised. */
#define LOWERED_NICE 10

/* Of ioprio_set(2). Debian 11 has no header for them. */
#define IO_PRIORITY_OF_THREAD 1
#define IO_CLASS_NONE 0
#define IO_CLASS_IDLE 3
#define IO_CLASS_SHIFT 13

static bool set_policy(pid_t thread, int policy)
{
    struct sched_param none = {0};

    return !fault_hit("priority.policy") && sched_setscheduler(thread, policy, &none) == 0;
}

static bool set_io_class(pid_t thread, int class)
{
    return !fault_hit("priority.io") && seccomp_survives(SECCOMP_ioprio_set) &&
           syscall(SYS_ioprio_set, IO_PRIORITY_OF_THREAD, thread, class << IO_CLASS_SHIFT) == 0;
}

pid_t priority_self(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void *probe(void *argument)
{
    struct priority_rights *rights = argument;
    pid_t self = priority_self();

    if (sched_getscheduler(0) != SCHED_OTHER) /* the user chose another class: keep it */
        return NULL;
    rights->idle_io = set_io_class(self, IO_CLASS_IDLE);
    rights->idle = set_policy(self, SCHED_IDLE);
    rights->raise = rights->idle && set_policy(self, SCHED_OTHER);
    return NULL;
}

struct priority_rights priority_probe(void)
{
    struct priority_rights rights = {0};
    pthread_t thread;

    if (thread_start(&thread, "sidestep-probe", probe, &rights, NULL) == SIDESTEP_OK)
        (void)pthread_join(thread, NULL);
    return rights;
}

void priority_lower(pid_t thread, const struct priority_rights *rights)
{
    if (rights->idle_io)
        (void)set_io_class(thread, IO_CLASS_IDLE);
    if (rights->raise)
        (void)set_policy(thread, SCHED_IDLE);
    else
        (void)setpriority(PRIO_PROCESS, (id_t)thread, LOWERED_NICE);
}

void priority_raise(pid_t thread, const struct priority_rights *rights)
{
    if (rights->idle_io)
        (void)set_io_class(thread, IO_CLASS_NONE);
    if (rights->raise)
        (void)set_policy(thread, SCHED_OTHER);
}
