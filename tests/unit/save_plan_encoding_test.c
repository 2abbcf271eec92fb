/* SPDX-License-Identifier: BSD-3-Clause */
/* save_plan_encoding_test.c -- what plans say of tensors that all ranks have; refuses tables and
 * plans that no encoder makes. */
#include "base/owned.h"
#include "plan/save_plan.h"
#include "support/guard.h"
#include "support/plan_world.h"
#include "support/unit.h"

/* Build from ${first} for rank 0 and these bytes for rank 1. */
static enum sidestep_status build_with(const struct buffer *first, const void *bytes, size_t length,
                                       struct sidestep_error *err)
{
    OWNED_BY(buffer_release) struct buffer out = {0};
    const void *tables[] = {first->bytes, guard_copy(bytes, length)};
    size_t table_bytes[] = {first->length, length}, sizes[2];
    enum sidestep_status status = save_plan_build(tables, table_bytes, 2, NULL, &out, sizes, err);

    guard_free((void *)tables[1]);
    return status;
}

static enum sidestep_status decode_with(const struct plan_world *w, const void *bytes,
                                        size_t length, struct sidestep_error *err)
{
    struct save_plan plan = {0};
    void *copy = guard_copy(bytes, length);
    enum sidestep_status status = save_plan_decode(copy, length, w->states[1], &plan, err);

    for (size_t i = 0; i < plan.count; i++) { /* whatever was accepted can be used */
        const struct state_entry *entry = &w->states[1]->entries[plan.items[i].entry];
        int64_t offsets[2], lengths[2];

        if (!entry->is_object && box_intersect(&plan.items[i].box, &entry->box, offsets, lengths))
            assert_memory_equal(lengths, plan.items[i].box.lengths, 16);
    }
    save_plan_release(&plan);
    guard_free(copy);
    return status;
}

TEST(damaged_tables_are_refused)
{
    struct plan_world w;
    struct sidestep_error err;

    plan_world_sample(&w);
    struct buffer *table = &w.tables[1];
    for (size_t length = 0; length < table->length; length++) {
        assert_int_equal(build_with(&w.tables[0], table->bytes, length, &err), SIDESTEP_ECORRUPT);
        assert_non_null(strstr(err.message, "the table of rank 1 is damaged"));
    }
    for (size_t i = 0; i < table->length; i++)
        for (unsigned value = 0; value < 256; value++) {
            uint8_t original = table->bytes[i];

            table->bytes[i] = (uint8_t)value;
            enum sidestep_status status =
                build_with(&w.tables[0], table->bytes, table->length, &err);
            assert_true(status == SIDESTEP_OK || status == SIDESTEP_EINVAL ||
                        status == SIDESTEP_ECORRUPT || status == SIDESTEP_EDISAGREE);
            table->bytes[i] = original;
        }
    buffer_put_u8(table, 0);
    assert_int_equal(build_with(&w.tables[0], table->bytes, table->length, &err),
                     SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "the table of rank 1 has 1 bytes after its end"));
    table->bytes[3]++;
    assert_int_equal(build_with(&w.tables[0], table->bytes, table->length, &err),
                     SIDESTEP_EDISAGREE);
    assert_non_null(strstr(err.message, "rank 1 sent a table of another version"));
    plan_world_close(&w);
}

TEST(damaged_plans_are_refused)
{
    struct plan_world w;
    struct sidestep_error err;

    plan_world_sample(&w);
    uint8_t *plan = w.out.bytes + w.sizes[0];
    size_t length = w.sizes[1];
    assert_int_equal(decode_with(&w, plan, length, &err), SIDESTEP_OK);
    for (size_t cut = 0; cut < length; cut++) {
        assert_int_equal(decode_with(&w, plan, cut, &err), SIDESTEP_ECORRUPT);
        assert_non_null(strstr(err.message, "the plan from rank 0 is damaged"));
    }
    for (size_t i = 0; i < length; i++)
        for (unsigned value = 0; value < 256; value++) {
            uint8_t original = plan[i];

            plan[i] = (uint8_t)value;
            enum sidestep_status status = decode_with(&w, plan, length, &err);
            assert_true(status == SIDESTEP_OK || status == SIDESTEP_ECORRUPT);
            plan[i] = original;
        }
    buffer_put_u8(&w.out, 0);
    plan = w.out.bytes + w.sizes[0];
    assert_int_equal(decode_with(&w, plan, length + 1, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "1 bytes after its end"));
    plan_world_close(&w);
}

