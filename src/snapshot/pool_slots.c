/* SPDX-License-Identifier: BSD-3-Clause */
/* pool_slots.c -- see pool_slots.h. */
#include "snapshot/pool_slots.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

#define NOWHERE UINT64_MAX

/* Of the pool: [begin, end). */
struct extent {
    uint64_t begin;
    uint64_t end;
};

struct region {
    uint64_t begin;
    uint64_t end;
    uint64_t high;       /* nothing behind it was ever taken */
    struct extent *free; /* by place, never touching each other: one more than there are windows */
    size_t count;
};

struct pool_slots {
    /* Constant. */
    const struct image *image;
    size_t mapped_bytes;
    /* Since places_set_...(). */
    uint8_t *pool;
    bool whole;
    struct {
        pthread_mutex_t lock;
        uint64_t *at; /* per window, in the pool; or NOWHERE */
        struct region reserve, rest;
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
    struct pool_slots *places = map;
    uint64_t *at = (void *)(places + 1);
    struct extent *free = (void *)(at + count);
    places->image = image;
    places->mapped_bytes = bytes;
    places->shared.at = at;
    places->shared.reserve.free = free;
    places->shared.rest.free = free + count + 1;
    pthread_mutex_init(&places->shared.lock, NULL);
    *out = places;
    return SIDESTEP_OK;
}

void pool_slots_free(struct pool_slots **out)
{
    struct pool_slots *places = *out;

    if (places == NULL)
        return;
    *out = NULL;
    pthread_mutex_destroy(&places->shared.lock);
    (void)munmap(places, places->mapped_bytes);
}

static void region_set(struct region *region, uint64_t begin, uint64_t end)
{
    region->begin = region->high = begin;
    region->end = end;
    region->count = 0;
    if (begin < end)
        region->free[region->count++] = (struct extent){.begin = begin, .end = end};
}

void pool_slots_set_dedicated(struct pool_slots *places, uint8_t *pool)
{
    places->pool = pool;
    places->whole = true;
    for (size_t i = 0; i < places->image->window_count; i++)
        places->shared.at[i] = places->image->windows[i].offset;
    region_set(&places->shared.reserve, 0, 0);
    region_set(&places->shared.rest, 0, 0);
    places->shared.rest.high = places->image->body_bytes;
}

void pool_slots_set_shared(struct pool_slots *places, uint8_t *pool, uint64_t bytes,
                           uint64_t reserve)
{
    assert(reserve <= bytes && bytes % IMAGE_ALIGN == 0 && reserve % IMAGE_ALIGN == 0);
    places->pool = pool;
    places->whole = false;
    for (size_t i = 0; i < places->image->window_count; i++)
        places->shared.at[i] = NOWHERE;
    region_set(&places->shared.reserve, 0, reserve);
    region_set(&places->shared.rest, reserve, bytes);
}

/* ---- regions */

static uint64_t region_take(struct region *region, uint64_t bytes)
{
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

static void region_put(struct region *region, uint64_t begin, uint64_t end)
{
    size_t i = 0;

    while (i < region->count && region->free[i].begin < begin)
        i++;
    struct extent *before = i != 0 ? &region->free[i - 1] : NULL;
    struct extent *after = i < region->count ? &region->free[i] : NULL;
    bool touches_before = before != NULL && before->end == begin;
    bool touches_after = after != NULL && after->begin == end;

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

/* ---- places */

static uint8_t *address(const struct pool_slots *places, size_t i)
{
    uint64_t at = places->shared.at[i];

    return at != NOWHERE ? places->pool + at : NULL;
}

uint8_t *pool_slots_get(struct pool_slots *places, size_t i)
{
    pthread_mutex_lock(&places->shared.lock);
    uint8_t *place = address(places, i);
    pthread_mutex_unlock(&places->shared.lock);
    return place;
}

/* Locked. */
static uint64_t take(struct pool_slots *places, uint64_t bytes, enum pool_slots_order who)
{
    uint64_t at = NOWHERE;

    if (who != POOL_SLOTS_OUT_OF_ORDER)
        at = region_take(&places->shared.reserve, bytes);
    if (at == NOWHERE && who != POOL_SLOTS_IN_ORDER)
        at = region_take(&places->shared.rest, bytes);
    return at;
}

uint8_t *pool_slots_acquire(struct pool_slots *places, size_t i, enum pool_slots_order who)
{
    pthread_mutex_lock(&places->shared.lock);
    if (places->shared.at[i] == NOWHERE)
        places->shared.at[i] = take(places, places->image->windows[i].bytes, who);
    uint8_t *place = address(places, i);
    pthread_mutex_unlock(&places->shared.lock);
    return place;
}

void pool_slots_return(struct pool_slots *places, size_t i)
{
    pthread_mutex_lock(&places->shared.lock);
    uint64_t at = places->shared.at[i];
    if (!places->whole && at != NOWHERE) {
        bool reserved = at < places->shared.reserve.end;
        region_put(reserved ? &places->shared.reserve : &places->shared.rest, at,
                   at + places->image->windows[i].bytes);
        places->shared.at[i] = NOWHERE;
    }
    pthread_mutex_unlock(&places->shared.lock);
}

uint64_t pool_slots_peak_bytes(struct pool_slots *places)
{
    pthread_mutex_lock(&places->shared.lock);
    uint64_t used = places->shared.reserve.high - places->shared.reserve.begin +
                    places->shared.rest.high - places->shared.rest.begin;
    pthread_mutex_unlock(&places->shared.lock);
    return used;
}

uint8_t *pool_slots_first_unused(struct pool_slots *places)
{
    pthread_mutex_lock(&places->shared.lock);
    const struct region *rest = &places->shared.rest;
    uint64_t end = rest->high != rest->begin ? rest->high : places->shared.reserve.high;
    pthread_mutex_unlock(&places->shared.lock);
    return places->pool + end;
}
