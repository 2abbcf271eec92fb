/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan_encoding.c -- encodes and decodes the plan that rank 0 sends to each rank.
 *
 *      u32 magic, u32 number of items, u64 digest of the global plan
 *      each item: u32 entry, u8 form; if it is a part: i64 offsets[ndim], lengths[ndim]
 *      u32 number of common tensors; the u32 entry of each
 *
 * Little-endian.  Tensors come first, then objects, both in the order of the rank's state.  No
 * entry comes twice.  The decoder checks this, because the bytes come from another process.
 */
#include "plan/save_plan_encoding.h"

#include <string.h>

#include "base/base.h"

#define PLAN_MAGIC 0x324c5053u /* "SPL2" */
#define PLAN_MIN_ITEM_BYTES 5u

enum form {
    FORM_WHOLE, /* the entry's own box, or an object */
    FORM_PART,
};

static void put_items(const struct plan_tables *tables, uint32_t rank, bool objects,
                      struct buffer *out)
{
    for (size_t i = tables->first[rank]; i < tables->first[rank + 1]; i++) {
        const struct plan_claim *claim = &tables->claims[i];
        bool whole = claim->part == &claim->box;

        if (claim->part == NULL || tables->names[claim->name].is_object != objects)
            continue;
        buffer_put_u32le(out, claim->entry);
        buffer_put_u8(out, whole ? FORM_WHOLE : FORM_PART);
        for (uint32_t d = 0; !whole && d < claim->part->ndim; d++)
            buffer_put_u64le(out, (uint64_t)claim->part->offsets[d]);
        for (uint32_t d = 0; !whole && d < claim->part->ndim; d++)
            buffer_put_u64le(out, (uint64_t)claim->part->lengths[d]);
    }
}

static uint32_t count_items(const struct plan_tables *tables, uint32_t rank)
{
    uint32_t count = 0;

    for (size_t i = tables->first[rank]; i < tables->first[rank + 1]; i++)
        count += tables->claims[i].part != NULL;
    return count;
}

/* All ranks have all common tensors, so each number is set. */
static void put_common(const struct plan_tables *tables, uint32_t rank, uint32_t *entries,
                       struct buffer *out)
{
    for (size_t i = tables->first[rank]; i < tables->first[rank + 1]; i++)
        if (tables->claims[i].common != 0)
            entries[tables->claims[i].common - 1] = tables->claims[i].entry;
    buffer_put_u32le(out, tables->common_count);
    for (uint32_t k = 0; k < tables->common_count; k++)
        buffer_put_u32le(out, entries[k]);
}

enum sidestep_status save_plan_encode(const struct plan_tables *tables, uint64_t global_digest,
                                      struct buffer *out, size_t *sizes, struct sidestep_error *err)
{
    OWNED uint32_t *entries = memory_new((size_t)tables->common_count + 1, sizeof(*entries));

    if (entries == NULL)
        return FAIL_NOMEM(err, tables->common_count * sizeof(*entries));
    for (uint32_t rank = 0; rank < tables->world_size; rank++) {
        size_t begin = out->length;

        buffer_put_u32le(out, PLAN_MAGIC);
        buffer_put_u32le(out, count_items(tables, rank));
        buffer_put_u64le(out, global_digest);
        put_items(tables, rank, false, out);
        put_items(tables, rank, true, out);
        put_common(tables, rank, entries, out);
        sizes[rank] = out->length - begin;
    }
    return buffer_check(out, err);
}

/* ---------------------------------------------------------------- decoding */

void save_plan_release(struct save_plan *plan)
{
    arena_release(&plan->arena);
    *plan = (struct save_plan){0};
}

/* Is ${box} a part of ${whole}? */
static bool is_inside(const struct box *box, const struct box *whole)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        int64_t begin = box->offsets[d], whole_end = whole->offsets[d] + whole->lengths[d];

        if (begin < whole->offsets[d] || box->lengths[d] < 0 ||
            box->lengths[d] > whole_end - begin) /* the right side may be negative */
            return false;
    }
    return true;
}

/* Decode an item.  It copies boxes, because the plan may be used again with another state of the
 * same layout.  False: the bytes are not an item, or, if ${*status} is ENOMEM, memory ran out. */
static bool decode_item(struct cursor *c, const struct sidestep_state_dict *state,
                        struct arena *arena, struct save_plan_item *item,
                        enum sidestep_status *status, struct sidestep_error *err)
{
    item->entry = cursor_u32le(c);
    unsigned form = cursor_u8(c);

