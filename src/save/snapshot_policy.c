/* SPDX-License-Identifier: BSD-3-Clause */
/* snapshot_policy.c -- decides for each save: by copy, or by copy-on-write; see
 * snapshot_policy.h. */
#include "save/snapshot_policy.h"

#include <assert.h>
#include <stdio.h>

#include "base/base.h"

#define MAX_HANDLERS 4u
#define GIB ((uint64_t)1 << 30)
/* The cost of copying until a save has measured it: of the call, and of the background.  Smaller
 * saves are not measured. */
#define DEFAULT_COPY_NS_PER_GIB ((uint64_t)80000000)
#define DEFAULT_COPY_CPU_NS_PER_GIB ((uint64_t)60000000)
#define MIN_MEASURED_BYTES ((uint64_t)64 << 20)
/* Smaller differences are noise on a busy machine, and nobody notices them. */
#define TOLERANCE_NS ((uint64_t)20000000)
/* A write that waits costs more than the wait: the way to its handler and back, and the memory
 * bandwidth of the copiers.  Measured: 1.4 to 1.8 times as much. */
#define WAIT_FACTOR 2u
/* A trainer may change its behaviour.  After this many saves by copy, cow is tried again.  The
 * number grows each time that cow is slower again, and shrinks each time that it is not: a cost
 * that varies around that of a copy is then tried rarely.  It begins small, because one save may be
 * an exception. */
#define MIN_BACKOFF_SAVES 2u
#define MIN_COPY_AHEAD_SAVES 8u /* the same for saves whose copiers begin at once */
#define MAX_BACKOFF_SAVES 64u
#define BACKOFF_GROWTH 4u
/* If the trainer writes this often before the disk is done, it rewrites its state. */
#define COPY_AHEAD_FAULTS 4u
/* Threads of the lowest priority that wait so much longer than they run find all processors busy.
 */
#define BUSY_WAIT_FACTOR 4u
/* After this many saves that needed no copiers, unused pool memory is freed.  Not earlier, because
 * allocating it again is slow. */
#define SAVES_BEFORE_TRIM 3u
/* The same for a pool that was touched for copies.  Beside a busy trainer the cost of cow varies
 * around that of a copy, and touching the pool costs far more than they differ. */
#define SAVES_BEFORE_TRIM_TOUCHED 16u

void snapshot_policy_open(struct snapshot_policy *policy)
{
    if (policy->opened || policy->requested == SIDESTEP_SNAPSHOT_COPY)
        return;
    policy->opened = true;
    (void)cow_open(&policy->cow, policy->user_mode_only,
                   (unsigned)min_u64(thread_cpu_count(), MAX_HANDLERS),
                   &policy->unavailable_reason);
}

static unsigned next_backoff(unsigned backoff, unsigned first)
{
    return backoff == 0 ? first : (unsigned)min_u64(BACKOFF_GROWTH * backoff, MAX_BACKOFF_SAVES);
}

/* Only saves whose copiers wait show when the trainer writes to its state.  If a granule was copied
 * first, nobody knows whether the trainer would have written to it. */
static void update_copy_ahead(struct snapshot_policy *policy, uint64_t faults) ON_THREAD(CALLER)
{
    if (policy->copied_ahead || !policy->has_cow_save)
        return;
    policy->last_copy_ahead_backoff =
        faults < COPY_AHEAD_FAULTS
            ? 0
            : next_backoff(policy->last_copy_ahead_backoff, MIN_COPY_AHEAD_SAVES);
    policy->copy_ahead_saves_left = policy->last_copy_ahead_backoff;
    policy->saves_without_faults =
        policy->copy_ahead_saves_left == 0 ? policy->saves_without_faults + 1 : 0;
}

/* Did writes wait because the copiers had not begun?  The copiers of the next save begin at once.
 */
static bool began_late(const struct snapshot_policy *policy, const struct sidestep_save_info *info)
    ON_THREAD(CALLER)
{
    return policy->has_cow_save && !policy->copied_ahead && info->faults >= COPY_AHEAD_FAULTS;
}

bool snapshot_policy_was_busy(const struct sidestep_save_info *info)
{
    return info->cpu_wait_ns > BUSY_WAIT_FACTOR * info->cpu_ns;
}

/* What ${cpu_ns} of processor time in the background cost a trainer beside the save of ${info}. */
static uint64_t trainer_share(const struct sidestep_save_info *info, uint64_t cpu_ns)
{
    return snapshot_policy_was_busy(info) ? cpu_ns / thread_cpu_count() : 0;
}

static uint64_t scale_to(uint64_t bytes, uint64_t per_gib)
{
    return (uint64_t)((double)bytes / (double)GIB * (double)per_gib);
}

