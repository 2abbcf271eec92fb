/* SPDX-License-Identifier: BSD-3-Clause */
/* throttle.c -- sets the priority, bandwidth limit, pauses and back-off of background threads; see
 * throttle.h. */
#include "engine/throttle.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"

#define NS_PER_S 1000000000u
#define SLICE_NS (NS_PER_S / 20) /* how soon a failed save is noticed */
#define LATE_NS (NS_PER_S / 100)

/* Parse a list like "0-3,8". */
static bool parse_cpus(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (const char *at = text;;) {
        char *end;
        if (*at < '0' || *at > '9')
            return false;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            at = end + 1;
            if (*at < '0' || *at > '9')
                return false;
            last = strtoul(at, &end, 10);
        }
        if (last < first || last >= CPU_SETSIZE)
            return false;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, cpus);
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        at = end + 1;
    }
}

static enum sidestep_status set_cpus(struct throttle *n, const char *cpus,
                                     struct sidestep_error *err)
{
    cpu_set_t allowed;

    if (!parse_cpus(cpus, &n->cpus))
        return FAIL(err, SIDESTEP_EINVAL,
                    "engine options: background_cpus '%s' is not a list of processors like 0-3,8",
                    cpus);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
        CPU_AND(&n->cpus, &n->cpus, &allowed);
    if (CPU_COUNT(&n->cpus) == 0)
        return FAIL(err, SIDESTEP_EINVAL,
                    "engine options: this process may use none of background_cpus '%s'", cpus);
    n->pinned = true;
    return SIDESTEP_OK;
}

enum sidestep_status throttle_init(struct throttle *n, bool lower, uint64_t bytes_per_second,
                                   const char *cpus, struct sidestep_error *err)
{
    *n = (struct throttle){.lower = lower, .bytes_per_second = bytes_per_second};
    if (lower)
        n->rights = priority_probe();
    lock_init(&n->shared.lock, LOCK_THROTTLE);
    lock_condition_init(&n->shared.changed);
    return cpus != NULL ? set_cpus(n, cpus, err) : SIDESTEP_OK;
}

void throttle_destroy(struct throttle *n)
{
    lock_alone(&n->shared.lock);
    assert(n->shared.count == 0);
    lock_condition_destroy(&n->shared.changed);
    lock_destroy(&n->shared.lock);
}

void throttle_attach_thread(struct throttle *n)
{
    pid_t self = priority_self();

    if (n->pinned)
        (void)sched_setaffinity(self, sizeof(n->cpus), &n->cpus);
    lock_acquire(&n->shared.lock);
    assert(n->shared.count < THROTTLE_MAX_THREADS);
    n->shared.threads[n->shared.count++] = self;
    if (n->lower && n->shared.waiting == 0)
        priority_lower(self, &n->rights);
    lock_release(&n->shared.lock);
}

void throttle_detach_thread(struct throttle *n)
{
    pid_t self = priority_self();
    size_t i = 0;

    lock_acquire(&n->shared.lock);
    while (n->shared.threads[i] != self)
        i++;
    assert(i < n->shared.count);
    n->shared.threads[i] = n->shared.threads[--n->shared.count];
    if (n->lower)
        priority_raise(self, &n->rights);
    lock_release(&n->shared.lock);
}

static void change_all(struct throttle *n,
                       void (*change)(pid_t thread, const struct priority_rights *rights))
    REQUIRES(&n->shared.lock)
{
    for (size_t i = 0; n->lower && i < n->shared.count; i++)
        change(n->shared.threads[i], &n->rights);
    lock_wake_all(&n->shared.changed);
}

void throttle_wait_begin(struct throttle *n)
{
    lock_acquire(&n->shared.lock);
    if (n->shared.waiting++ == 0)
        change_all(n, priority_raise);
    lock_release(&n->shared.lock);
}

void throttle_wait_end(struct throttle *n)
{
    lock_acquire(&n->shared.lock);
    assert(n->shared.waiting > 0);
    if (--n->shared.waiting == 0)
        change_all(n, priority_lower);
    lock_release(&n->shared.lock);
}

