/* SPDX-License-Identifier: BSD-3-Clause */
/* pool_slots.c -- assigns slots of the pool to windows; see pool_slots.h. */
#include "snapshot/pool_slots.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

#define NOWHERE UINT64_MAX

/* Bytes [begin, end) of the pool. */
struct extent {
    uint64_t begin;
    uint64_t end;
};

struct region {
    uint64_t begin;
    uint64_t end;
    uint64_t high;       /* no byte from here on was ever used */
    struct extent *free; /* by offset, never adjacent; capacity: one more than there are windows */
    size_t count;
};

struct pool_slots {
    /* Constant. */
    const struct image *image;
    size_t mapped_bytes;
    /* Set by pool_slots_set_...(). */
    uint8_t *pool;
    bool dedicated;
    struct {
        struct lock lock LOCK_KIND(POOL_SLOTS);
        uint64_t *at GUARDED_BY(&lock); /* per window: offset in the pool, or NOWHERE */
        struct region reserve GUARDED_BY(&lock);
        struct region rest GUARDED_BY(&lock);
    } shared;
};

enum sidestep_status pool_slots_new(struct pool_slots **out, const struct image *image,
                                    struct sidestep_error *err)
{
    size_t count = image->window_count, extents = (count + 1) * sizeof(struct extent);
    size_t bytes = sizeof(struct pool_slots) + count * sizeof(uint64_t) + 2 * extents;
    void *map = fault_hit("memory") ? MAP_FAILED
                                    : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *out = NULL;
    if (map == MAP_FAILED)
        return FAIL_NOMEM(err, bytes);
    struct pool_slots *slots = map;
    uint64_t *at = (void *)(slots + 1);
    struct extent *free = (void *)(at + count);
    slots->image = image;
    slots->mapped_bytes = bytes;
    lock_alone(&slots->shared.lock);
    slots->shared.at = at;
    slots->shared.reserve.free = free;
    slots->shared.rest.free = free + count + 1;
    lock_init(&slots->shared.lock, LOCK_POOL_SLOTS);
    *out = slots;
    return SIDESTEP_OK;
}

void pool_slots_free(struct pool_slots **out)
{
    struct pool_slots *slots = *out;

    if (slots == NULL)
        return;
    *out = NULL;
    lock_destroy(&slots->shared.lock);
    (void)munmap(slots, slots->mapped_bytes);
}

static void region_set(struct region *region, uint64_t begin, uint64_t end)
{
    assert(begin <= end);
    region->begin = region->high = begin;
    region->end = end;
    region->count = 0;
    if (begin < end)
        region->free[region->count++] = (struct extent){.begin = begin, .end = end};
}

void pool_slots_set_dedicated(struct pool_slots *slots, uint8_t *pool)
{
    lock_alone(&slots->shared.lock);
    slots->pool = pool;
    slots->dedicated = true;
    for (size_t i = 0; i < slots->image->window_count; i++)
        slots->shared.at[i] = slots->image->windows[i].offset;
    region_set(&slots->shared.reserve, 0, 0);
    region_set(&slots->shared.rest, 0, 0);
    slots->shared.rest.high = slots->image->body_bytes;
}

void pool_slots_set_shared(struct pool_slots *slots, uint8_t *pool, uint64_t bytes,
                           uint64_t reserve)
{
    assert(reserve <= bytes && bytes % image_align() == 0 && reserve % image_align() == 0);
    lock_alone(&slots->shared.lock);
    slots->pool = pool;
    slots->dedicated = false;
    for (size_t i = 0; i < slots->image->window_count; i++)
        slots->shared.at[i] = NOWHERE;
    region_set(&slots->shared.reserve, 0, reserve);
    region_set(&slots->shared.rest, reserve, bytes);
}

/* ---- regions */

static uint64_t region_acquire(struct region *region, uint64_t bytes)
{
    assert(bytes != 0 && bytes % image_align() == 0);
    for (size_t i = 0; i < region->count; i++) {
        struct extent *free = &region->free[i];
        uint64_t at = free->begin;

        if (free->end - at < bytes)
            continue;
        free->begin += bytes;
        if (free->begin == free->end)
            memmove(free, free + 1, (--region->count - i) * sizeof(*free));
        region->high = max_u64(region->high, at + bytes);
        return at;
    }
    return NOWHERE;
}

