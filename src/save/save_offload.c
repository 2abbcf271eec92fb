/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_offload.c -- saves of tensors on devices: submits their copies in the call, and has the
 * fences of sidestep.h.
 *
 * snapshot/offload.h copies the tensors.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "save/save.h"

/* A fence that waits until the last copy is submitted checks this often whether the save failed. */
#define FENCE_SLICE_MS 20u

bool save_has_device_tensors(struct sidestep_engine *engine,
                             const struct sidestep_state_dict *state)
{
    int32_t device = -1;

    if (!devices_detect_driver(&engine->devices))
        return false;
    for (size_t i = 0; i < state->count && device < 0; i++) {
        const struct state_entry *entry = &state->entries[i];
        if (!entry->is_object && entry->reader == NULL && box_volume(&entry->box) != 0)
            (void)devices_locate(&engine->devices, (uint64_t)(uintptr_t)entry->data, 1, &device,
                                 NULL);
    }
    return device >= 0;
}

static void set_staged(struct sidestep_save *save)
{
    save_advance(save, SIDESTEP_SAVE_STAGED, NULL);
    save_advance(save, SIDESTEP_SAVE_RELEASED, NULL);
}

/* All windows are staged.  Called on a thread of the pipeline. */
static void on_offloaded(void *context)
{
    struct sidestep_save *save = context;
    struct sidestep_save_info *info = &save->shared.info;
    struct cow_stats stats;
    uint64_t now = clock_now(save->engine->clock);

    if (save->pipeline.cow != NULL)
        cow_get_stats(save->pipeline.cow, &stats);
    lock_acquire(&save->shared.lock);
    if (save->pipeline.cow != NULL)
        snapshot_policy_report_stats(&stats, info);
    info->device_ns = now - save->staged_ns;
    save->staged_ns = now;
    lock_release(&save->shared.lock);
    if (!save->checks_fences)
        set_staged(save);
}

enum sidestep_status save_end_fence_check(struct sidestep_save *save, struct sidestep_error *err)
{
    if (!save->checks_fences)
        return SIDESTEP_OK;
    TRY(offload_fence_check_end(&save->saver->offload, err));
    TRACE(save, "no fenced tensor was written to before its fence");
    set_staged(save);
    return SIDESTEP_OK;
}

/* Fill in what the save info says of devices. */
static void set_device_info(struct sidestep_save *save)
{
    struct sidestep_engine *engine = save->engine;
    struct sidestep_save_info *info = &save->shared.info;

    info->device_bytes = save->saver->offload.bytes;
    info->fenced_bytes = save->saver->offload.late_bytes;
    info->copy_bytes = cow_host_tensor_bytes(&save->slot->image);
    info->snapshot = SIDESTEP_SNAPSHOT_COPY;
    if (engine->devices.pinned != NULL)
        return;
    info->flags |= SIDESTEP_SAVE_PAGEABLE;
    snprintf(info->pin_reason, sizeof(info->pin_reason), "%s", engine->devices.pin_refused.message);
}

/* Submit the copies.  False: the call has to stage all windows itself, or the save has failed. */
static bool submit_copies(struct sidestep_save *save, bool blocking)
{
    struct pipeline *p = &save->pipeline;
    struct sidestep_error why = {0};
    enum sidestep_status status = SIDESTEP_OK;
    uint8_t *eager = NULL;

    assert(p->offload == NULL && save->saver->offload.bytes != 0);
    save->checks_fences = !blocking && save->saver->offload.fence_check_ms != 0 &&
                          save->saver->offload.late_bytes != 0;
    if (save->checks_fences)
        status = offload_fence_check_begin(&save->saver->offload, &why);
    if (status != SIDESTEP_OK) {
        /* no copy has begun */
    } else if (!p->shares_pool) {
        status = offload_begin(&save->saver->offload, p->pool->bytes, &why);
    } else {
        if (!blocking)
            eager = pipeline_reserve_eager(p, offload_eager_bytes(&save->saver->offload));
        status = offload_begin_shared_pool(&save->saver->offload, eager, &why);
    }
    p->offload = &save->saver->offload;
    if (status != SIDESTEP_OK) {
        offload_drain(&save->saver->offload);
        pipeline_fail(p, &why);
    }
    bool in_background = status == SIDESTEP_OK && !blocking && (!p->shares_pool || eager != NULL);
    save->checks_fences = save->checks_fences && in_background;
    return in_background;
}

