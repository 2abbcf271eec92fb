/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_prepare.c -- plans what to protect, and registers it with the kernel; see cow.h.  Both are
 * reused by later saves as long as the memory of the state stays the same. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* With a larger eager copy, windows do not share a pool that could hold all of them. */
#define MAX_EAGER_BYTES ((uint64_t)64 << 20)

static bool has_valid_plan(struct cow *cow)
{
    lock_acquire(&cow->shared.lock);
    bool is_valid = cow->shared.plan_valid;
    lock_release(&cow->shared.lock);
    return is_valid;
}

static enum sidestep_status check_usable(struct cow *cow, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&cow->shared.lock);
    assert(cow->shared.granules_left == 0);
    if (cow->shared.disabled)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "write protection failed in an earlier save");
    else if (cow->shared.unreliable)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED,
                      "memory changed in spite of its write protection in an earlier save");
    lock_release(&cow->shared.lock);
    return status;
}

/* Was the plan made for exactly this memory? */
static enum sidestep_status plan_fits(struct cow *cow, const struct image *image,
                                      uint64_t pool_bytes, const struct bypass *bypass, bool *fits,
                                      struct sidestep_error *err) ON_THREAD(CALLER)
{
    *fits = false;
    if (!has_valid_plan(cow) || cow->plan.item_count != image->count ||
        cow->planned_pool_bytes != pool_bytes ||
        (cow->plan.shares_pool && image->has_device_items) ||
        !cow_plan_matches_windows(&cow->plan, image) || !cow_plan_is_valid(&cow->plan, bypass))
        return SIDESTEP_OK;
    OWNED struct cow_item_memory *current = memory_new(image->count, sizeof(*current));
    if (current == NULL)
        return FAIL_NOMEM(err, image->count * sizeof(*current));
    cow_plan_locate_items(image, current);
    *fits = true;
    for (size_t i = 0; i < image->count && *fits; i++) {
        const struct cow_item_memory *now = &current[i], *then = &cow->plan.items[i];
        *fits = now->address == then->address && now->bytes == then->bytes &&
                now->file_offset == then->file_offset && now->flags == then->flags;
    }
    return SIDESTEP_OK;
}

static void set_register_reason(struct cow_plan *plan, const struct image *image,
                                const struct cow_range *range, int failed)
{
    char why[64];

    if (failed == EBUSY)
        snprintf(why, sizeof(why), "its memory has another userfaultfd");
    else
        snprintf(why, sizeof(why), "it cannot be registered: %s", ERRNO_TEXT(failed));
    cow_plan_set_reason_at(plan, image, range->begin, range->end, 1, why);
}

/* Remove ranges that cannot be registered from the plan. */
static void register_ranges(struct cow *cow, struct cow_plan *plan, const struct image *image)
{
    size_t kept = 0;

    assert(cow->plan.range_count == 0); /* the previous ranges are unregistered */
    for (size_t i = 0; i < plan->range_count; i++) {
        struct cow_range *range = &plan->ranges[i];
        int failed = uffd_register(&cow->uffd, range->begin, range->end);
        if (failed == 0)
            plan->ranges[kept++] = *range;
        else
            set_register_reason(plan, image, range, failed);
    }
    plan->range_count = kept;
}

/* Reserve space for ${count} elements of ${size} bytes, in a mapping of its own.  The contents are
 * lost. */
static enum sidestep_status reserve_mapping(void **at, size_t *capacity, size_t count, size_t size,
                                            struct sidestep_error *err)
{
    if (count <= *capacity)
        return SIDESTEP_OK;
    size_t bytes = cow_round_up_to_page(count * size);
    void *map = cow_map_anonymous(bytes);
    if (map == NULL)
        return FAIL_NOMEM(err, bytes);
    if (*at != NULL)
        (void)munmap(*at, *capacity * size);
    *at = map;
    *capacity = bytes / size;
    return SIDESTEP_OK;
}

