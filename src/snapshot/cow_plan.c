/* SPDX-License-Identifier: BSD-3-Clause */
/* cow_plan.c -- plans which memory to protect; see cow_plan.h. */
#include "snapshot/cow_plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/pinned.h"

void cow_plan_set_reason(struct cow_plan *plan, const char *name, const char *why)
{
    if (plan->reason[0] == '\0')
        snprintf(plan->reason, sizeof(plan->reason), "tensor '%.60s': %s", name, why);
}

void cow_plan_set_reason_at(struct cow_plan *plan, const struct image *image, uint64_t begin,
                            uint64_t end, uint64_t min_bytes, const char *why)
{
    for (size_t i = 0; i < plan->item_count && plan->reason[0] == '\0'; i++) {
        const struct cow_item_memory *place = &plan->items[i];
        if (!place->excluded && place->bytes >= min_bytes && place->address < end &&
            begin < place->address + place->bytes)
            cow_plan_set_reason(plan, image->items[i].footer.name, why);
    }
}

void cow_plan_locate_items(const struct image *image, struct cow_item_memory *places)
{
    for (size_t i = 0; i < image->count; i++) {
        const struct image_item *item = &image->items[i];
        const struct footer_item *f = &item->footer;
        places[i] = (struct cow_item_memory){0};
        if (f->is_object || item->on_device)
            continue;
        places[i].bytes = f->data_bytes;
        places[i].flags =
            item->entry->flags & (SIDESTEP_TENSOR_PINNED | SIDESTEP_TENSOR_CPU_WRITES);
        places[i].file_offset = f->offset + f->data_offset;
        places[i].address = (uint64_t)(uintptr_t)image_contiguous_data(image, i);
    }
}

/* ---- ranges: merge adjacent tensors, and keep what can be protected */

/* The state of cow_plan_build_ranges(). */
struct range_builder {
    struct cow_plan *plan;
    const struct image *image;
    struct cow_range *wanted; /* sorted by address, not rounded to pages */
    size_t wanted_count;
    size_t next; /* index in ${wanted}: earlier ones end before the current mapping */
    struct cow_range last_private;
    uint64_t page_bytes;
    size_t capacity;    /* capacity of plan->ranges */
    bool out_of_memory; /* an allocation failed */
};

static int by_address(const void *a, const void *b)
{
    const struct cow_range *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

size_t cow_plan_merge_ranges(struct cow_range *ranges, size_t count)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    size_t kept = 0;

    qsort(ranges, count, sizeof(*ranges), by_address);
    for (size_t i = 0; i < count; i++) {
        const struct cow_range next = ranges[i];
        struct cow_range *last = kept != 0 ? &ranges[kept - 1] : NULL;
        if (last != NULL && round_down(next.begin, page) <= round_up(last->end, page))
            last->end = max_u64(last->end, next.end);
        else
            ranges[kept++] = next;
    }
    return kept;
}

/* Add a part of a wanted range, all of it in private memory. */
static void add_range(struct range_builder *p, uint64_t begin, uint64_t end)
{
    struct cow_plan *plan = p->plan;

    begin = round_up(begin, p->page_bytes);
    end = round_down(end, p->page_bytes);
    if (begin >= end || end - begin < COW_MIN_RANGE_BYTES)
        return;
    if (plan->range_count == p->capacity) {
        size_t capacity = p->capacity != 0 ? 2 * p->capacity : 64;
        struct cow_range *ranges = arena_new(&plan->arena, capacity, sizeof(*ranges));
        if (ranges == NULL) {
            p->out_of_memory = true;
            return;
        }
        if (plan->range_count != 0)
            memcpy(ranges, plan->ranges, plan->range_count * sizeof(*ranges));
        plan->ranges = ranges;
        p->capacity = capacity;
    }
    plan->ranges[plan->range_count++] = (struct cow_range){.begin = begin, .end = end};
}

