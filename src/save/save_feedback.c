/* SPDX-License-Identifier: BSD-3-Clause */
/* save_feedback.c -- updates the queue depth and the compression policy from the speed of a
 * save. */
#include <assert.h>

#include "save/save.h"

/* Was the save delayed by a pause, by spread_ms, or by others that read from the disk? */
static bool was_held(struct sidestep_save *save) REQUIRES(&save->shared.lock)
{
    return save->options.spread_ms != 0 || save->shared.info.backed_off_ns != 0 ||
           (save->shared.info.held_ns != 0 && save->engine->throttle.bytes_per_second == 0);
}

void save_record_queue_depth(struct sidestep_save *save)
{
    const struct sidestep_save_info *info = &save->shared.info;
    struct sidestep_engine *engine = save->engine;

    lock_acquire(&save->shared.lock);
    if (!was_held(save) && info->linked_bytes == 0 && engine->throttle.bytes_per_second == 0 &&
        save->compressor == NULL && (info->flags & SIDESTEP_SAVE_URING) != 0)
        queue_depth_record_save(&save->saver->queue_depth, info->bytes_total, info->write_ns);
    lock_release(&save->shared.lock);
}

void save_update_compression_policy(struct sidestep_save *save)
{
    const struct sidestep_save_info *info = &save->shared.info;
    struct sidestep_engine *engine = save->engine;

    lock_acquire(&save->shared.lock);
    assert(!save->has_runner || save->shared.runner_ended);
    if (!save->has_updated_policy && info->write_ns != 0 && !was_held(save) &&
        info->linked_bytes == 0)
        compression_policy_record_save(&save->saver->compression_policy, save->body_bytes,
                                       info->write_ns, info->stored_bytes != info->raw_bytes,
                                       engine->throttle.bytes_per_second);
    lock_release(&save->shared.lock);
    save->has_updated_policy = true;
}
