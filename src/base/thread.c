/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c -- see thread.h. */
#include "base/thread.h"

#include <assert.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* The second number of schedstat; see sched-stats.rst of the kernel's documentation.  The first one
 * is up to a tick old for a thread that runs. */
void thread_time_read(struct thread_time *time)
{
    struct timespec ran = {0};
    char text[64];
    unsigned long long waited = 0;
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        ssize_t length = read(fd, text, sizeof(text) - 1);
        text[length > 0 ? length : 0] = '\0';
        (void)sscanf(text, "%*u %llu", &waited);
        (void)close(fd);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    time->ran = (uint64_t)ran.tv_sec * 1000000000u + (uint64_t)ran.tv_nsec;
    time->waited = waited;
}

unsigned thread_choose_count(unsigned wanted, unsigned least, unsigned most)
{
    return wanted != 0 ? wanted : (unsigned)max_u64(least, min_u64(most, thread_cpu_count()));
}
