/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan_table.c -- encodes a rank's state as a table for rank 0, and decodes it.
 *
 *      u32 magic, u32 number of entries, u64 digest of the layout (only this covers paths)
 *      each entry: u8 kind, u16 length of the name, the name, NUL;
 *      a tensor: u8 dtype, u8 ndim, u32 flags, i64 shape[ndim], offsets[ndim], lengths[ndim]
 *
 * Little-endian.  If this layout changes, the magic number changes.
 */
#include "plan/save_plan_table.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "model/model.h"

#define TABLE_MAGIC 0x31545053u /* "SPT1" */
#define TABLE_MIN_ENTRY_BYTES 5u
#define KIND_TENSOR 0u
#define KIND_OBJECT 1u

_Static_assert(SIDESTEP_DTYPE_END <= UINT8_MAX, "a dtype fits in a byte");
_Static_assert(SIDESTEP_MAX_NDIM <= UINT8_MAX, "ndim fits in a byte");
_Static_assert(SIDESTEP_MAX_NAME <= UINT16_MAX, "the length of a name fits in two bytes");
_Static_assert(STATE_MAX_ENTRIES <= UINT32_MAX, "the number of entries fits in four bytes");

static void put_array(struct buffer *out, uint32_t ndim, const int64_t *numbers)
{
    for (uint32_t d = 0; d < ndim; d++)
        buffer_put_u64le(out, (uint64_t)numbers[d]);
}

enum sidestep_status save_plan_table_encode(const struct sidestep_state_dict *state,
                                            const bool *replicated, struct buffer *out,
                                            struct sidestep_error *err)
{
    buffer_put_u32le(out, TABLE_MAGIC);
    buffer_put_u32le(out, (uint32_t)state->count);
    buffer_put_u64le(out, save_plan_digest(state));
    for (size_t i = 0; i < state->count; i++) {
        const struct state_entry *entry = &state->entries[i];
        size_t length = strlen(entry->name);

        buffer_put_u8(out, entry->is_object ? KIND_OBJECT : KIND_TENSOR);
        buffer_put_u16le(out, (uint16_t)length);
        buffer_put(out, entry->name, length + 1);
        if (entry->is_object)
            continue;
        buffer_put_u8(out, (uint8_t)entry->dtype);
        buffer_put_u8(out, (uint8_t)entry->ndim);
        bool declared = replicated != NULL && replicated[i];
        buffer_put_u32le(out, (entry->flags & STATE_LAYOUT_FLAGS) |
                                  (declared ? SIDESTEP_TENSOR_REPLICATED : 0));
        put_array(out, entry->ndim, entry->shape);
        put_array(out, entry->ndim, entry->box.offsets);
        put_array(out, entry->ndim, entry->box.lengths);
    }
    return buffer_check(out, err);
}

void save_plan_table_release(struct plan_tables *tables)
{
    hash_table_release(&tables->index);
    arena_release(&tables->arena);
    *tables = (struct plan_tables){0};
}

/* ---------------------------------------------------------------- decoding */

/* One entry of a table. */
struct decoded {
    const char *name;
    bool is_object;
    enum sidestep_dtype dtype;
    uint32_t ndim;
    uint32_t flags;
    int64_t *shape; /* then offsets, then lengths, in one block */
    struct box box;
};

static bool decode_name(struct cursor *c, const char **name)
{
    size_t length = cursor_u16le(c);

    if (length == 0 || length > SIDESTEP_MAX_NAME)
        return false;
    *name = (const char *)cursor_take(c, length + 1);
    return *name != NULL && (*name)[length] == '\0' && strlen(*name) == length;
}

/* False: the bytes are not an entry, or, if ${*status} is ENOMEM, memory ran out. */
static bool decode_entry(struct cursor *c, struct arena *arena, struct decoded *out,
                         enum sidestep_status *status, struct sidestep_error *err)
{
    unsigned kind = cursor_u8(c);