/* Add the wanted parts of [begin, end), a maximal range of private memory. */
static void add_private(struct range_builder *p, uint64_t begin, uint64_t end)
{
    while (p->next < p->wanted_count && p->wanted[p->next].end <= begin)
        p->next++;
    for (size_t i = p->next; i < p->wanted_count && p->wanted[i].begin < end; i++)
        add_range(p, max_u64(begin, p->wanted[i].begin), min_u64(end, p->wanted[i].end));
}

static void visit_mapping(void *context, uint64_t begin, uint64_t end, enum memory_map_kind kind)
{
    struct range_builder *p = context;
    struct cow_range *last = &p->last_private;

    if (kind == MEMORY_MAP_PRIVATE && last->end == begin) {
        last->end = end;
        return;
    }
    add_private(p, last->begin, last->end);
    *last = (struct cow_range){0};
    if (kind == MEMORY_MAP_PRIVATE)
        *last = (struct cow_range){.begin = begin, .end = end};
    else
        cow_plan_set_reason_at(p->plan, p->image, begin, end, COW_MIN_RANGE_BYTES,
                               memory_map_kind_text(kind));
}

static bool is_pinned(const struct cow_item_memory *place, pinned_query_function *query)
{
    if ((place->flags & SIDESTEP_TENSOR_CPU_WRITES) != 0 || place->bytes == 0)
        return false;
    return (place->flags & SIDESTEP_TENSOR_PINNED) != 0 ||
           pinned_is_registered(query, place->address);
}

/* May this item be pinned for a device? */
static bool may_be_pinned(const struct cow_plan *plan, const struct cow_item_memory *place)
{
    return plan->bypass.pinned_bytes != 0 && (place->flags & SIDESTEP_TENSOR_CPU_WRITES) == 0;
}

/* Why a tensor cannot be protected, whatever kind of memory it is in; NULL: it can. */
static const char *why_excluded(const struct cow_plan *plan, const struct cow_item_memory *place,
                                pinned_query_function *query)
{
    if (place->address == 0)
        return "it is not contiguous";
    if (is_pinned(place, query))
        return "its memory is pinned";
    if (plan->bypass.merges)
        return "its pages may be merged with others (KSM)";
    return may_be_pinned(plan, place) ? "its memory may be pinned" : NULL;
}

/* Exclude the tensors that cannot be protected. */
static void exclude_tensors(struct cow_plan *plan, const struct image *image)
{
    pinned_query_function *query = pinned_find_query();

    plan->pinned_item = SIZE_MAX;
    for (size_t i = 0; i < image->tensor_count; i++) {
        struct cow_item_memory *place = &plan->items[i];
        const char *why = why_excluded(plan, place, query);
        place->excluded = why != NULL;
        if (why == NULL || place->bytes < COW_MIN_RANGE_BYTES)
            continue;
        cow_plan_set_reason(plan, image->items[i].footer.name, why);
        if (plan->pinned_item == SIZE_MAX && may_be_pinned(plan, place))
            plan->pinned_item = i;
    }
}

bool cow_plan_is_valid(const struct cow_plan *plan, const struct bypass *bypass)
{
    return plan->bypass.merges == bypass->merges &&
           (plan->bypass.pinned_bytes != 0) == (bypass->pinned_bytes != 0);
}

void cow_plan_set_pinned_reason(struct cow_plan *plan, const struct image *image,
                                uint64_t pinned_bytes)
{
    char why[64];

    if (plan->pinned_item == SIZE_MAX)
        return;
    assert(plan->pinned_item < image->tensor_count);
    snprintf(why, sizeof(why), "this process has %llu MiB pinned for devices",
             (unsigned long long)(round_up(pinned_bytes, 1u << 20) >> 20));
    plan->reason[0] = '\0';
    cow_plan_set_reason(plan, image->items[plan->pinned_item].footer.name, why);
}