/* The head of a table: magic number (from ${w}), number of entries, digest. */
static void put_head(const struct plan_world *w, uint32_t entries, struct buffer *out)
{
    buffer_put(out, w->tables[1].bytes, 4);
    buffer_put_u32le(out, entries);
    buffer_put_u64le(out, 7);
}

/* A table of rank 1 with one entry of ${length} bytes; rank 0 has nothing. */
static void check_entry(const struct plan_world *w, const void *entry, size_t length,
                        const char *words)
{
    OWNED_BY(buffer_release) struct buffer empty = {0}, table = {0};
    struct sidestep_error err = {0};

    put_head(w, 0, &empty);
    put_head(w, 1, &table);
    buffer_put(&table, entry, length);
    enum sidestep_status status = build_with(&empty, table.bytes, table.length, &err);
    assert_int_equal(status, words == NULL ? SIDESTEP_OK : SIDESTEP_ECORRUPT);
    if (words != NULL && strstr(err.message, words) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, words);
}

TEST(hostile_entries_are_refused)
{
    static const char damaged[] = "the table of rank 1 is damaged in entry 0, at byte 16";
    uint8_t deep[11 + 3 * 8 * (SIDESTEP_MAX_NDIM + 1)] = {0, 1, 0, 'n', 0, SIDESTEP_INT8};
    uint8_t named[4 + SIDESTEP_MAX_NAME + 1] = {1};
    struct plan_world w;

    plan_world_sample(&w);
    check_entry(&w, "\1\1\0n", 5, NULL);
    check_entry(&w, "\0\1\0n\0\7\0\0\0\0\0", 11, NULL);
    check_entry(&w, "\2\1\0n\0\7\0\0\0\0\0", 11, damaged); /* a kind that is not known */
    check_entry(&w, "\1\0\0\0\0", 5, damaged);             /* no name */
    check_entry(&w, "\1\3\0a\0b", 7, damaged);             /* a NUL in it */
    check_entry(&w, "\1\1\0nn", 5, damaged);               /* none behind it */
    check_entry(&w, "\0\1\0n\0\0\0\0\0\0\0", 11, damaged); /* a dtype that is not known */
    check_entry(&w, "\1\1\0", 4, "the table of rank 1 is damaged at its head");

    for (uint32_t ndim = SIDESTEP_MAX_NDIM; ndim <= SIDESTEP_MAX_NDIM + 1; ndim++) {
        deep[6] = (uint8_t)ndim; /* shape and lengths 1, offsets 0 */
        for (uint32_t i = 0; i < 3 * ndim; i++)
            deep[11 + 8 * i] = i < ndim || i >= 2 * ndim;
        check_entry(&w, deep, 11 + (size_t)3 * 8 * ndim,
                    ndim == SIDESTEP_MAX_NDIM ? NULL : damaged);
        memset(deep + 11, 0, sizeof(deep) - 11);
    }
    for (uint32_t length = SIDESTEP_MAX_NAME; length <= SIDESTEP_MAX_NAME + 1; length++) {
        named[1] = (uint8_t)length, named[2] = (uint8_t)(length >> 8);
        memset(named + 3, 'n', length);
        check_entry(&w, named, length + 4, length == SIDESTEP_MAX_NAME ? NULL : damaged);
    }
    plan_world_close(&w);
}