    *out = (struct decoded){.is_object = kind == KIND_OBJECT};
    if (kind > KIND_OBJECT || !decode_name(c, &out->name))
        return false;
    if (out->is_object)
        return true;
    out->dtype = (enum sidestep_dtype)cursor_u8(c);
    out->ndim = cursor_u8(c);
    out->flags = cursor_u32le(c);
    if (sidestep_dtype_size(out->dtype) == 0 || out->ndim > SIDESTEP_MAX_NDIM ||
        cursor_remaining(c) < (size_t)3 * 8 * out->ndim)
        return false;
    out->shape = arena_new(arena, (size_t)3 * out->ndim, sizeof(int64_t));
    if (out->shape == NULL) {
        *status = FAIL_NOMEM(err, (size_t)3 * 8 * out->ndim);
        return false;
    }
    for (uint32_t i = 0; i < 3 * out->ndim; i++)
        out->shape[i] = (int64_t)cursor_u64le(c);
    out->box = (struct box){out->ndim, out->shape + out->ndim, out->shape + 2 * out->ndim};
    return !c->overrun;
}

/* Check that two ranks have the same kind, shape and dtype under a name. */
static enum sidestep_status compare_names(const struct plan_entry *first,
                                          const struct decoded *entry, uint32_t rank,
                                          struct sidestep_error *err)
{
    struct display_text name = display_name(first->name);

    if (first->is_object != entry->is_object)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is %s on rank %u, but %s on rank %u", name.text,
                    first->is_object ? "an object" : "a tensor", first->first_rank,
                    entry->is_object ? "an object" : "a tensor", rank);
    if (first->dtype != entry->dtype)
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is %s on rank %u, but %s on rank %u", name.text,
                    sidestep_dtype_name(first->dtype), first->first_rank,
                    sidestep_dtype_name(entry->dtype), rank);
    if (first->ndim != entry->ndim ||
        (entry->ndim != 0 &&
         memcmp(first->shape, entry->shape, entry->ndim * sizeof(int64_t)) != 0))
        return FAIL(err, SIDESTEP_EINVAL, "'%s' has the shape %s on rank %u, but %s on rank %u",
                    name.text, display_shape(first->ndim, first->shape).text, first->first_rank,
                    display_shape(entry->ndim, entry->shape).text, rank);
    return SIDESTEP_OK;
}

/* Find or add the name of ${entry}, and compare the entry with those of other ranks. */
static enum sidestep_status add_name(struct plan_tables *out, const struct decoded *entry,
                                     uint32_t rank, size_t *name, struct sidestep_error *err)
{
    TRY(hash_table_insert(&out->index, entry->name, out->name_count, name, err));
    if (*name != SIZE_MAX)
        return compare_names(&out->names[*name], entry, rank, err);
    *name = out->name_count++;
    out->names[*name] = (struct plan_entry){
        .name = entry->name,
        .is_object = entry->is_object,
        .dtype = entry->dtype,
        .ndim = entry->ndim,
        .shape = entry->shape,
        .first_rank = rank,
    };
    return SIDESTEP_OK;
}

static enum sidestep_status add_claim(struct plan_tables *out, const struct decoded *entry,
                                      uint32_t rank, struct sidestep_error *err)
{
    struct plan_claim *claim = &out->claims[out->count];
    enum sidestep_status status;
    size_t name;

    if (!entry->is_object) {
        status = box_check(&entry->box, entry->shape, sidestep_dtype_size(entry->dtype), err);
        if (status != SIDESTEP_OK) {
            error_wrap(err, "'%s' on rank %u", display_name(entry->name).text, rank);
            return status;
        }
    }
    TRY(add_name(out, entry, rank, &name, err));
    out->names[name].claim_count++;
    *claim = (struct plan_claim){
        .rank = rank,
        .entry = (uint32_t)(out->count - out->first[rank]),
        .name = (uint32_t)name,
        .flags = entry->flags & STATE_LAYOUT_FLAGS,
        .box = entry->box,
    };
    out->count++;
    return SIDESTEP_OK;
}

/* Read a table's head.  ${*entries} is limited by the bytes that follow. */
static enum sidestep_status decode_head(struct cursor *c, uint32_t rank, size_t *entries,
                                        struct sidestep_error *err)
{
    uint32_t magic = cursor_u32le(c);