    if (c->overrun || item->entry >= state->count || form > FORM_PART)
        return false;
    const struct state_entry *entry = &state->entries[item->entry];
    if (entry->is_object)
        return form == FORM_WHOLE;
    size_t bytes = entry->ndim * sizeof(int64_t);
    if (form == FORM_PART && cursor_remaining(c) < 2 * bytes)
        return false;
    int64_t *offsets = arena_new(arena, (size_t)2 * entry->ndim, sizeof(int64_t));
    int64_t *lengths = offsets + entry->ndim;
    if (offsets == NULL) {
        *status = FAIL_NOMEM(err, 2 * bytes);
        return false;
    }
    item->box = (struct box){entry->ndim, offsets, lengths};
    if (form == FORM_WHOLE && entry->ndim != 0) {
        memcpy(offsets, entry->box.offsets, bytes);
        memcpy(lengths, entry->box.lengths, bytes);
    }
    for (uint32_t i = 0; form == FORM_PART && i < 2 * entry->ndim; i++)
        offsets[i] = (int64_t)cursor_u64le(c);
    return is_inside(&item->box, &entry->box);
}

static bool is_in_order(const struct sidestep_state_dict *state, size_t before, size_t entry)
{
    bool was_object = state->entries[before].is_object, is_object = state->entries[entry].is_object;

    return was_object == is_object ? before < entry : is_object;
}

static enum sidestep_status decode_items(struct cursor *c, const struct sidestep_state_dict *state,
                                         struct save_plan *plan, struct sidestep_error *err)
{
    for (size_t i = 0; i < plan->count; i++) {
        enum sidestep_status status = SIDESTEP_OK;
        size_t position = c->position;

        if (!decode_item(c, state, &plan->arena, &plan->items[i], &status, err) ||
            (i != 0 && !is_in_order(state, plan->items[i - 1].entry, plan->items[i].entry)))
            return status != SIDESTEP_OK
                       ? status
                       : FAIL(err, SIDESTEP_ECORRUPT,
                              "the plan from rank 0 is damaged in item %zu, at byte %zu", i,
                              position);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status decode_common(struct cursor *c, const struct sidestep_state_dict *state,
                                          struct save_plan *plan, struct sidestep_error *err)
{
    plan->common_count = cursor_u32le(c);
    if (c->overrun || plan->common_count > cursor_remaining(c) / sizeof(uint32_t))
        return FAIL(err, SIDESTEP_ECORRUPT, "the plan from rank 0 is damaged behind its items");
    plan->common = arena_new(&plan->arena, plan->common_count, sizeof(*plan->common));
    if (plan->common == NULL)
        return FAIL_NOMEM(err, plan->common_count * sizeof(*plan->common));
    for (size_t i = 0; i < plan->common_count; i++) {
        plan->common[i] = cursor_u32le(c);
        if (plan->common[i] >= state->count || state->entries[plan->common[i]].is_object)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "the plan from rank 0 is damaged in common tensor %zu", i);
    }
    if (cursor_remaining(c) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the plan from rank 0 has %zu bytes after its end",
                    cursor_remaining(c));
    return SIDESTEP_OK;
}

enum sidestep_status save_plan_decode(const void *bytes, size_t length,
                                      const struct sidestep_state_dict *state,
                                      struct save_plan *out, struct sidestep_error *err)
{
    OWNED_BY(save_plan_release) struct save_plan plan = {0};
    struct cursor c = cursor_from_memory(bytes, length);
    uint32_t magic = cursor_u32le(&c);

    plan.count = cursor_u32le(&c);
    plan.global_digest = cursor_u64le(&c);
    if (c.overrun || magic != PLAN_MAGIC || plan.count > state->count ||
        plan.count > cursor_remaining(&c) / PLAN_MIN_ITEM_BYTES || plan.global_digest == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the plan from rank 0 is damaged at its head");
    plan.items = arena_new(&plan.arena, plan.count, sizeof(*plan.items));
    if (plan.items == NULL)
        return FAIL_NOMEM(err, plan.count * sizeof(*plan.items));
    TRY(decode_items(&c, state, &plan, err));
    TRY(decode_common(&c, state, &plan, err));
    *out = plan;
    plan = (struct save_plan){0};
    return SIDESTEP_OK;
}