/* One item for rank 1 of plan_world_sample(), whose entries are w (2 x 4 at row 2), big, step. */
static void check_item(const struct plan_world *w, uint32_t entry, uint8_t form, const int64_t *box,
                       bool fine)
{
    OWNED_BY(buffer_release) struct buffer plan = {0};

    buffer_put(&plan, w->out.bytes, 4); /* the magic number */
    buffer_put_u32le(&plan, 1);
    buffer_put_u64le(&plan, 7);
    buffer_put_u32le(&plan, entry);
    buffer_put_u8(&plan, form);
    for (uint32_t i = 0; box != NULL && i < 4; i++)
        buffer_put_u64le(&plan, (uint64_t)box[i]);
    buffer_put_u32le(&plan, 0); /* common tensors */
    assert_int_equal(decode_with(w, plan.bytes, plan.length, NULL),
                     fine ? SIDESTEP_OK : SIDESTEP_ECORRUPT);
    memset(plan.bytes + 8, 0, 8); /* a digest is never 0 */
    assert_int_equal(decode_with(w, plan.bytes, plan.length, NULL), SIDESTEP_ECORRUPT);
    plan.bytes[8] = 7, plan.bytes[0]++;
    assert_int_equal(decode_with(w, plan.bytes, plan.length, NULL), SIDESTEP_ECORRUPT);
}

TEST(hostile_items_are_refused)
{
    struct plan_world w;

    plan_world_sample(&w);
    check_item(&w, 0, 0, NULL, true);
    check_item(&w, 2, 0, NULL, true);
    check_item(&w, 2, 1, NULL, false); /* a part of an object */
    check_item(&w, 3, 0, NULL, false);
    check_item(&w, 0, 2, NULL, false);
    check_item(&w, 1, 2, NULL, false);
    check_item(&w, 0, 1, DIMS(2, 0, 2, 4), true);
    check_item(&w, 0, 1, DIMS(3, 1, 1, 3), true);
    check_item(&w, 0, 1, DIMS(1, 0, 2, 4), false);
    check_item(&w, 0, 1, DIMS(2, 0, 3, 4), false);
    check_item(&w, 0, 1, DIMS(2, 0, -1, 4), false);
    check_item(&w, 0, 1, DIMS(5, 0, 0, 4), false);
    check_item(&w, 0, 1, DIMS(2, 0, INT64_MAX, 4), false);
    check_item(&w, 0, 1, DIMS(INT64_MAX, 0, INT64_MAX, 4), false);
    check_item(&w, 0, 1, DIMS(INT64_MIN, 0, 1, 4), false);
    plan_world_close(&w);
}

/* Common tensors of rank 1 of plan_world_sample(), which are behind the items. */
static void check_common(const struct plan_world *w, uint32_t count, const uint32_t *entries,
                         size_t length, bool fine)
{
    OWNED_BY(buffer_release) struct buffer plan = {0};

    buffer_put(&plan, w->out.bytes, 4);
    buffer_put_u32le(&plan, 0);
    buffer_put_u64le(&plan, 7);
    buffer_put_u32le(&plan, count);
    for (size_t i = 0; i < length; i++)
        buffer_put_u32le(&plan, entries[i]);
    assert_int_equal(decode_with(w, plan.bytes, plan.length, NULL),
                     fine ? SIDESTEP_OK : SIDESTEP_ECORRUPT);
}

TEST(hostile_common_tensors_are_refused)
{
    struct plan_world w;

    plan_world_sample(&w);
    check_common(&w, 0, NULL, 0, true);
    check_common(&w, 2, (const uint32_t[]){1, 0}, 2, true);
    check_common(&w, 1, (const uint32_t[]){2}, 1, false); /* an object */
    check_common(&w, 1, (const uint32_t[]){3}, 1, false);
    check_common(&w, 1, (const uint32_t[]){UINT32_MAX}, 1, false);
    check_common(&w, 2, (const uint32_t[]){1}, 1, false);
    check_common(&w, 1, (const uint32_t[]){1, 0}, 2, false);
    check_common(&w, UINT32_MAX, (const uint32_t[]){1, 0}, 2, false);
    plan_world_close(&w);
}

/* The plans list the tensors that all ranks have, in one order.  Tables may declare them to be
 * replicated after all. */
