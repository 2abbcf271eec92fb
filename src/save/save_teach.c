/* SPDX-License-Identifier: BSD-3-Clause */
/* save_teach.c -- what later saves learn from one that has ended: how to take a snapshot, and
 * whether to compress. */
#include <assert.h>

#include "base/base.h"
#include "save/save.h"

/* Was the save delayed by a pause, by spread_ms, or by others that read from the disk? */
static bool was_held(struct sidestep_save *save) REQUIRES(&save->shared.lock)
{
    return save->options.spread_ms != 0 || save->shared.info.backed_off_ns != 0 ||
           (save->shared.info.held_ns != 0 && save->engine->throttle.bytes_per_second == 0);
}

static void teach(struct sidestep_save *save) ON_THREAD(CALLER) REQUIRES(&save->shared.lock)
{
    const struct sidestep_save_info *info = &save->shared.info;

    if (save->teaches)
        snapshot_policy_learn(&save->saver->snapshot_policy, info, save->warmed_pool);
    if (!was_held(save) && info->linked_bytes == 0)
        compression_policy_record_save(&save->saver->compression_policy, save->body_bytes,
                                       info->write_ns, info->stored_bytes != info->raw_bytes,
                                       save->engine->throttle.bytes_per_second);
}

void save_teach(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    assert(!save->has_runner || save->shared.runner_ended);
    if (!save->has_taught && save->shared.info.write_ns != 0)
        teach(save);
    lock_release(&save->shared.lock);
    save->has_taught = true;
}