static uint64_t scale_to_gib(uint64_t ns, uint64_t bytes)
{
    return (uint64_t)((double)ns / (double)bytes * (double)GIB);
}

static void learn_from_cow(struct snapshot_policy *policy, const struct sidestep_save_info *info,
                           bool warmed_pool) ON_THREAD(CALLER)
{
    bool known = policy->copy_ns_per_gib != 0;
    uint64_t bytes = info->cow_bytes;
    uint64_t copy_ns = known ? policy->copy_ns_per_gib : DEFAULT_COPY_NS_PER_GIB;
    uint64_t copy_cpu_ns = known ? policy->copy_cpu_ns_per_gib : DEFAULT_COPY_CPU_NS_PER_GIB;
    /* With devices it is mostly the time of submitting copies. */
    uint64_t protect_ns = info->device_bytes == 0 ? info->stage_ns : 0;
    bool trimmed = snapshot_policy_can_trim_pool(policy);
    bool next_waits_less = !policy->pool_is_warm || began_late(policy, info);

    policy->pool_is_warm =
        warmed_pool || info->pool_bytes >= bytes - bytes / 16 || (policy->pool_is_warm && !trimmed);
    policy->touched_pool = warmed_pool || (policy->touched_pool && !trimmed);
    if (warmed_pool)
        policy->saves_without_faults = 0;
    update_copy_ahead(policy, info->faults);
    if (policy->requested != SIDESTEP_SNAPSHOT_AUTO) /* no save by copy follows */
        return;
    uint64_t waits_ns = WAIT_FACTOR * info->fault_ns;
    policy->cow_cost_ns = protect_ns + waits_ns + trainer_share(info, info->cpu_ns);
    policy->copy_cost_ns =
        scale_to(bytes, copy_ns) + trainer_share(info, scale_to(bytes, copy_cpu_ns));
    uint64_t most_ns = policy->copy_cost_ns + TOLERANCE_NS;
    if (policy->cow_cost_ns <= most_ns) {
        policy->copy_saves_left = 0;
        policy->last_backoff /= BACKOFF_GROWTH;
    } else if (next_waits_less && policy->cow_cost_ns - waits_ns <= most_ns) {
        policy->copy_saves_left = 0; /* no verdict: try again under the conditions of the next */
    } else if (policy->copy_saves_left == 0 || policy->last_backoff == MIN_BACKOFF_SAVES) {
        /* The first, or a try; or the second, which has touched the pool and says the same. */
        policy->last_backoff = next_backoff(policy->last_backoff, MIN_BACKOFF_SAVES);
        policy->copy_saves_left = policy->last_backoff;
    }
}

void snapshot_policy_learn(struct snapshot_policy *policy, const struct sidestep_save_info *info,
                           bool warmed_pool)
{
    if (info->snapshot == SIDESTEP_SNAPSHOT_COW) {
        learn_from_cow(policy, info, warmed_pool);
        return;
    }
    policy->saves_without_faults = 0;
    if (info->copy_bytes < MIN_MEASURED_BYTES)
        return;
    policy->copy_ns_per_gib = scale_to_gib(info->stage_ns, info->copy_bytes);
    policy->copy_cpu_ns_per_gib = scale_to_gib(info->cpu_ns, info->copy_bytes);
}

bool snapshot_policy_can_use_cow(struct snapshot_policy *policy)
{
    snapshot_policy_open(policy);
    return policy->cow != NULL;
}

void snapshot_policy_note_cow_failure(struct snapshot_policy *policy,
                                      char reason[SNAPSHOT_POLICY_REASON_BYTES])
{
    assert(policy->cow != NULL);
    snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s", cow_failure_reason(policy->cow));
}

/* How many saves in a row must have needed no copiers. */
static unsigned saves_before_trim(const struct snapshot_policy *policy) ON_THREAD(CALLER)
{
    if (policy->touched_pool)
        return SAVES_BEFORE_TRIM_TOUCHED;
    return policy->copy_ahead == SIDESTEP_COPY_AHEAD_NEVER ? 0 : SAVES_BEFORE_TRIM;
}

bool snapshot_policy_can_trim_pool(const struct snapshot_policy *policy)
{
    /* If this save by cow is a try, the saves by copy after it may need the pool again. */
    return policy->last_backoff == 0 && policy->saves_without_faults >= saves_before_trim(policy);
}

