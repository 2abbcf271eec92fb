/* SPDX-License-Identifier: BSD-3-Clause */
/* priority.c -- see priority.h. */
#include "base/priority.h"

#include <linux/ioprio.h>
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

static bool set_policy(pid_t thread, int policy)
{
    struct sched_param none = {0};

    return !fault_hit("priority.policy") && sched_setscheduler(thread, policy, &none) == 0;
}

static bool set_io_class(pid_t thread, int class)
{
    return !fault_hit("priority.io") && seccomp_survives(SECCOMP_ioprio_set) &&
           syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, IOPRIO_PRIO_VALUE(class, 0)) == 0;
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
    rights->idle_io = set_io_class(self, IOPRIO_CLASS_IDLE);
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
        (void)set_io_class(thread, IOPRIO_CLASS_IDLE);
    if (rights->raise)
        (void)set_policy(thread, SCHED_IDLE);
    else
        (void)setpriority(PRIO_PROCESS, (id_t)thread, LOWERED_NICE);
}

void priority_raise(pid_t thread, const struct priority_rights *rights)
{
    if (rights->idle_io)
        (void)set_io_class(thread, IOPRIO_CLASS_NONE);
    if (rights->raise)
        (void)set_policy(thread, SCHED_OTHER);
}
