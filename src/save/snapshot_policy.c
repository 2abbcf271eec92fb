/* SPDX-License-Identifier: BSD-3-Clause */
/* snapshot_policy.c -- see snapshot_policy.h. */
#include "save/snapshot_policy.h"

#include <stdio.h>

#include "base/base.h"

#define MAX_HANDLERS 4u
#define GIB ((uint64_t)1 << 30)
/* Until a save has shown what copying takes here; saves that are smaller show nothing. */
#define COPY_NS_A_GIB ((uint64_t)100000000)
#define TELLING_BYTES ((uint64_t)64 << 20)
/* What a busy machine makes of either way, and nobody feels. */
#define SLACK_NS ((uint64_t)20000000)
/* A trainer may change its ways: after so many saves by copy cow is tried again, and twice as many
 * each time that this was in vain.  Few at first, since the first save pays for the pool, too. */
#define FIRST_COPIES 2u
#define FIRST_AHEADS 8u /* the same for copiers that wait */
#define LAST_PATIENCE 64u
/* So many writes of the trainer before the disk is done mean that it rewrites its state. */
#define SOON_FAULTS 4u
/* After so many saves that needed no copiers their memory is given back: it is slow to come by. */
#define CALM_SAVES 3u

void snapshot_policy_open(struct snapshot_policy *hold)
{
    if (hold->opened || hold->wanted == SIDESTEP_SNAPSHOT_COPY)
        return;
    hold->opened = true;
    hold->learnt = true;
    (void)cow_open(&hold->cow, hold->user_mode_only,
                   (unsigned)min_u64(thread_cpu_count(), MAX_HANDLERS), &hold->refused);
}

void snapshot_policy_close(struct snapshot_policy *hold)
{
    cow_close(&hold->cow);
}

static unsigned more_patience(unsigned patience, unsigned first)
{
    return patience == 0 ? first : (unsigned)min_u64(2 * patience, LAST_PATIENCE);
}

/* When copies are made shows only in saves whose copiers wait: of what was copied in time nobody
 * knows who would have written to it. */
static void learn_ahead(struct snapshot_policy *hold, const struct cow_stats *stats)
{
    if (hold->ahead || !hold->tried)
        return;
    hold->ahead_patience =
        stats->faults < SOON_FAULTS ? 0 : more_patience(hold->ahead_patience, FIRST_AHEADS);
    hold->aheads = hold->ahead_patience;
    hold->calm = hold->aheads == 0 ? hold->calm + 1 : 0;
}

/* From the last save by cow. */
static void learn(struct snapshot_policy *hold)
{
    struct cow_stats stats;

    if (hold->learnt)
        return;
    hold->learnt = true;
    cow_get_stats(hold->cow, &stats);
    learn_ahead(hold, &stats);
    uint64_t a_gib = hold->copy_ns_a_gib != 0 ? hold->copy_ns_a_gib : COPY_NS_A_GIB;
    hold->lost_ns = hold->protect_ns + stats.fault_ns;
    hold->copy_ns = (uint64_t)((double)stats.held_bytes / (double)GIB * (double)a_gib);
    if (hold->lost_ns <= hold->copy_ns + SLACK_NS) {
        hold->patience = 0;
        return;
    }
    hold->patience = more_patience(hold->patience, FIRST_COPIES);
    hold->copies = hold->patience;
}

bool snapshot_policy_can_use_cow(struct snapshot_policy *hold)
{
    snapshot_policy_open(hold);
    return hold->cow != NULL;
}

void snapshot_policy_note_cow_failure(struct snapshot_policy *hold,
                                      char reason[SNAPSHOT_POLICY_REASON_BYTES])
{
    hold->learnt = true;
    snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s", cow_failure_reason(hold->cow));
}

void snapshot_policy_record_protect(struct snapshot_policy *hold, uint64_t ns)
{
    hold->protect_ns = ns;
}

void snapshot_policy_record_copy(struct snapshot_policy *hold, uint64_t bytes, uint64_t ns)
{
    if (bytes >= TELLING_BYTES)
        hold->copy_ns_a_gib = (uint64_t)((double)ns / (double)bytes * (double)GIB);
}

bool snapshot_policy_can_trim_pool(const struct snapshot_policy *hold)
{
    return hold->copy_ahead == SIDESTEP_COPY_AHEAD_NEVER || hold->calm >= CALM_SAVES;
}

uint64_t snapshot_policy_choose_copy_threshold(struct snapshot_policy *hold)
{
    if (hold->copy_ahead != SIDESTEP_COPY_AHEAD_AUTO)
        return hold->copy_ahead == SIDESTEP_COPY_AHEAD_ALWAYS ? 0 : UINT64_MAX;
    hold->ahead = !hold->tried || hold->aheads != 0;
    hold->tried = true;
    if (hold->aheads != 0)
        hold->aheads--;
    return hold->ahead ? 0 : SOON_FAULTS;
}

void snapshot_policy_force_copy_ahead(struct snapshot_policy *hold)
{
    hold->ahead = true;
}

struct cow *snapshot_policy_choose(struct snapshot_policy *hold, const struct image *image,
                                   uint64_t pool_bytes, char reason[SNAPSHOT_POLICY_REASON_BYTES])
{
    struct sidestep_error err = {0};
    uint64_t held_bytes = 0;

    reason[0] = '\0';
    snapshot_policy_open(hold);
    if (hold->cow == NULL) {
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s",
                 hold->wanted == SIDESTEP_SNAPSHOT_COPY ? "it was asked for"
                                                        : hold->refused.message);
        return NULL;
    }
    learn(hold);
    if (hold->wanted == SIDESTEP_SNAPSHOT_AUTO && hold->copies != 0) {
        hold->copies--;
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES,
                 "by cow the program lost %.1f ms, and copying takes %.1f ms",
                 (double)hold->lost_ns / 1e6, (double)hold->copy_ns / 1e6);
        return NULL;
    }
    if (cow_prepare(hold->cow, image, pool_bytes, &held_bytes, &err) != SIDESTEP_OK) {
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s", err.message);
        return NULL;
    }
    snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "%s", cow_eager_copy_reason(hold->cow));
    if (held_bytes == 0 && reason[0] == '\0')
        snprintf(reason, SNAPSHOT_POLICY_REASON_BYTES, "it is too small to be protected");
    if (held_bytes == 0)
        return NULL;
    hold->learnt = false;
    hold->protect_ns = 0;
    return hold->cow;
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
        {"ahead_bytes", info->ahead_bytes},     {"live_bytes", info->live_bytes},
    };
    bool by_cow = info->snapshot == SIDESTEP_SNAPSHOT_COW;

    (void)json_object_set_new(fields, "snapshot", json_string(by_cow ? "cow" : "copy"));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        (void)json_object_set_new(fields, numbers[i].name,
                                  json_integer((json_int_t)numbers[i].value));
    (void)json_object_set_new(fields, "copy_reason", json_string(info->copy_reason));
}