/* Protect the tensors in host memory, if they can be. */
static void protect_host_tensors(struct sidestep_save *save) ON_THREAD(CALLER)
{
    struct sidestep_engine *engine = save->engine;
    struct sidestep_save_info *info = &save->shared.info;
    struct cow_stats stats;

    if (cow_host_tensor_bytes(&save->slot->image) == 0)
        return;
    if (save->pipeline.shares_pool) {
        snprintf(info->copy_reason, sizeof(info->copy_reason), "%s", SAVE_REASON_SMALL_POOL);
        return;
    }
    struct cow *cow = snapshot_policy_choose(&save->saver->snapshot_policy, &save->slot->image,
                                             save->slot->pool.length, info->copy_reason);
    if (cow == NULL)
        return;
    if (!pipeline_protect(&save->pipeline, cow, engine->stagers, on_offloaded, save)) {
        snapshot_policy_note_cow_failure(&save->saver->snapshot_policy, info->copy_reason);
        return;
    }
    save->saver->snapshot_policy.copied_ahead = true;
    save->teaches = true;
    cow_get_stats(cow, &stats);
    cow_add_protect_failure(cow, info->copy_reason, sizeof(info->copy_reason));
    snapshot_policy_report_stats(&stats, info);
    info->snapshot = SIDESTEP_SNAPSHOT_COW;
}

bool save_offload(struct sidestep_save *save, bool blocking, uint64_t began_ns)
{
    struct sidestep_engine *engine = save->engine;
    struct sidestep_save_info *info = &save->shared.info;
    uint64_t from = clock_now(engine->clock);

    set_device_info(save);
    if (!submit_copies(save, blocking))
        return false;
    protect_host_tensors(save);
    pipeline_defer_staging(&save->pipeline, engine->stagers, on_offloaded, save);
    save->staged_ns = began_ns; /* the start of the call, until the save is STAGED */
    lock_acquire(&save->shared.lock);
    uint64_t now = clock_now(engine->clock);
    info->stage_ns = now - from;
    info->call_ns = now - began_ns;
    lock_release(&save->shared.lock);
    pipeline_start_staging(&save->pipeline, 0);
    return true;
}

/* ---- fences */

int32_t sidestep_device_of(const void *address)
{
    struct devices devices = {0};
    int32_t device = -1;

    if (!devices_detect_driver(&devices))
        return -1;
    (void)devices_locate(&devices, (uint64_t)(uintptr_t)address, 1, &device, NULL);
    devices_close(&devices);
    return device;
}

/* Wait until the copies up to ${turn} are submitted.  False: the save has failed, and no copy is in
 * flight. */
static bool await_submission(struct sidestep_save *save, uint32_t turn)
{
    struct offload *offload = &save->saver->offload;

    assert(save->pipeline.offload == offload);
    while (!offload_wait_submitted(offload, turn, FENCE_SLICE_MS))
        if (atomic_load(&save->pipeline.stop)) {
            offload_drain(offload);
            return false;
        }
    return true;
}

static enum sidestep_status fence(struct sidestep_save *save, const struct sidestep_stream *stream,
                                  uint32_t turn, struct sidestep_error *err)
{
    struct sidestep_engine *engine = save->engine;
    uint64_t from = clock_now(engine->clock);
    bool waits = !offload_wait_submitted(&save->saver->offload, turn, 0);
    enum sidestep_status status = SIDESTEP_OK;

    /* The caller waits for a thread in the background now: for one that submits, or, if windows
     * share the pool, for those that write them. */
    if (waits)
        sidestep_save_hurry(save);
    if (await_submission(save, turn))
        status = offload_fence(&save->saver->offload, stream, turn, err);
    lock_acquire(&save->shared.lock);
    save->shared.info.fence_ns += clock_now(engine->clock) - from;
    lock_release(&save->shared.lock);
    return WRAP(status, err, "fence of save '%s'", save->commit.path);
}

/* With SIDESTEP_FENCE_DEBUG: wait until the work submitted to ${stream} is done and the fences are
 * checked.  If the check fails, the save fails, and its end reports that. */
static enum sidestep_status fence_checked(struct sidestep_save *save,
                                          const struct sidestep_stream *stream,
                                          struct sidestep_error *err)
{
    struct offload *offload = &save->saver->offload;
    enum sidestep_status status = offload_synchronize_stream(offload, stream, err);

    offload_fence_check_trigger(offload);
    sidestep_save_hurry(save);
    lock_acquire(&save->shared.lock);
    while (save->shared.state < SIDESTEP_SAVE_STAGED)
        lock_wait(&save->shared.lock, &save->shared.changed);
    lock_release(&save->shared.lock);
    return status;
}

enum sidestep_status sidestep_fence_until(struct sidestep_save *save,
                                          const struct sidestep_stream *stream, uint32_t turn,
                                          struct sidestep_error *err)
{
    if (save == NULL || stream == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL", save == NULL ? "save" : "stream");
    TRY(engine_check(save->engine, err));
    if (stream->reserved != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "stream: reserved is %u", stream->reserved);
    if (save->pipeline.offload == NULL || save_get_state(save) >= SIDESTEP_SAVE_STAGED)
        return SIDESTEP_OK;
    return save->checks_fences ? fence_checked(save, stream, err) : fence(save, stream, turn, err);
}

enum sidestep_status sidestep_fence(struct sidestep_save *save,
                                    const struct sidestep_stream *stream,
                                    struct sidestep_error *err)
{
    return sidestep_fence_until(save, stream, UINT32_MAX, err);
}
