/* SPDX-License-Identifier: BSD-3-Clause */
/* hold.c -- see hold.h. */
#include "engine/hold.h"

#include <stdio.h>

#include "base/checked.h"
#include "base/thread.h"

#define MAX_HANDLERS 4u
/* Where the trainer waited for the copies of more than this, copying all at once is no worse. */
#define WORTH_PERCENT 50u
/* A trainer may change its ways: after so many saves by copy cow is tried again. */
#define FIRST_PATIENCE 8u
#define LAST_PATIENCE 64u
/* So many writes of the trainer before the disk is done mean that it rewrites its state. */
#define SOON_FAULTS 4u
/* After so many saves that needed no copiers their memory is given back: it is slow to come by. */
#define CALM_SAVES 3u

void hold_open(struct hold *hold)
{
    if (hold->opened || hold->wanted == SIDESTEP_SNAPSHOT_COPY)
        return;
    hold->opened = true;
    hold->learnt = true;
    (void)cow_open(&hold->cow, hold->user_mode_only,
                   (unsigned)min_u64(thread_cpu_count(), MAX_HANDLERS), &hold->refused);
}

void hold_close(struct hold *hold)
{
    cow_close(&hold->cow);
}

/* Twice as many saves as the last time. */
static unsigned more_patience(unsigned patience)
{
    return patience == 0 ? FIRST_PATIENCE : (unsigned)min_u64(2 * patience, LAST_PATIENCE);
}

/* When copies are made shows only in saves whose copiers wait: of what was copied in time nobody
 * knows who would have written to it. */
static void learn_ahead(struct hold *hold, const struct cow_stats *stats)
{
    if (hold->ahead || !hold->tried)
        return;
    hold->ahead_patience = stats->faults < SOON_FAULTS ? 0 : more_patience(hold->ahead_patience);
    hold->aheads = hold->ahead_patience;
    hold->calm = hold->aheads == 0 ? hold->calm + 1 : 0;
}

/* From the last save by cow. */
static void learn(struct hold *hold)
{
    struct cow_stats stats;

    if (hold->learnt)
        return;
    hold->learnt = true;
    cow_get_stats(hold->cow, &stats);
    learn_ahead(hold, &stats);
    hold->lost_percent = (unsigned)(stats.fault_bytes * 100 / max_u64(stats.held_bytes, 1));
    if (hold->lost_percent <= WORTH_PERCENT) {
        hold->patience = 0;
        return;
    }
    hold->patience = more_patience(hold->patience);
    hold->copies = hold->patience;
}

bool hold_expects(struct hold *hold)
{
    hold_open(hold);
    return hold->cow != NULL;
}

void hold_refuse(struct hold *hold, char reason[HOLD_REASON_BYTES])
{
    hold->learnt = true;
    snprintf(reason, HOLD_REASON_BYTES,
             "its memory could not be protected, nor copied into what "
             "pool_bytes allows");
}

bool hold_is_calm(const struct hold *hold)
{
    return hold->copy_ahead == SIDESTEP_COPY_AHEAD_NEVER || hold->calm >= CALM_SAVES;
}

uint64_t hold_patience(struct hold *hold)
{
    if (hold->copy_ahead != SIDESTEP_COPY_AHEAD_AUTO)
        return hold->copy_ahead == SIDESTEP_COPY_AHEAD_ALWAYS ? 0 : UINT64_MAX;
    hold->ahead = !hold->tried || hold->aheads != 0;
    hold->tried = true;
    if (hold->aheads != 0)
        hold->aheads--;
    return hold->ahead ? 0 : SOON_FAULTS;
}

void hold_ahead(struct hold *hold)
{
    hold->ahead = true;
}

struct cow *hold_choose(struct hold *hold, const struct image *image, uint64_t pool_bytes,
                        char reason[HOLD_REASON_BYTES])
{
    struct sidestep_error err = {0};
    uint64_t held_bytes = 0;

    reason[0] = '\0';
    hold_open(hold);
    if (hold->cow == NULL) {
        snprintf(reason, HOLD_REASON_BYTES, "%s",
                 hold->wanted == SIDESTEP_SNAPSHOT_COPY ? "it was asked for"
                                                        : hold->refused.message);
        return NULL;
    }
    learn(hold);
    if (hold->wanted == SIDESTEP_SNAPSHOT_AUTO && hold->copies != 0) {
        hold->copies--;
        snprintf(reason, HOLD_REASON_BYTES,
                 "by cow, %u %% of it was copied while the program waited", hold->lost_percent);
        return NULL;
    }
    if (cow_prepare(hold->cow, image, pool_bytes, &held_bytes, &err) != SIDESTEP_OK) {
        snprintf(reason, HOLD_REASON_BYTES, "%s", err.message);
        return NULL;
    }
    snprintf(reason, HOLD_REASON_BYTES, "%s", cow_reason(hold->cow));
    if (held_bytes == 0 && reason[0] == '\0')
        snprintf(reason, HOLD_REASON_BYTES, "it is too small to be protected");
    if (held_bytes == 0)
        return NULL;
    hold->learnt = false;
    return hold->cow;
}

void hold_report(const struct cow_stats *stats, struct sidestep_save_info *info)
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

void hold_event(const struct sidestep_save_info *info, json_t *fields)
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