enum sidestep_status cow_plan_build_ranges(struct cow_plan *plan, const struct image *image,
                                           const struct bypass *bypass, struct sidestep_error *err)
{
    OWNED struct cow_range *wanted = memory_new(image->count, sizeof(*wanted));
    struct range_builder p = {.plan = plan,
                              .image = image,
                              .wanted = wanted,
                              .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE)};

    assert(plan->items == NULL && plan->range_count == 0); /* it is empty */
    plan->item_count = image->count;
    plan->bypass = *bypass;
    plan->items = arena_new(&plan->arena, image->count, sizeof(*plan->items));
    if (wanted == NULL || plan->items == NULL)
        return FAIL_NOMEM(err, image->count * sizeof(*wanted));
    cow_plan_locate_items(image, plan->items);
    exclude_tensors(plan, image);
    for (size_t i = 0; i < image->count; i++) {
        const struct cow_item_memory *place = &plan->items[i];
        if (!place->excluded && place->bytes != 0)
            wanted[p.wanted_count++] =
                (struct cow_range){.begin = place->address, .end = place->address + place->bytes};
    }
    p.wanted_count = cow_plan_merge_ranges(wanted, p.wanted_count);
    TRY(memory_map_read(visit_mapping, &p, err));
    add_private(&p, p.last_private.begin, p.last_private.end);
    return p.out_of_memory ? FAIL_NOMEM(err, p.capacity * sizeof(*wanted)) : SIDESTEP_OK;
}

/* ---- granules and pieces */

static void count_granules(struct cow_plan *plan)
{
    plan->granule_count = 0;
    for (size_t i = 0; i < plan->range_count; i++) {
        struct cow_range *range = &plan->ranges[i];
        assert(range->begin < range->end);
        range->first_granule = plan->granule_count;
        plan->granule_count +=
            (range->end - 1) / COW_GRANULE_BYTES - range->begin / COW_GRANULE_BYTES + 1;
    }
}

static void split_granules(struct cow_plan *plan)
{
    for (size_t i = 0; i < plan->range_count; i++) {
        const struct cow_range *range = &plan->ranges[i];
        struct cow_granule *granule = &plan->granules[range->first_granule];
        for (uint64_t at = range->begin; at < range->end; granule++) {
            uint64_t end =
                min_u64(round_down(at, COW_GRANULE_BYTES) + COW_GRANULE_BYTES, range->end);
            *granule = (struct cow_granule){.begin = at, .end = end};
            at = end;
        }
        assert(granule <= &plan->granules[plan->granule_count]);
    }
}

