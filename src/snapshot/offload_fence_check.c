/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload_fence_check.c -- finds missing fences: checks that late tensors, which the program
 * promised to write only behind fences, are not written before; see offload.h.
 *
 * The call reads them, and waits for that.  They are read again when the checkpoint has been
 * written, or when the first fence is set and the work that the program submitted before is done.
 * Their hashes are compared.  They do not go into the checkpoint.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "codec/codec.h"
#include "snapshot/offload_internal.h"

#define READ_BYTES ((uint64_t)4 << 20)
#define NS_PER_S 1000000000u

static bool is_checked(const struct offload *o, size_t k)
{
    return o->item_lanes[k] >= 0 && offload_is_fenced(o, k);
}

/* Hash the data of item ${k}, read through ${buffer}.  Its device is entered. */
static enum sidestep_status digest_item(struct offload *o, size_t k, uint8_t *buffer,
                                        uint64_t *digest, struct sidestep_error *err)
{
    uint64_t bytes = o->image->items[k].footer.data_bytes, chain[2] = {0};
    int32_t device = o->lanes[o->item_lanes[k]].device;
    void *stream = o->devices->devices[device].out;

    for (uint64_t at = 0; at < bytes; at += READ_BYTES) {
        uint64_t end = min_u64(at + READ_BYTES, bytes);
        enum sidestep_status status = offload_submit_part(o, k, at, end, buffer, err);
        /* Wait even after a failure, because the buffer is reused or freed. */
        if (status == SIDESTEP_OK)
            status = devices_synchronize(o->devices, device, stream, err);
        else
            (void)devices_synchronize(o->devices, device, stream, NULL);
        TRY(status);
        chain[1] = hash_block(buffer, end - at);
        chain[0] = hash_block(chain, sizeof(chain));
    }
    *digest = chain[0];
    return SIDESTEP_OK;
}

static enum sidestep_status digest_checked(struct offload *o, uint64_t *digests,
                                           struct sidestep_error *err)
{
    OWNED uint8_t *buffer = memory_new(1, READ_BYTES);
    enum sidestep_status status = SIDESTEP_OK;
    int before;

    if (buffer == NULL)
        return FAIL_NOMEM(err, READ_BYTES);
    for (size_t k = 0; k < o->image->tensor_count && status == SIDESTEP_OK; k++) {
        if (!is_checked(o, k))
            continue;
        TRY(devices_enter(o->devices, o->lanes[o->item_lanes[k]].device, &before, err));
        status = digest_item(o, k, buffer, &digests[k], err);
        devices_leave(o->devices, before);
    }
    return status;
}

enum sidestep_status offload_fence_check_begin(struct offload *o, struct sidestep_error *err)
{
    assert(o->fence_check_ms != 0);
    o->digests = arena_new(&o->arena, o->image->tensor_count, sizeof(*o->digests));
    if (o->digests == NULL)
        return FAIL_NOMEM(err, o->image->tensor_count * sizeof(*o->digests));
    TRY(offload_wait_for_program(o, err));
    return digest_checked(o, o->digests, err);
}

void offload_fence_check_trigger(struct offload *o)
{
    lock_acquire(&o->shared.lock);
    o->shared.fenced = true;
    lock_wake_all(&o->shared.changed);
    lock_release(&o->shared.lock);
}

/* Give the program time to write too early. */
static void wait_for_fence(struct offload *o)
{
    uint64_t until_ns = clock_now(clock_system()) + (uint64_t)o->fence_check_ms * 1000000;

    lock_acquire(&o->shared.lock);
    while (!o->shared.fenced && lock_wait_until(&o->shared.lock, &o->shared.changed, until_ns)) {
    }
    lock_release(&o->shared.lock);
}

enum sidestep_status offload_fence_check_end(struct offload *o, struct sidestep_error *err)
{
    OWNED uint64_t *digests = memory_new(o->image->tensor_count, sizeof(*digests));

    assert(o->digests != NULL); /* offload_fence_check_begin() was called */
    if (digests == NULL)
        return FAIL_NOMEM(err, o->image->tensor_count * sizeof(*digests));
    wait_for_fence(o);
    TRY(digest_checked(o, digests, err));
    for (size_t k = 0; k < o->image->tensor_count; k++)
        if (is_checked(o, k) && digests[k] != o->digests[k])
            return FAIL(err, SIDESTEP_EINVAL,
                        "tensor '%s' of device %d was written to after the call and before a "
                        "fence, though it has SIDESTEP_TENSOR_FENCED (found by "
                        "SIDESTEP_FENCE_DEBUG)",
                        o->image->items[k].footer.name, o->lanes[o->item_lanes[k]].device);
    return SIDESTEP_OK;
}
