/* SPDX-License-Identifier: BSD-3-Clause */
/* load_plan_test.c -- finds the stored chunks for each shard, and refuses what cannot be filled. */
#include <errno.h>

#include "base/fault.h"
#include "base/owned.h"
#include "plan/load_plan.h"
#include "support/saved.h"
#include "support/unit.h"

static float data[256];

/* ---------------------------------------------------------------- what is saved, and wanted */

static struct metadata_entry *save_object(struct metadata *m, const char *name)
{
    struct metadata_entry *entry = &m->entries[m->count++];

    *entry = (struct metadata_entry){
        .name = name, .is_object = true, .storage = {.file = "objects", .length = 5}};
    return entry;
}

static void want_rows(struct sidestep_state_dict *state, const char *name, int64_t begin,
                      int64_t end, int64_t rows, int64_t columns)
{
    want(state, name, SIDESTEP_FLOAT32, DIMS(rows, columns),
         &(struct box){2, DIMS(begin, 0), DIMS(end - begin, columns)}, NULL, data);
}

static void save_rows(struct metadata *m, const char *name, int64_t rows, int64_t columns,
                      int64_t step)
{
    struct box boxes[16];
    int64_t numbers[16][4];
    size_t count = 0;

    for (int64_t row = 0; row < rows; row += step, count++) {
        int64_t end = row + step < rows ? row + step : rows;

        memcpy(numbers[count], DIMS(row, 0, end - row, columns), sizeof(numbers[count]));
        boxes[count] = (struct box){2, numbers[count], numbers[count] + 2};
    }
    save_tensor(m, name, SIDESTEP_FLOAT32, 2, DIMS(rows, columns), boxes, count);
}

/* ---------------------------------------------------------------- names */

TEST(names_are_sorted_out)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct load_plan plan;

    save_rows(&m, "w", 2, 3, 2);
    save_rows(&m, "shape", 2, 3, 2);
    save_tensor(&m, "dtype", SIDESTEP_FLOAT32, 1, DIMS(4), &(struct box){1, DIMS(0), DIMS(4)}, 1);
    struct metadata_entry *strange = save_tensor(&m, "strange", SIDESTEP_DTYPE_NONE, 1, DIMS(4),
                                                 &(struct box){1, DIMS(0), DIMS(4)}, 1);
    strange->dtype_name = "float128";
    save_object(&m, "was object");
    save_rows(&m, "was tensor", 2, 3, 2);
    save_rows(&m, "z unexpected", 2, 3, 2);
    save_object(&m, "a unexpected");
    assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);

    want_rows(state, "w", 0, 1, 2, 3);
    want_rows(state, "z missing", 0, 1, 2, 3);
    want_rows(state, "a missing", 0, 1, 2, 3);
    want_rows(state, "a missing", 1, 2, 2, 3);
    want_rows(state, "shape", 0, 1, 3, 3);
    want_rows(state, "shape", 1, 2, 3, 3);
    want(state, "dtype", SIDESTEP_BFLOAT16, DIMS(4), &(struct box){1, DIMS(0), DIMS(4)}, NULL,
         data);
    want(state, "strange", SIDESTEP_INT8, DIMS(4), &(struct box){1, DIMS(0), DIMS(4)}, NULL, data);
    want(state, "was object", SIDESTEP_INT8, NULL, &(struct box){0, NULL, NULL}, NULL, data);
    assert_int_equal(sidestep_state_dict_add_value(state, "was tensor", NULL, 0, NULL, NULL), 0);
    assert_int_equal(load_plan_build(&m, state, true, &plan, NULL), SIDESTEP_OK);

    assert_int_equal(plan.count, 1);
    assert_string_equal(plan.chunks[0].entry->name, "w");
    assert_int_equal(plan.wanted_bytes, 12);
    assert_int_equal(plan.missing_count, 2);
    assert_string_equal(plan.missing[0], "a missing");
    assert_string_equal(plan.missing[1], "z missing");
    assert_int_equal(plan.unexpected_count, 2);
    assert_string_equal(plan.unexpected[0], "a unexpected");
    assert_string_equal(plan.unexpected[1], "z unexpected");
    assert_int_equal(plan.mismatched_count, 5);
    assert_string_equal(plan.mismatched[0], "dtype: saved float32 [4], wanted bfloat16 [4]");
    assert_string_equal(plan.mismatched[1], "shape: saved float32 [2,3], wanted float32 [3,3]");
    assert_string_equal(plan.mismatched[2], "strange: saved float128 [4], wanted int8 [4]");
    assert_string_equal(plan.mismatched[3], "was object: saved object, wanted int8 []");
    assert_string_equal(plan.mismatched[4], "was tensor: saved float32 [2,3], wanted object");
    load_plan_release(&plan);
    assert_int_equal(load_plan_build(&m, state, false, &plan, NULL), SIDESTEP_OK);
    assert_true(plan.count == 1 && plan.missing_count == 2 && plan.unexpected_count == 0);
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