static void region_release(struct region *region, uint64_t begin, uint64_t end)
{
    size_t i = 0;

    while (i < region->count && region->free[i].begin < begin)
        i++;
    struct extent *before = i != 0 ? &region->free[i - 1] : NULL;
    struct extent *after = i < region->count ? &region->free[i] : NULL;
    bool touches_before = before != NULL && before->end == begin;
    bool touches_after = after != NULL && after->begin == end;

    assert(region->begin <= begin && begin < end && end <= region->high);
    assert(before == NULL || before->end <= begin);
    assert(after == NULL || end <= after->begin);
    if (touches_before && touches_after) {
        before->end = after->end;
        memmove(after, after + 1, (--region->count - i) * sizeof(*after));
    } else if (touches_before) {
        before->end = end;
    } else if (touches_after) {
        after->begin = begin;
    } else {
        struct extent *hole = &region->free[i];
        memmove(hole + 1, hole, (region->count++ - i) * sizeof(*hole));
        *hole = (struct extent){.begin = begin, .end = end};
    }
}

/* ---- slots */

static uint8_t *slot_address(const struct pool_slots *slots, size_t i) REQUIRES(&slots->shared.lock)
{
    assert(i < slots->image->window_count);
    uint64_t at = slots->shared.at[i];

    return at != NOWHERE ? slots->pool + at : NULL;
}

uint8_t *pool_slots_get(struct pool_slots *slots, size_t i)
{
    lock_acquire(&slots->shared.lock);
    uint8_t *slot = slot_address(slots, i);
    lock_release(&slots->shared.lock);
    return slot;
}

static uint64_t acquire(struct pool_slots *slots, uint64_t bytes, enum pool_slots_order order)
    REQUIRES(&slots->shared.lock)
{
    uint64_t at = NOWHERE;

    if (order != POOL_SLOTS_OUT_OF_ORDER)
        at = region_acquire(&slots->shared.reserve, bytes);
    if (at == NOWHERE && order != POOL_SLOTS_IN_ORDER)
        at = region_acquire(&slots->shared.rest, bytes);
    return at;
}

uint8_t *pool_slots_acquire(struct pool_slots *slots, size_t i, enum pool_slots_order order)
{
    lock_acquire(&slots->shared.lock);
    assert(i < slots->image->window_count);
    if (slots->shared.at[i] == NOWHERE)
        slots->shared.at[i] = acquire(slots, slots->image->windows[i].bytes, order);
    uint8_t *slot = slot_address(slots, i);
    lock_release(&slots->shared.lock);
    return slot;
}

void pool_slots_return(struct pool_slots *slots, size_t i)
{
    lock_acquire(&slots->shared.lock);
    assert(i < slots->image->window_count);
    uint64_t at = slots->shared.at[i];
    if (!slots->dedicated && at != NOWHERE) {
        bool reserved = at < slots->shared.reserve.end;
        region_release(reserved ? &slots->shared.reserve : &slots->shared.rest, at,
                       at + slots->image->windows[i].bytes);
        slots->shared.at[i] = NOWHERE;
    }
    lock_release(&slots->shared.lock);
}

uint64_t pool_slots_peak_bytes(struct pool_slots *slots)
{
    lock_acquire(&slots->shared.lock);
    uint64_t used = slots->shared.reserve.high - slots->shared.reserve.begin +
                    slots->shared.rest.high - slots->shared.rest.begin;
    lock_release(&slots->shared.lock);
    return used;
}

uint8_t *pool_slots_first_unused(struct pool_slots *slots)
{
    lock_acquire(&slots->shared.lock);
    const struct region *rest = &slots->shared.rest;
    uint64_t end = rest->high != rest->begin ? rest->high : slots->shared.reserve.high;
    lock_release(&slots->shared.lock);
    return slots->pool + end;
}