TEST(common_tensors_are_listed)
{
    OWNED_BY(buffer_release) struct buffer out = {0};
    const void *tables[3];
    size_t table_bytes[3], sizes[3];
    struct plan_world w;

    plan_world_open(&w, 3);
    for (uint32_t r = 0; r < 3; r++) {
        plan_world_add_rows(&w, r, "sharded", r, r + 1, 3, 4, 0);
        plan_world_add_rows(&w, r, "declared", 0, 5, 5, 2, SIDESTEP_TENSOR_REPLICATED);
        plan_world_add_object(&w, r, "object");
        plan_world_add_rows(&w, r, "empty", 0, 0, 0, 2, 0);
        if (r != 1)
            plan_world_add_rows(&w, r, "of two", 0, 5, 5, 2, 0);
        plan_world_add_rows(&w, r, r == 2 ? "b" : "a", 0, 5, 5, 2, 0);
        plan_world_add_rows(&w, r, r == 2 ? "a" : "b", 0, 5, 5, 2, 0);
    }
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    for (uint32_t r = 0; r < 3; r++) {
        const struct save_plan *plan = &w.plans[r];
        assert_int_equal(plan->common_count, 2);
        assert_string_equal(w.states[r]->entries[plan->common[0]].name, "a");
        assert_string_equal(w.states[r]->entries[plan->common[1]].name, "b");
        assert_int_equal(plan_world_find(&w, r, "b") != NULL, r == 0);
    }
    for (uint32_t r = 0; r < 3; r++) {
        bool replicated[8] = {0};
        replicated[w.plans[r].common[1]] = true;
        buffer_release(&w.tables[r]);
        assert_int_equal(save_plan_table_encode(w.states[r], replicated, &w.tables[r], NULL), 0);
        tables[r] = w.tables[r].bytes;
        table_bytes[r] = w.tables[r].length;
    }
    assert_int_equal(save_plan_build(tables, table_bytes, 3, NULL, &out, sizes, NULL), 0);
    uint64_t before = w.plans[0].global_digest;
    size_t at = 0;
    for (uint32_t r = 0; r < 3; at += sizes[r++]) {
        save_plan_release(&w.plans[r]);
        assert_int_equal(save_plan_decode(out.bytes + at, sizes[r], w.states[r], &w.plans[r], NULL),
                         0);
        assert_int_equal(plan_world_find(&w, r, "b") != NULL, r == 2); /* 1 has "declared" */
        assert_int_equal(w.plans[r].common_count, 1);
        assert_true(w.plans[r].global_digest != before);
    }
    plan_world_close(&w);
}

/* No entry twice, tensors first: in another order, the file would not be the agreed one. */
TEST(plans_out_of_order_are_refused)
{
    static const struct {
        uint32_t entries[3];
        enum sidestep_status status;
    } cases[] = {
        {{0, 2, 1}, SIDESTEP_OK},       {{0, 0, 1}, SIDESTEP_ECORRUPT},
        {{2, 0, 1}, SIDESTEP_ECORRUPT}, {{0, 1, 2}, SIDESTEP_ECORRUPT},
        {{0, 1, 1}, SIDESTEP_ECORRUPT}, {{0, 2, 3}, SIDESTEP_ECORRUPT},
    };
    struct plan_world w;

    plan_world_open(&w, 2);
    plan_world_add_rows(&w, 0, "a", 0, 1, 1, 1, 0);
    plan_world_add_rows(&w, 1, "v", 0, 1, 1, 1, 0);
    plan_world_add_object(&w, 1, "o");
    plan_world_add_rows(&w, 1, "w", 0, 1, 1, 1, 0);
    assert_int_equal(plan_world_plan(&w, NULL), SIDESTEP_OK);
    uint8_t *items = w.out.bytes + w.sizes[0] + 16;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        for (size_t k = 0; k < 3; k++)
            items[5 * k] = (uint8_t)cases[i].entries[k];
        assert_int_equal(decode_with(&w, items - 16, w.sizes[1], NULL), cases[i].status);
    }
    plan_world_close(&w);
}