uint64_t snapshot_policy_choose_copy_threshold(struct snapshot_policy *policy)
{
    assert(policy->cow != NULL);
    if (policy->copy_ahead != SIDESTEP_COPY_AHEAD_AUTO)
        return policy->copy_ahead == SIDESTEP_COPY_AHEAD_ALWAYS ? 0 : UINT64_MAX;
    policy->copied_ahead = !policy->has_cow_save || policy->copy_ahead_saves_left != 0;
    policy->has_cow_save = true;
    if (policy->copy_ahead_saves_left != 0)
        policy->copy_ahead_saves_left--;
    return policy->copied_ahead ? 0 : COPY_AHEAD_FAULTS;
}

uint64_t snapshot_policy_choose_touch_threshold(const struct snapshot_policy *policy)
{
    if (policy->pool_is_warm)
        return UINT64_MAX;
    if (policy->wants_pool)
        return 0;
    return policy->copy_ahead == SIDESTEP_COPY_AHEAD_NEVER ? UINT64_MAX : COPY_AHEAD_FAULTS;
}

bool snapshot_policy_may_touch_pool(const struct snapshot_policy *policy, uint64_t pool_bytes)
{
    return cgroup_memory_room() / policy->ranks_here >= 2 * pool_bytes;
}

/* Copies are cheaper.  May this save be one?  If the pool is still untouched, this save touches it
 * first. */
static bool can_copy(struct snapshot_policy *policy, const struct image *image, uint64_t pool_bytes)
    ON_THREAD(CALLER)
{
    if (pool_bytes < image->body_bytes) /* the call would wait for the disk */
        return false;
    policy->wants_pool = !policy->pool_is_warm;
    return policy->pool_is_warm;
}

struct cow *snapshot_policy_choose(struct snapshot_policy *policy, const struct image *image,
                                   uint64_t pool_bytes, char reason[SNAPSHOT_POLICY_REASON_BYTES])
{
    struct sidestep_error err = {0};
    uint64_t held_bytes = 0;

    reason[0] = '\0';
    policy->wants_pool = false;
    snapshot_policy_open(policy);
    if (policy->cow == NULL) {
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s",
                 policy->requested == SIDESTEP_SNAPSHOT_COPY
                     ? "copying was asked for (snapshot=copy)"
                     : policy->unavailable_reason.message);
        return NULL;
    }
    if (policy->requested == SIDESTEP_SNAPSHOT_AUTO && policy->copy_saves_left != 0 &&
        can_copy(policy, image, pool_bytes)) {
        policy->copy_saves_left--;
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES,
                 "by cow the program lost %.1f ms, and a copy costs it %.1f ms",
                 (double)policy->cow_cost_ns / 1e6, (double)policy->copy_cost_ns / 1e6);
        return NULL;
    }
    if (cow_prepare(policy->cow, image, pool_bytes, &held_bytes, &err) != SIDESTEP_OK) {
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s", err.message);
        return NULL;
    }
    snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s", cow_eager_copy_reason(policy->cow));
    if (held_bytes == 0 && reason[0] == '\0')
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "the state is too small to be protected");
    return held_bytes != 0 ? policy->cow : NULL;
}

void snapshot_policy_report_stats(const struct cow_stats *stats, struct sidestep_save_info *info)
{
    info->cow_bytes = stats->held_bytes;
    info->copy_bytes = stats->copied_bytes;
    info->faults = stats->faults;
    info->faults_waited = stats->faults_waited;
    info->faults_disk = stats->faults_disk;
    info->fault_bytes = stats->fault_bytes;
    info->fault_ns = stats->fault_ns;
    info->fault_max_ns = stats->fault_max_ns;
}

void snapshot_policy_report_event(const struct sidestep_save_info *info, json_t *fields)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"cow_bytes", info->cow_bytes},         {"copy_bytes", info->copy_bytes},
        {"release_ns", info->release_ns},       {"faults", info->faults},
        {"faults_waited", info->faults_waited}, {"faults_disk", info->faults_disk},
        {"fault_bytes", info->fault_bytes},     {"fault_ns", info->fault_ns},
        {"fault_max_ns", info->fault_max_ns},   {"pool_bytes", info->pool_bytes},
        {"ahead_bytes", info->ahead_bytes},     {"cpu_ns", info->cpu_ns},
        {"cpu_wait_ns", info->cpu_wait_ns},
    };
    bool by_cow = info->snapshot == SIDESTEP_SNAPSHOT_COW;

    (void)json_object_set_new(fields, "snapshot", json_string(by_cow ? "cow" : "copy"));
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        (void)json_object_set_new(fields, numbers[i].name,
                                  json_integer((json_int_t)numbers[i].value));
    (void)json_object_set_new(fields, "copy_reason", json_string(info->copy_reason));
    (void)json_object_set_new(fields, "pool_reason", json_string(info->pool_reason));
}