TEST(chunks_come_in_file_order)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct load_plan plan;

    save_rows(&m, "w", 6, 2, 2);
    m.entries[0].chunks[0].storage = (struct metadata_storage){.file = "b", .offset = 10};
    m.entries[0].chunks[1].storage = (struct metadata_storage){.file = "b", .offset = 0};
    m.entries[0].chunks[2].storage = (struct metadata_storage){.file = "a", .offset = 99};
    struct metadata_entry *object = save_object(&m, "step");
    object->storage = (struct metadata_storage){.file = "b", .offset = 5};
    assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
    want_rows(state, "w", 0, 3, 6, 2);
    want_rows(state, "w", 3, 6, 6, 2);
    want_rows(state, "w", 6, 6, 6, 2); /* nothing of it */
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL), 0);
    assert_int_equal(load_plan_build(&m, state, true, &plan, NULL), SIDESTEP_OK);

    assert_int_equal(plan.count, 4);
    assert_ptr_equal(plan.chunks[0].storage, &m.entries[0].chunks[2].storage);
    assert_ptr_equal(plan.chunks[1].storage, &m.entries[0].chunks[1].storage);
    assert_ptr_equal(plan.chunks[2].storage, &object->storage);
    assert_ptr_equal(plan.chunks[3].storage, &m.entries[0].chunks[0].storage);
    assert_int_equal(plan.chunks[1].target_count, 2); /* rows 2 and 3 */
    assert_ptr_equal(plan.chunks[1].targets[0], &state->entries[0]);
    assert_ptr_equal(plan.chunks[1].targets[1], &state->entries[1]);
    assert_int_equal(plan.chunks[0].target_count, 1);
    assert_ptr_equal(plan.chunks[0].targets[0], &state->entries[1]);
    assert_int_equal(plan.chunks[2].target_count, 1);
    assert_true(plan.chunks[2].entry->is_object);
    assert_ptr_equal(plan.chunks[2].targets[0], state_dict_find(state, "step"));
    assert_int_equal(plan.chunks[2].box.ndim, 0);
    assert_int_equal(plan.wanted_bytes, 48);
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

/* ---------------------------------------------------------------- what is refused */

/* The state wants rows [begin, end) of 4 x 2 from these chunks of two rows each. */
static void check_damage(const struct box *boxes, size_t count, int64_t begin, int64_t end,
                         const char *words)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct sidestep_error err = {0};
    struct load_plan plan = {0};

    save_tensor(&m, "w", SIDESTEP_FLOAT32, 2, DIMS(4, 2), boxes, count);
    assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
    want_rows(state, "w", begin, end, 4, 2);
    enum sidestep_status status = load_plan_build(&m, state, true, &plan, &err);
    assert_int_equal(status, words != NULL ? SIDESTEP_ECORRUPT : SIDESTEP_OK);
    if (words != NULL) {
        assert_int_equal(err.status, SIDESTEP_ECORRUPT);
        if (strstr(err.message, words) == NULL)
            fail_msg("'%s' lacks '%s'", err.message, words);
        assert_int_equal(load_plan_build(&m, state, true, &plan, NULL), SIDESTEP_ECORRUPT);
    }
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

TEST(damaged_metadata_is_refused)
{
    const struct box top = {2, DIMS(0, 0), DIMS(2, 2)}, bottom = {2, DIMS(2, 0), DIMS(2, 2)};
    const struct box boxes[][3] = {
        {top, bottom},
        {top, bottom, {2, DIMS(4, 0), DIMS(0, 2)}},
        {top, bottom, {2, DIMS(1, 0), DIMS(1, 1)}},
        {top, bottom, {2, DIMS(0, 0), DIMS(2, INT64_MAX)}},
        {top, bottom, {2, DIMS(-1, 0), DIMS(1, 1)}},
        {top, bottom, {1, DIMS(0), DIMS(4)}},
    };

    check_damage(boxes[0], 2, 0, 4, NULL);
    check_damage(boxes[0], 1, 0, 2, NULL); /* the state does not want what is missing */
    check_damage(boxes[0], 1, 1, 3,
                 "'w': the stored chunks do not cover the box [1:3,0:2] of the shape [4,2]");
    check_damage(boxes[0], 0, 0, 1, "do not cover");
    check_damage(boxes[0], 0, 2, 2, NULL);
    check_damage(boxes[1], 3, 0, 4, NULL);
    check_damage(boxes[2], 3, 3, 4, "'w': stored chunks overlap, one is [1:2,0:1]");
    check_damage(boxes[3], 3, 0, 4, "'w': stored chunk 2: in dimension 1");
    check_damage(boxes[4], 3, 0, 4, "'w': stored chunk 2: offsets[0] is -1");
    check_damage(boxes[5], 3, 0, 4, "'w': a chunk has 1 dimensions, but the tensor has 2");
}