void throttle_restore_priority(struct throttle *n)
{
    pid_t self = priority_self();

    lock_acquire(&n->shared.lock);
    if (n->lower && n->shared.waiting == 0)
        priority_lower(self, &n->rights);
    lock_release(&n->shared.lock);
}

void throttle_set_paused(struct throttle *n, bool paused)
{
    lock_acquire(&n->shared.lock);
    n->shared.paused = paused;
    lock_wake_all(&n->shared.changed);
    lock_release(&n->shared.lock);
}

bool throttle_is_idle(struct throttle *n)
{
    lock_acquire(&n->shared.lock);
    bool is_idle = n->shared.waiting == 0 && !n->shared.paused;
    lock_release(&n->shared.lock);
    return is_idle;
}

void throttle_watch_disk(struct throttle *n, uint64_t device)
{
    if (!n->keeps_pace)
        disk_activity_watch_disk(&n->shared.readers, device);
}

bool throttle_should_back_off(const struct throttle *n, const atomic_bool *hurry, uint64_t now_ns)
{
    return !n->keeps_pace && atomic_load(&n->shared.waiting) == 0 &&
           (hurry == NULL || !atomic_load(hurry)) &&
           disk_activity_has_readers(&n->shared.readers, now_ns);
}

/* Sample whether others read from the disk, if it is time. */
static void sample_readers(struct throttle *n, uint64_t now)
{
    uint64_t bytes;

    lock_acquire(&n->shared.lock);
    bool due = disk_activity_claim_sample(&n->shared.readers, now);
    lock_release(&n->shared.lock);
    if (!due || !disk_activity_read_counter(n->shared.readers.path, &bytes))
        return;
    lock_acquire(&n->shared.lock);
    disk_activity_record_sample(&n->shared.readers, bytes, now);
    lock_release(&n->shared.lock);
}

/* The time in ns that ${bytes} must wait from ${now}.  0: they are counted, and may be written. */
static uint64_t wait_time(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second, bool hurry,
                          uint64_t now) REQUIRES(&n->shared.lock)
{
    uint64_t rate = n->bytes_per_second;

    if (n->shared.waiting == 0 && !hurry) {
        if (n->shared.paused)
            return SLICE_NS;
        if (rate == 0 || (bytes_per_second != 0 && bytes_per_second < rate))
            rate = bytes_per_second;
    }
    if (rate == 0)
        return 0;
    if (n->shared.next_ns > now)
        return n->shared.next_ns - now;
    /* A thread that wakes up less than LATE_NS late keeps its share. */
    uint64_t from = now - n->shared.next_ns < LATE_NS ? n->shared.next_ns : now;
    n->shared.next_ns = from + (uint64_t)((double)bytes * NS_PER_S / (double)rate);
    return 0;
}

bool throttle_try_acquire(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second,
                          const atomic_bool *hurry)
{
    uint64_t now = clock_now(clock_system());

    sample_readers(n, now);
    lock_acquire(&n->shared.lock);
    uint64_t left = wait_time(n, bytes, bytes_per_second, hurry != NULL && atomic_load(hurry), now);
    lock_release(&n->shared.lock);
    return left == 0;
}

uint64_t throttle_acquire(struct throttle *n, uint64_t bytes, uint64_t bytes_per_second,
                          const atomic_bool *hurry, const atomic_bool *stop)
{
    uint64_t began = clock_now(clock_system()), now = began, left;

    sample_readers(n, now);
    lock_acquire(&n->shared.lock);
    while (!atomic_load(stop) &&
           (left = wait_time(n, bytes, bytes_per_second, hurry != NULL && atomic_load(hurry),
                             now)) != 0) {
        (void)lock_wait_until(&n->shared.lock, &n->shared.changed, now + min_u64(left, SLICE_NS));
        now = clock_now(clock_system());
    }
    lock_release(&n->shared.lock);
    return now - began;
}
