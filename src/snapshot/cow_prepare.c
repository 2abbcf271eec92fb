/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_prepare.c -- see cow.h: what is to be protected is planned, and registered with the kernel;
 * both last from save to save, as long as the state's memory stays the same. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "snapshot/cow_internal.h"

/* So much is copied aside at most where the pool could be whole. */
#define MAX_ASIDE_BYTES ((uint64_t)64 << 20)

static bool is_planned(struct cow *cow)
{
    pthread_mutex_lock(&cow->shared.lock);
    bool planned = cow->shared.planned;
    pthread_mutex_unlock(&cow->shared.lock);
    return planned;
}

static enum sidestep_status check_alive(struct cow *cow, struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    pthread_mutex_lock(&cow->shared.lock);
    assert(cow->shared.left == 0);
    if (cow->shared.dead)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED, "write protection failed in an earlier save");
    else if (cow->shared.distrusted)
        status = FAIL(err, SIDESTEP_EUNSUPPORTED,
                      "memory changed in spite of its write protection in an earlier save");
    pthread_mutex_unlock(&cow->shared.lock);
    return status;
}

/* Is the plan made for just these places? */
static enum sidestep_status plan_fits(struct cow *cow, const struct image *image,
                                      uint64_t pool_bytes, const struct bypass *bypass, bool *fits,
                                      struct sidestep_error *err)
{
    *fits = false;
    if (!is_planned(cow) || cow->plan.item_count != image->count ||
        cow->planned_pool_bytes != pool_bytes || (cow->plan.shared && image->away) ||
        !cow_plan_matches_windows(&cow->plan, image) || !cow_plan_is_valid(&cow->plan, bypass))
        return SIDESTEP_OK;
    OWNED struct cow_item_memory *places = memory_new(image->count, sizeof(*places));
    if (places == NULL)
        return FAIL_NOMEM(err, image->count * sizeof(*places));
    cow_plan_locate_items(image, places);
    *fits = true;
    for (size_t i = 0; i < image->count && *fits; i++) {
        const struct cow_item_memory *now = &places[i], *then = &cow->plan.places[i];
        *fits = now->address == then->address && now->bytes == then->bytes &&
                now->file_offset == then->file_offset && now->flags == then->flags;
    }
    return SIDESTEP_OK;
}

/* What cannot be registered is no part of the plan. */
static void register_ranges(struct cow *cow, struct cow_plan *plan)
{
    size_t kept = 0;

    for (size_t i = 0; i < plan->range_count; i++) {
        struct cow_range *range = &plan->ranges[i];
        int failed = uffd_register(&cow->uffd, range->begin, range->end);
        if (failed == 0)
            plan->ranges[kept++] = *range;
        else if (plan->reason[0] == '\0')
            cow_plan_set_reason(plan, "",
                                failed == EBUSY ? "its memory has another userfaultfd"
                                                : "its memory cannot be registered");
    }
    plan->range_count = kept;
}

/* Room for ${count} of ${size} bytes, in a mapping of its own; what was there is lost. */
static enum sidestep_status make_room(void **at, size_t *room, size_t count, size_t size,
                                      struct sidestep_error *err)
{
    if (count <= *room)
        return SIDESTEP_OK;
    size_t bytes = cow_round_up_to_page(count * size);
    void *map = cow_map_anonymous(bytes);
    if (map == NULL)
        return FAIL_NOMEM(err, bytes);
    if (*at != NULL)
        (void)munmap(*at, *room * size);
    *at = map;
    *room = bytes / size;
    return SIDESTEP_OK;
}

static enum sidestep_status make_cells(struct cow *cow, const struct cow_plan *plan,
                                       struct sidestep_error *err)
{
    void *cells = cow->shared.cells, *pieces = cow->shared.pieces;

    enum sidestep_status status = make_room(&cells, &cow->shared.cells_room, plan->granule_count,
                                            sizeof(*cow->shared.cells), err);
    if (status == SIDESTEP_OK)
        status = make_room(&pieces, &cow->shared.pieces_room, plan->piece_count, 1, err);
    cow->shared.cells = cells;
    cow->shared.pieces = pieces;
    return status;
}

/* Windows share the pool where little has to be copied aside; else it must be whole, as it must for
 * what comes from devices. */
static enum sidestep_status fill_plan(struct cow_plan *plan, const struct image *image,
                                      uint64_t pool_bytes, struct sidestep_error *err)
{
    TRY(cow_plan_build_pieces(plan, image, !image->away, err));
    if (image->away)
        return SIDESTEP_OK;
    uint64_t aside = round_up(plan->aside_bytes, IMAGE_ALIGN),
             two = 2 * image_largest_window(image);
    bool whole = pool_bytes >= image->body_bytes;
    if (pool_bytes >= two && aside <= pool_bytes - two && (!whole || aside <= MAX_ASIDE_BYTES))
        return SIDESTEP_OK;
    if (whole)
        return cow_plan_build_pieces(plan, image, false, err);
    return FAIL(err, SIDESTEP_ENOMEM,
                "pool_bytes is too small: %llu MiB of the state cannot be protected",
                (unsigned long long)(aside >> 20));
}

static enum sidestep_status plan_anew(struct cow *cow, const struct image *image,
                                      uint64_t pool_bytes, const struct bypass *bypass,
                                      struct sidestep_error *err)
{
    struct cow_plan plan = {0};

    enum sidestep_status status = cow_plan_build_ranges(&plan, image, bypass, err);
    if (status == SIDESTEP_OK) {
        /* From here on events of the new ranges count, so the word goes out first. */
        cow_lock_idle(cow);
        cow_unregister_ranges(cow);
        cow->plan.range_count = 0;
        cow->shared.planned = true;
        pthread_mutex_unlock(&cow->shared.lock);
        register_ranges(cow, &plan);
        status = fill_plan(&plan, image, pool_bytes, err);
    }
    cow_lock_idle(cow);
    if (status == SIDESTEP_OK)
        status = make_cells(cow, &plan, err);
    if (status == SIDESTEP_OK) {
        for (size_t g = 0; g < plan.granule_count; g++)
            cow->shared.cells[g] = (struct cow_granule_control){0};
        cow_plan_release(&cow->plan);
        cow->plan = plan;
        cow->planned_pool_bytes = pool_bytes;
    } else {
        cow->shared.planned = false;
    }
    pthread_mutex_unlock(&cow->shared.lock);
    if (status != SIDESTEP_OK)
        cow_plan_release(&plan);
    return status;
}

enum sidestep_status cow_prepare(struct cow *cow, const struct image *image, uint64_t pool_bytes,
                                 uint64_t *held_bytes, struct sidestep_error *err)
{
    struct bypass bypass;
    bool fits;

    TRY(check_alive(cow, err));
    TRY(bypass_read(&bypass, err));
    TRY(plan_fits(cow, image, pool_bytes, &bypass, &fits, err));
    if (!fits)
        TRY(plan_anew(cow, image, pool_bytes, &bypass, err));
    cow_plan_set_pinned_reason(&cow->plan, image, bypass.pinned_bytes);
    *held_bytes = cow->plan.held_bytes;
    return SIDESTEP_OK;
}

const char *cow_eager_copy_reason(const struct cow *cow)
{
    return cow->plan.reason;
}