    *entries = cursor_u32le(c);
    (void)cursor_u64le(c); /* the digest of the plan covers these bytes */
    if (!c->overrun && magic != TABLE_MAGIC)
        return FAIL(err, SIDESTEP_EDISAGREE,
                    "rank %u sent a table of another version of this library", rank);
    if (c->overrun || *entries > STATE_MAX_ENTRIES ||
        *entries > cursor_remaining(c) / TABLE_MIN_ENTRY_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT, "the table of rank %u is damaged at its head", rank);
    return SIDESTEP_OK;
}

static enum sidestep_status decode_table(struct plan_tables *out, struct cursor *c, uint32_t rank,
                                         struct sidestep_error *err)
{
    size_t entries;

    TRY(decode_head(c, rank, &entries, err));
    out->first[rank] = out->count;
    for (size_t i = 0; i < entries; i++) {
        enum sidestep_status status = SIDESTEP_OK;
        size_t position = c->position;
        struct decoded entry;

        if (!decode_entry(c, &out->arena, &entry, &status, err))
            return status != SIDESTEP_OK
                       ? status
                       : FAIL(err, SIDESTEP_ECORRUPT,
                              "the table of rank %u is damaged in entry %zu, at byte %zu", rank, i,
                              position);
        TRY(add_claim(out, &entry, rank, err));
    }
    if (cursor_remaining(c) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "the table of rank %u has %zu bytes after its end",
                    rank, cursor_remaining(c));
    return SIDESTEP_OK;
}

static enum sidestep_status allocate(struct plan_tables *out, const void *const *tables,
                                     const size_t *table_bytes, struct sidestep_error *err)
{
    uint64_t total = 0;

    for (uint32_t rank = 0; rank < out->world_size; rank++) {
        struct cursor c = cursor_from_memory(tables[rank], table_bytes[rank]);
        size_t entries;

        TRY(decode_head(&c, rank, &entries, err));
        total += entries;
    }
    if (total >= UINT32_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "the ranks have %llu entries together; the limit is %u",
                    (unsigned long long)total, UINT32_MAX - 1);
    out->claims = arena_new(&out->arena, total, sizeof(*out->claims));
    out->names = arena_new(&out->arena, total, sizeof(*out->names));
    out->first = arena_new(&out->arena, (size_t)out->world_size + 1, sizeof(*out->first));
    if (out->claims == NULL || out->names == NULL || out->first == NULL)
        return FAIL_NOMEM(err, total * (sizeof(*out->claims) + sizeof(*out->names)));
    return SIDESTEP_OK;
}

/* Give each name the list of its claims, which keep their order. */
static enum sidestep_status group_claims(struct plan_tables *out, struct sidestep_error *err)
{
    struct plan_claim **next = arena_new(&out->arena, out->count, sizeof(struct plan_claim *));

    if (next == NULL)
        return FAIL_NOMEM(err, out->count * sizeof(*next));
    for (size_t i = 0; i < out->name_count; i++) {
        out->names[i].claims = next;
        next += out->names[i].claim_count;
        out->names[i].claim_count = 0;
    }
    for (size_t i = 0; i < out->count; i++) {
        struct plan_entry *name = &out->names[out->claims[i].name];

        name->claims[name->claim_count++] = &out->claims[i];
    }
    return SIDESTEP_OK;
}

enum sidestep_status save_plan_table_decode(const void *const *tables, const size_t *table_bytes,
                                            uint32_t world_size, struct plan_tables *out,
                                            struct sidestep_error *err)
{
    OWNED_BY(save_plan_table_release) struct plan_tables decoded = {.world_size = world_size};

    assert(world_size >= 1 && world_size <= SIDESTEP_MAX_RANKS);
    TRY(allocate(&decoded, tables, table_bytes, err));
    for (uint32_t rank = 0; rank < world_size; rank++) {
        struct cursor c = cursor_from_memory(tables[rank], table_bytes[rank]);

        TRY(decode_table(&decoded, &c, rank, err));
    }
    decoded.first[world_size] = decoded.count;
    TRY(group_claims(&decoded, err));
    *out = decoded;
    decoded = (struct plan_tables){0};
    return SIDESTEP_OK;
}