TEST(chunks_without_storage_are_refused_if_needed)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    struct sidestep_error err = {0};
    struct load_plan plan;

    save_rows(&m, "w", 4, 2, 2);
    save_object(&m, "step")->storage.file = NULL;
    m.entries[0].chunks[1].storage.file = NULL;
    assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
    want_rows(state, "w", 0, 2, 4, 2);
    assert_int_equal(load_plan_build(&m, state, true, &plan, &err), SIDESTEP_OK);
    load_plan_release(&plan);
    want_rows(state, "w", 2, 3, 4, 2);
    assert_int_equal(load_plan_build(&m, state, true, &plan, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "'w': the metadata does not say where the chunk "
                                        "[2:4,0:2] is stored"));
    sidestep_state_dict_free(&state);
    state = new_state();
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL), 0);
    assert_int_equal(load_plan_build(&m, state, true, &plan, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "'step': the metadata does not say where the object is"));
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

TEST(expanded_shards_are_refused)
{
    static const struct {
        int64_t lengths[2], strides[2];
        const char *words;
    } cases[] = {
        {{2, 2}, {2, 0}, "stride is 0 in dimension 1 (length 2): its elements share memory"},
        {{2, 2}, {0, 1}, "'w': cannot load into a shard whose stride is 0 in dimension 0"},
        {{1, 2}, {0, 1}, NULL},
        {{2, 2}, {-2, 1}, NULL},
        {{2, 0}, {0, 0}, NULL},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct metadata m = new_metadata();
        struct sidestep_state_dict *state = new_state();
        struct sidestep_error err = {0};
        struct load_plan plan = {0};

        save_rows(&m, "w", 2, 2, 2);
        assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
        want(state, "w", SIDESTEP_FLOAT32, DIMS(2, 2),
             &(struct box){2, DIMS(0, 0), cases[i].lengths}, cases[i].strides, data + 8);
        enum sidestep_status status = load_plan_build(&m, state, true, &plan, &err);
        assert_int_equal(status, cases[i].words != NULL ? SIDESTEP_EINVAL : SIDESTEP_OK);
        assert_true(cases[i].words == NULL || strstr(err.message, cases[i].words) != NULL);
        load_plan_release(&plan);
        metadata_release(&m);
        sidestep_state_dict_free(&state);
    }
}

/* ---------------------------------------------------------------- many */

/* A grid of chunks and a grid of shards, shifted against each other. */
TEST(large_grids_meet_where_they_should)
{
    enum { SIDE = 64, CELL = 8 };
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();
    OWNED struct box *boxes = calloc(SIDE * SIDE, sizeof(*boxes));
    OWNED int64_t *offsets = calloc(SIDE * SIDE, 2 * sizeof(*offsets));
    const int64_t shape[] = {SIDE * CELL, SIDE * CELL}, cell[] = {CELL, CELL};
    struct load_plan plan;
    size_t targets = 0;

    assert_true(boxes != NULL && offsets != NULL);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        offsets[2 * i] = i / SIDE * CELL;
        offsets[2 * i + 1] = i % SIDE * CELL;
        boxes[i] = (struct box){2, offsets + 2 * i, cell};
    }
    save_tensor(&m, "w", SIDESTEP_FLOAT32, 2, shape, boxes, SIDE * SIDE);
    assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
    for (int64_t i = 0; i < (SIDE - 1) * (SIDE - 1); i++) {
        struct box box = {2, DIMS(i / (SIDE - 1) * CELL + 1, i % (SIDE - 1) * CELL + 1), cell};

        want(state, "w", SIDESTEP_FLOAT32, shape, &box, NULL, data);
    }
    assert_int_equal(load_plan_build(&m, state, true, &plan, NULL), SIDESTEP_OK);
    assert_int_equal(plan.count, SIDE * SIDE);
    for (size_t i = 0; i < plan.count; i++)
        targets += plan.chunks[i].target_count;
    assert_int_equal(targets, 4 * (SIDE - 1) * (SIDE - 1));
    load_plan_release(&plan);
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}

TEST(every_allocation_may_fail)
{
    struct metadata m = new_metadata();
    struct sidestep_state_dict *state = new_state();

    save_rows(&m, "w", 16, 2, 1);
    m.entries[0].chunk_count = 15;
    save_rows(&m, "v", 4, 2, 2);
    save_rows(&m, "other", 4, 2, 2);
    save_object(&m, "step");
    assert_int_equal(metadata_index_names(&m, NULL), SIDESTEP_OK);
    for (int64_t row = 0; row < 15; row++)
        want_rows(state, "w", row, row + 1, 16, 2);
    want_rows(state, "v", 0, 4, 4, 2);
    want_rows(state, "other", 0, 4, 5, 2);
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, NULL), 0);
    for (unsigned long n = 1;; n++) {
        struct load_plan plan = {0};

        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = load_plan_build(&m, state, true, &plan, NULL);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        assert_int_equal(plan.count, fired ? 0 : 18);
        load_plan_release(&plan);
        if (!fired)
            break;
    }
    metadata_release(&m);
    sidestep_state_dict_free(&state);
}