static enum sidestep_status reserve_controls(struct cow *cow, const struct cow_plan *plan,
                                             struct sidestep_error *err) REQUIRES(&cow->shared.lock)
{
    void *controls = cow->shared.controls, *pieces = cow->shared.pieces;

    enum sidestep_status status =
        reserve_mapping(&controls, &cow->shared.controls_capacity, plan->granule_count,
                        sizeof(*cow->shared.controls), err);
    if (status == SIDESTEP_OK)
        status = reserve_mapping(&pieces, &cow->shared.pieces_capacity, plan->piece_count, 1, err);
    cow->shared.controls = controls;
    cow->shared.pieces = pieces;
    return status;
}

/* Windows share the pool if the eager copy is small.  Otherwise, and if tensors are on devices,
 * every window needs a slot of its own. */
static enum sidestep_status fill_plan(struct cow_plan *plan, const struct image *image,
                                      uint64_t pool_bytes, struct sidestep_error *err)
{
    TRY(cow_plan_build_pieces(plan, image, !image->has_device_items, err));
    if (image->has_device_items)
        return SIDESTEP_OK;
    uint64_t eager_bytes = round_up(plan->eager_bytes, image_align()),
             two_windows = 2 * image_largest_window(image);
    bool whole = pool_bytes >= image->body_bytes;
    if (pool_bytes >= two_windows && eager_bytes <= pool_bytes - two_windows &&
        (!whole || eager_bytes <= MAX_EAGER_BYTES))
        return SIDESTEP_OK;
    if (whole)
        return cow_plan_build_pieces(plan, image, false, err);
    return FAIL(err, SIDESTEP_ENOMEM,
                "pool_bytes is too small: %llu MiB of the state cannot be protected",
                (unsigned long long)(eager_bytes >> 20));
}

static enum sidestep_status make_plan(struct cow *cow, const struct image *image,
                                      uint64_t pool_bytes, const struct bypass *bypass,
                                      struct sidestep_error *err) ON_THREAD(CALLER)
{
    struct cow_plan plan = {0};

    enum sidestep_status status = cow_plan_build_ranges(&plan, image, bypass, err);
    if (status == SIDESTEP_OK) {
        /* Set plan_valid before the new ranges are registered, because their events may clear it.
         */
        cow_lock_idle(cow);
        cow_unregister_ranges(cow);
        cow->plan.range_count = 0;
        cow->shared.plan_valid = true;
        lock_release(&cow->shared.lock);
        register_ranges(cow, &plan, image);
        status = fill_plan(&plan, image, pool_bytes, err);
    }
    cow_lock_idle(cow);
    assert(cow->shared.granules_left == 0); /* no snapshot uses the old plan */
    if (status == SIDESTEP_OK)
        status = reserve_controls(cow, &plan, err);
    if (status == SIDESTEP_OK) {
        for (size_t g = 0; g < plan.granule_count; g++)
            cow->shared.controls[g] = (struct cow_granule_control){0};
        cow_plan_release(&cow->plan);
        cow->plan = plan;
        cow->planned_pool_bytes = pool_bytes;
    } else {
        cow->shared.plan_valid = false;
    }
    lock_release(&cow->shared.lock);
    if (status != SIDESTEP_OK)
        cow_plan_release(&plan);
    return status;
}

enum sidestep_status cow_prepare(struct cow *cow, const struct image *image, uint64_t pool_bytes,
                                 uint64_t *held_bytes, struct sidestep_error *err)
{
    struct bypass bypass;
    bool fits;

    TRY(check_usable(cow, err));
    TRY(bypass_read(&bypass, err));
    TRY(plan_fits(cow, image, pool_bytes, &bypass, &fits, err));
    if (!fits)
        TRY(make_plan(cow, image, pool_bytes, &bypass, err));
    cow_plan_set_pinned_reason(&cow->plan, image, bypass.pinned_bytes);
    *held_bytes = cow->plan.held_bytes;
    return SIDESTEP_OK;
}

const char *cow_eager_copy_reason(const struct cow *cow)
{
    return cow->plan.reason;
}