/* The range that contains ${address}, or the next one. */
static size_t find_range(const struct cow_plan *plan, uint64_t address)
{
    size_t low = 0, high = plan->range_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t cow_plan_find_granule(const struct cow_plan *plan, uint64_t address)
{
    size_t i = find_range(plan, address);

    if (i == plan->range_count || address < plan->ranges[i].begin)
        return SIZE_MAX;
    return plan->ranges[i].first_granule +
           (address / COW_GRANULE_BYTES - plan->ranges[i].begin / COW_GRANULE_BYTES);
}

bool cow_plan_has_piece_in(const struct cow_plan *plan, size_t g, uint64_t begin, uint64_t end)
{
    assert(g < plan->granule_count);
    for (size_t i = plan->granules[g].first_piece; i < plan->granules[g + 1].first_piece; i++) {
        const struct cow_piece *piece = &plan->pieces[i];
        if (piece->address < end && begin < piece->address + piece->bytes)
            return true;
    }
    return false;
}

static void protect_item(struct cow_plan *plan, size_t i)
{
    const struct cow_item_memory *place = &plan->items[i];
    size_t r = find_range(plan, place->address);

    if (place->excluded || r == plan->range_count)
        return;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = place->address;
    uint64_t end = begin + place->bytes;
    if (plan->shares_pool) {
        begin = round_up(begin, page);
        end = round_down(end, page);
    }
    begin = max_u64(begin, plan->ranges[r].begin);
    end = min_u64(end, plan->ranges[r].end);
    if (begin >= end)
        return;
    plan->protected[i] = (struct image_protected_range){.begin = begin - place->address,
                                                        .end = end - place->address};
    plan->held_bytes += end - begin;
}

/* Count the pieces of item ${i} per granule in next[].  ${stores}: next[] has the index of each
 * granule's next piece, and the piece is stored there. */
static void split_pieces(struct cow_plan *plan, const struct image *image, size_t i, size_t *next,
                         bool stores)
{
    const struct cow_item_memory *place = &plan->items[i];
    const struct image_protected_range *range = &plan->protected[i];

    if (range->begin == range->end)
        return;
    uint64_t at = place->address + range->begin, end = place->address + range->end;
    uint64_t to_file = place->file_offset - place->address; /* modulo 2^64 */
    size_t w = image_find_window(image, at + to_file);
    for (size_t g = cow_plan_find_granule(plan, at); at < end;) {
        uint64_t last = min_u64(end, plan->granules[g].end);
        if (w + 1 < plan->window_count)
            last = min_u64(last, plan->window_offsets[w + 1] - to_file);
        assert(g < plan->granule_count && at < last);
        if (stores)
            plan->pieces[next[g]] = (struct cow_piece){.address = at,
                                                       .bytes = last - at,
                                                       .file_offset = at + to_file,
                                                       .item = i,
                                                       .window = w};
        next[g]++;
        at = last;
        g += at == plan->granules[g].end;
        w += w + 1 < plan->window_count && at + to_file == plan->window_offsets[w + 1];
    }
}

static size_t count_windows(const struct image *image)
{
    size_t count = 0;

    while (count < image->window_count && image->windows[count].first_item < image->tensor_count)
        count++;
    return count;
}

bool cow_plan_matches_windows(const struct cow_plan *plan, const struct image *image)
{
    if (plan->window_count != count_windows(image))
        return false;
    for (size_t i = 0; i < plan->window_count; i++)
        if (plan->window_offsets[i] != image->windows[i].offset)
            return false;
    return true;
}

static void lay_out_eager(struct cow_plan *plan)
{
    plan->eager_bytes = 0;
    for (size_t i = 0; i < plan->item_count; i++) {
        assert(plan->protected[i].end <= plan->items[i].bytes);
        plan->eager_offsets[i] = plan->eager_bytes;
        plan->eager_bytes +=
            plan->items[i].bytes - (plan->protected[i].end - plan->protected[i].begin);
    }
}

enum sidestep_status cow_plan_build_pieces(struct cow_plan *plan, const struct image *image,
                                           bool shared, struct sidestep_error *err)
{
    size_t total = 0;

    plan->shares_pool = shared;
    count_granules(plan);
    OWNED size_t *next = memory_new(plan->granule_count, sizeof(*next));
    plan->protected = arena_new(&plan->arena, plan->item_count, sizeof(*plan->protected));
    plan->granules = arena_new(&plan->arena, plan->granule_count + 1, sizeof(*plan->granules));
    plan->window_count = count_windows(image);
    plan->window_offsets =
        arena_new(&plan->arena, plan->window_count, sizeof(*plan->window_offsets));
    plan->eager_offsets = arena_new(&plan->arena, plan->item_count, sizeof(*plan->eager_offsets));
    if (next == NULL || plan->protected == NULL || plan->granules == NULL ||
        plan->window_offsets == NULL || plan->eager_offsets == NULL)
        return FAIL_NOMEM(err, plan->granule_count * sizeof(*plan->granules));
    for (size_t i = 0; i < plan->window_count; i++)
        plan->window_offsets[i] = image->windows[i].offset;
    split_granules(plan);
    plan->held_bytes = 0;
    for (size_t i = 0; i < plan->item_count; i++) {
        protect_item(plan, i);
        split_pieces(plan, image, i, next, false);
    }
    for (size_t g = 0; g <= plan->granule_count; g++) {
        size_t count = g < plan->granule_count ? next[g] : 0;
        plan->granules[g].first_piece = total;
        if (g < plan->granule_count)
            next[g] = total;
        total += count;
    }
    lay_out_eager(plan);
    plan->piece_count = total;
    plan->pieces = arena_new(&plan->arena, total, sizeof(*plan->pieces));
    if (plan->pieces == NULL)
        return FAIL_NOMEM(err, total * sizeof(*plan->pieces));
    for (size_t i = 0; i < plan->item_count; i++)
        split_pieces(plan, image, i, next, true);
    return SIDESTEP_OK;
}

void cow_plan_release(struct cow_plan *plan)
{
    arena_release(&plan->arena);
    *plan = (struct cow_plan){0};
}
