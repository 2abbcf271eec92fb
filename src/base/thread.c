/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c -- see thread.h. */
#include "base/thread.h"

#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/checked.h"
#include "base/fault.h"

enum sidestep_status thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
                                  void *argument, struct sidestep_error *err)
{
    sigset_t all, before;

    assert(strlen(name) <= 15); /* the limit of pthread_setname_np() */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = fault_hit("thread.start") ? errno : pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return error_set(err, SIDESTEP_ENOMEM, failure, HERE, "start thread '%s'", name);
    (void)pthread_setname_np(*thread, name);
    return SIDESTEP_OK;
}

unsigned thread_cpu_quota(void)
{
    static atomic_uint known; /* plus 1 */
    struct cgroup_limits limits;

    if (atomic_load(&known) == 0) {
        cgroup_read("", &limits);
        atomic_store(&known, limits.cpus + 1);
    }
    return atomic_load(&known) - 1;
}

unsigned thread_cpu_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    unsigned count = (unsigned)max_u64(1, (uint64_t)CPU_COUNT(&set)), quota = thread_cpu_quota();
    return quota != 0 && quota < count ? quota : count;
}

unsigned thread_choose_count(unsigned wanted, unsigned least, unsigned most)
{
    return wanted != 0 ? wanted : (unsigned)max_u64(least, min_u64(most, thread_cpu_count()));
}
