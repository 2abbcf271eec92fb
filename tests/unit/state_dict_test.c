/* SPDX-License-Identifier: BSD-3-Clause */
/* state_dict_test.c -- what a state dict stores, and what it refuses. */
#include <errno.h>

#include "base/fault.h"
#include "base/owned.h"
#include "model/state_dict.h"
#include "support/unit.h"

static float data[64];

static struct sidestep_state_dict *new_state(void)
{
    struct sidestep_state_dict *state = NULL;

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    return state;
}

static struct sidestep_tensor tensor(const char *name, uint32_t ndim, const int64_t *shape)
{
    return (struct sidestep_tensor){
        .struct_size = sizeof(struct sidestep_tensor),
        .name = name,
        .dtype = SIDESTEP_FLOAT32,
        .ndim = ndim,
        .shape = shape,
        .data = data,
    };
}

/* ---------------------------------------------------------------- what is kept */

TEST(everything_is_copied)
{
    struct sidestep_state_dict *state = new_state();
    char name[] = "model.7", key[] = "model";
    int64_t shape[] = {4, 6}, offsets[] = {2, 0}, lengths[] = {2, 6}, strides[] = {1, 2};
    struct sidestep_path_item path[] = {{.key = key}, {.index = 7}};
    struct sidestep_tensor t = tensor(name, 2, shape);

    t.offsets = offsets, t.lengths = lengths, t.strides = strides;
    t.path = path, t.path_length = 2;
    t.flags = SIDESTEP_TENSOR_REPLICATED | SIDESTEP_TENSOR_REQUIRES_GRAD;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    memset(name, 'x', sizeof(name) - 1);
    memset(key, 'x', sizeof(key) - 1);
    shape[0] = offsets[0] = lengths[0] = strides[0] = path[1].index = -1;

    const struct state_entry *entry = state_dict_find(state, "model.7");
    assert_non_null(entry);
    assert_ptr_equal(entry, &state->entries[0]);
    assert_string_equal(entry->name, "model.7");
    assert_int_equal(entry->dtype, SIDESTEP_FLOAT32);
    assert_int_equal(entry->flags, 3);
    assert_memory_equal(entry->shape, ((int64_t[]){4, 6}), 16);
    assert_memory_equal(entry->box.offsets, ((int64_t[]){2, 0}), 16);
    assert_memory_equal(entry->box.lengths, ((int64_t[]){2, 6}), 16);
    assert_memory_equal(entry->strides, ((int64_t[]){1, 2}), 16);
    assert_int_equal(entry->path_length, 2);
    assert_string_equal(entry->path[0].key, "model");
    assert_null(entry->path[1].key);
    assert_int_equal(entry->path[1].index, 7);
    struct box_memory memory = state_entry_memory(entry);
    assert_ptr_equal(memory.data, data);
    assert_int_equal(memory.item_bytes, 4);
    assert_ptr_equal(memory.strides, entry->strides);
    assert_null(state_dict_find(state, "model"));
    sidestep_state_dict_free(&state);
    assert_null(state);
    sidestep_state_dict_free(&state);
    sidestep_state_dict_free(NULL);
}

TEST(defaults_are_filled_in)
{
    struct sidestep_state_dict *state = new_state();
    struct sidestep_tensor t = tensor("w", 3, (int64_t[]){2, 3, 4});

    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    t = tensor("scalar", 0, NULL);
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    t = tensor("empty", 2, (int64_t[]){0, 4});
    t.data = NULL;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    const struct state_entry *entry = &state->entries[0];
    assert_memory_equal(entry->box.offsets, ((int64_t[]){0, 0, 0}), 24);
    assert_memory_equal(entry->box.lengths, ((int64_t[]){2, 3, 4}), 24);
    assert_memory_equal(entry->strides, ((int64_t[]){12, 4, 1}), 24);
    assert_int_equal(entry->path_length, 1);
    assert_string_equal(entry->path[0].key, "w");
    assert_int_equal(state->entries[1].ndim, 0);
    assert_int_equal(box_volume(&state->entries[1].box), 1);
    assert_int_equal(state->count, 3);
    sidestep_state_dict_free(&state);
}

TEST(shards_of_a_name_are_chained_in_order)
{
    struct sidestep_state_dict *state = new_state();

    for (int64_t i = 0; i < 8; i++) { /* even ones are "a", odd ones "b" */
        struct sidestep_tensor t = tensor(i % 2 == 0 ? "a" : "b", 1, (int64_t[]){8});
        t.offsets = &i, t.lengths = (int64_t[]){1};
        assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    }
    const struct state_entry *first = state_dict_find(state, "b");
    size_t index = first->first_same_name;
    for (size_t want = 1; want < 8; want += 2) {
        assert_int_equal(index, want);
        assert_int_equal(state->entries[index].first_same_name, 1);
        index = state->entries[index].next_same_name;
    }
    assert_int_equal(index, SIZE_MAX);
    sidestep_state_dict_free(&state);
}

/* ---------------------------------------------------------------- what is refused */

#define BIG ((int64_t)1 << 40)

struct refusal {
    struct sidestep_tensor tensor; /* struct_size is filled in */
    const char *words;
    enum sidestep_status status; /* 0: EINVAL */
};

static void check_refusals(const struct refusal *cases, size_t count)
{
    struct sidestep_state_dict *state = new_state();
    struct sidestep_tensor t = tensor("there", 2, (int64_t[]){4, 4});

    t.offsets = (int64_t[]){0, 0}, t.lengths = (int64_t[]){2, 4};
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_value(state, "object", NULL, 0, NULL, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        enum sidestep_status wanted = cases[i].status != 0 ? cases[i].status : SIDESTEP_EINVAL;
        struct sidestep_error err = {0};

        t = cases[i].tensor;
        t.struct_size = sizeof(t);
        enum sidestep_status status = sidestep_state_dict_add_tensor(state, &t, &err);
        if (status != wanted || err.status != (int)wanted ||
            strstr(err.message, cases[i].words) == NULL)
            fail_msg("case %zu: status %d, '%s' lacks '%s'", i, status, err.message,
                     cases[i].words);
        if (t.name != NULL && t.name[0] != '\0' && strlen(t.name) < 10 &&
            strstr(err.message, t.name) == NULL)
            fail_msg("case %zu: '%s' does not name the tensor", i, err.message);
        assert_int_equal(state->count, 2);
    }
    sidestep_state_dict_free(&state);
}

#define TENSOR(...) .tensor = {.dtype = SIDESTEP_FLOAT32, .data = data, __VA_ARGS__}
#define DIMS(...) ((int64_t[]){__VA_ARGS__})

TEST(bad_tensors_are_refused)
{
    const struct refusal cases[] = {
        {TENSOR(.name = NULL), .words = "the name is NULL"},
        {TENSOR(.name = ""), .words = "the name is empty"},
        {TENSOR(.name = "a\xc3"), .words = "'a\xc3': the name is not UTF-8"},
        {.tensor = {.name = "w", .data = data}, .words = "'w': there is no dtype 0"},
        {.tensor = {.name = "w", .dtype = SIDESTEP_DTYPE_END}, .words = "there is no dtype"},
        {.tensor = {.name = "w", .dtype = (enum sidestep_dtype) - 1}, .words = "no dtype -1"},
        {TENSOR(.name = "w", .ndim = 65, .shape = DIMS(1)), .words = "65 dimensions, the limit"},
        {TENSOR(.name = "w", .ndim = 1), .words = "'w': the shape is NULL"},
        {TENSOR(.name = "w", .flags = 64), .words = "does not know the flags 0x40",
         .status = SIDESTEP_EUNSUPPORTED},
        {TENSOR(.name = "w", .reserved = 1), .words = "'w': reserved is 1",
         .status = SIDESTEP_EUNSUPPORTED},
        {TENSOR(.name = "w", .ndim = 1, .shape = DIMS(-3)), .words = "'w': shape[0] is -3"},
        {TENSOR(.name = "w", .ndim = 1, .shape = DIMS(4), .offsets = DIMS(2), .lengths = DIMS(3)),
         .words = "'w': in dimension 0, 3 elements at offset 2 lie outside 4"},
        {TENSOR(.name = "w", .ndim = 2, .shape = DIMS(BIG, BIG)),
         .words = "'w': the shape has more than 2^62 bytes"},
        {.tensor = {.name = "w", .dtype = SIDESTEP_INT8, .ndim = 1, .shape = DIMS(3)},
         .words = "'w': the address is NULL, but the shard has 3 elements"},
        {TENSOR(.name = "w", .ndim = 1, .shape = DIMS(3), .strides = DIMS(INT64_MAX)),
         .words = "strides[0] is 9223372036854775807, which puts the shard outside of memory"},
        {TENSOR(.name = "w", .ndim = 1, .shape = DIMS(3), .strides = DIMS(INT64_MIN)),
         .words = "puts the shard outside of memory"},
        {TENSOR(.name = "w", .ndim = 2, .shape = DIMS(2, 2), .strides = DIMS(BIG << 20, BIG << 20)),
         .words = "the shard outside of memory"},
        {TENSOR(.name = "w", .ndim = 1, .shape = DIMS(2), .strides = DIMS(-(BIG << 15))),
         .words = "strides [-36028797018963968] put the shard outside of memory"},
        {.tensor = {.name = "w",
                    .dtype = SIDESTEP_FLOAT32,
                    .ndim = 1,
                    .shape = DIMS(4),
                    .data = (void *)(UINTPTR_MAX - 14)},
         .words = "put the shard outside of memory"},
        {TENSOR(.name = "object", .ndim = 0),
         .words = "'object' is an object of this state already"},
        {.tensor = {.name = "there",
                    .dtype = SIDESTEP_INT32,
                    .ndim = 2,
                    .shape = DIMS(4, 4),
                    .data = data},
         .words = "'there': dtype int32, but float32 for an earlier shard"},
        {TENSOR(.name = "there", .ndim = 2, .shape = DIMS(4, 5)),
         .words = "'there': shape [4,5], but [4,4] for an earlier shard"},
        {TENSOR(.name = "there", .ndim = 1, .shape = DIMS(4)),
         .words = "'there': shape [4], but [4,4] for an earlier shard"},
        {TENSOR(.name = "there", .ndim = 2, .shape = DIMS(4, 4), .lengths = DIMS(2, 4)),
         .words = "'there': the box [0:2,0:4] was added already"},
    };

    check_refusals(cases, ARRAY_LENGTH(cases));
}

TEST(bad_paths_are_refused)
{
    const struct sidestep_path_item negative[] = {{.key = "a"}, {.index = -1}},
                                    raw[] = {{.key = "\xff"}};
    const struct refusal cases[] = {
        {TENSOR(.name = "w", .path_length = 1), .words = "path_length is 1, but path is NULL"},
        {TENSOR(.name = "w", .path_length = 65, .path = negative),
         .words = "the path has 65 items, the limit is 64"},
        {TENSOR(.name = "w", .path_length = 2, .path = negative),
         .words = "path[1] is the index -1"},
        {TENSOR(.name = "w", .path_length = 1, .path = raw), .words = "path[0] is not UTF-8"},
        {TENSOR(.name = "w.1", .path_length = 2,
                .path = (struct sidestep_path_item[]){{.key = "w"}, {.index = 1, .flags = 2}}),
         .words = "'w.1': path[1] has flags (0x2) that this library does not know",
         .status = SIDESTEP_EUNSUPPORTED},
        {TENSOR(.name = "w", .path_length = 1,
                .path = (struct sidestep_path_item[]){{.key = "w", .reserved = 1}}),
         .words = "'w': path[0] has reserved fields that are not zero"},
        {TENSOR(.name = "1", .path_length = 1,
                .path = (struct sidestep_path_item[]){{.key = "1", .flags = 1}}),
         .words = "path[0] is both a text and an integer key"},
        {TENSOR(.name = "a.3", .path_length = 2,
                .path = (struct sidestep_path_item[]){{.key = "a"}, {.index = 4}}),
         .words = "joined by '.', are another name"},
        {TENSOR(.name = "a.4.", .path_length = 2,
                .path = (struct sidestep_path_item[]){{.key = "a"}, {.index = 4}}),
         .words = "joined by '.', are another name"},
    };

    check_refusals(cases, ARRAY_LENGTH(cases));
}

TEST(strange_layouts_are_accepted)
{
    struct sidestep_state_dict *state = new_state();
    static const int64_t strides[][2] = {{0, 0}, {-4, 1}, {1, -4}, {0, -1}, {INT64_MAX, 1}};

    for (size_t i = 0; i < ARRAY_LENGTH(strides); i++) {
        char name[] = {(char)('a' + i), '\0'};
        struct sidestep_tensor t =
            tensor(name, 2, strides[i][0] == INT64_MAX ? DIMS(1, 4) : DIMS(4, 4));

        t.strides = strides[i], t.data = data + 32;
        assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
        assert_memory_equal(state->entries[i].strides, strides[i], sizeof(strides[i]));
    }
    sidestep_state_dict_free(&state);
}

TEST(null_arguments_and_unknown_fields_are_refused)
{
    struct sidestep_state_dict *state = new_state();
    struct {
        struct sidestep_tensor tensor;
        uint64_t newer;
    } future = {.tensor = tensor("w", 0, NULL)};
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_state_dict_new(NULL, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_add_tensor(NULL, &future.tensor, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "the state dict is NULL"));
    assert_int_equal(sidestep_state_dict_add_tensor(state, NULL, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "the tensor is NULL"));
    assert_int_equal(sidestep_state_dict_add_value(NULL, "x", NULL, 0, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_add_bytes(state, "x", NULL, 0, NULL, 3, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "'x': 3 bytes at NULL"));
    assert_int_equal(sidestep_state_dict_add_bytes(state, NULL, NULL, 0, "abc", 3, &err),
                     SIDESTEP_EINVAL);
    assert_null(sidestep_state_dict_value(NULL, "x"));
    assert_null(sidestep_state_dict_bytes(state, NULL, NULL));

    future.tensor.struct_size = sizeof(future);
    assert_int_equal(sidestep_state_dict_add_tensor(state, &future.tensor, &err), SIDESTEP_OK);
    future.tensor.name = "v", future.newer = 1;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &future.tensor, &err),
                     SIDESTEP_EUNSUPPORTED);
    future.tensor.struct_size = 0;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &future.tensor, &err), SIDESTEP_EINVAL);
    assert_int_equal(state->count, 1);
    sidestep_state_dict_free(&state);
}

TEST(limits_hold_one_past)
{
    struct sidestep_state_dict *state = new_state();
    char name[SIDESTEP_MAX_NAME + 2];
    struct sidestep_path_item path[SIDESTEP_MAX_PATH_ITEMS + 1] = {0};
    struct sidestep_tensor t = tensor(name, 0, NULL);
    struct sidestep_error err = {0};
    int64_t ones[SIDESTEP_MAX_NDIM];

    memset(name, 'n', sizeof(name));
    name[SIDESTEP_MAX_NAME + 1] = '\0';
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "nnn...': the name has more than 4096 bytes"));
    path[0].key = name, t.name = "short", t.path = path, t.path_length = 1;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "the key path[0] has more than 4096 bytes"));
    name[SIDESTEP_MAX_NAME] = '\0';
    t.name = name, t.path_length = 1;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err), SIDESTEP_OK);
    char spelled[2 * SIDESTEP_MAX_PATH_ITEMS + 1] = "";
    for (size_t i = 0; i < SIDESTEP_MAX_PATH_ITEMS; i++) {
        path[i] = (struct sidestep_path_item){.index = 1};
        strcat(spelled, i == 0 ? "1" : ".1");
    }
    t.name = spelled, t.path_length = SIDESTEP_MAX_PATH_ITEMS;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err), SIDESTEP_OK);
    for (size_t i = 0; i < SIDESTEP_MAX_NDIM; i++)
        ones[i] = 1;
    t = tensor("deep", SIDESTEP_MAX_NDIM, ones);
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err), SIDESTEP_OK);

    size_t count = state->count;
    state->count = STATE_MAX_ENTRIES;
    t.name = "more";
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "16777216 entries already, which is the limit"));
    assert_int_equal(sidestep_state_dict_add_value(state, "o", NULL, 0, NULL, &err),
                     SIDESTEP_EINVAL);
    state->count = count;
    sidestep_state_dict_free(&state);
}

/* ---------------------------------------------------------------- objects */

TEST(objects_are_taken_on_success_only)
{
    struct sidestep_state_dict *state = new_state();
    struct sidestep_value *value = sidestep_value_int(7);
    struct sidestep_tensor t = tensor("tensor", 0, NULL);
    struct sidestep_error err = {0};
    size_t length = 99;

    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_value(state, "tensor", NULL, 0, value, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "'tensor' is a tensor of this state already"));
    assert_int_equal(sidestep_state_dict_add_value(state, "", NULL, 0, value, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, value, &err), 0);
    assert_int_equal(sidestep_state_dict_add_value(state, "step", NULL, 0, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "'step' is an object of this state already"));
    assert_int_equal(sidestep_state_dict_add_bytes(state, "step", NULL, 0, "x", 1, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(sidestep_value_get_int(sidestep_state_dict_value(state, "step")), 7);
    assert_null(sidestep_state_dict_bytes(state, "step", &length));
    assert_int_equal(length, 0);

    char bytes[] = "b\0c";
    assert_int_equal(sidestep_state_dict_add_bytes(state, "raw", NULL, 0, bytes, 3, &err), 0);
    bytes[0] = 'x';
    assert_memory_equal(sidestep_state_dict_bytes(state, "raw", &length), "b\0c", 3);
    assert_int_equal(length, 3);
    assert_int_equal(sidestep_state_dict_add_bytes(state, "none", NULL, 0, NULL, 0, &err), 0);
    assert_non_null(sidestep_state_dict_bytes(state, "none", NULL)); /* saved, not wanted */
    assert_null(sidestep_state_dict_value(state, "raw"));
    assert_null(sidestep_state_dict_value(state, "tensor"));

    struct state_entry *entry = state_dict_find(state, "step");
    assert_true(entry->is_object);
    state_entry_set_object(entry, sidestep_value_int(8), strdup("eight"), 5);
    assert_int_equal(sidestep_value_get_int(sidestep_state_dict_value(state, "step")), 8);
    assert_string_equal(sidestep_state_dict_bytes(state, "step", NULL), "eight");
    sidestep_state_dict_free(&state);
}

TEST(objects_can_be_given_another_content)
{
    struct sidestep_state_dict *state = new_state();
    struct sidestep_tensor t = tensor("tensor", 0, NULL);
    struct sidestep_value *value = sidestep_value_int(2);
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    assert_int_equal(
        sidestep_state_dict_add_value(state, "step", NULL, 0, sidestep_value_int(1), NULL), 0);
    assert_int_equal(sidestep_state_dict_set_value(state, "other", value, &err),
                     SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "no object 'other'"));
    assert_int_equal(sidestep_state_dict_set_value(state, "tensor", value, &err),
                     SIDESTEP_ENOTFOUND);
    assert_int_equal(sidestep_state_dict_set_value(NULL, "step", value, &err), SIDESTEP_ENOTFOUND);
    assert_int_equal(sidestep_state_dict_set_value(state, "step", NULL, &err), SIDESTEP_ENOMEM);
    assert_int_equal(sidestep_state_dict_set_bytes(state, "step", NULL, 1, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_value_get_int(sidestep_state_dict_value(state, "step")), 1);
    assert_int_equal(sidestep_state_dict_set_value(state, "step", value, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_value_get_int(sidestep_state_dict_value(state, "step")), 2);
    assert_int_equal(sidestep_state_dict_set_bytes(state, "step", "abc", 3, &err), SIDESTEP_OK);
    assert_null(sidestep_state_dict_value(state, "step"));
    assert_memory_equal(sidestep_state_dict_bytes(state, "step", NULL), "abc", 3);
    assert_int_equal(sidestep_state_dict_set_bytes(state, "step", NULL, 0, &err), SIDESTEP_OK);
    assert_non_null(sidestep_state_dict_bytes(state, "step", NULL));
    sidestep_state_dict_free(&state);
}

/* ---------------------------------------------------------------- many */

/* Comparing each box with all others would take minutes. */
TEST(many_shards_of_one_name)
{
    enum { SIDE = 160 };
    struct sidestep_state_dict *state = new_state();
    struct sidestep_error err = {0};

    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < SIDE * SIDE; i++) {
            struct sidestep_tensor t = tensor("w", 2, DIMS(SIDE, SIDE));

            t.offsets = DIMS(i / SIDE, i % SIDE), t.lengths = DIMS(1, 1);
            assert_int_equal(sidestep_state_dict_add_tensor(state, &t, &err),
                             round == 0 ? SIDESTEP_OK : SIDESTEP_EINVAL);
        }
    assert_non_null(strstr(err.message, "the box [159:160,159:160] was added already"));
    assert_int_equal(state->count, SIDE * SIDE);
    sidestep_state_dict_free(&state);
}

TEST(many_names_with_the_same_boxes)
{
    struct sidestep_state_dict *state = new_state();

    for (int64_t round = 0; round < 3; round++) /* two halves, and the first again */
        for (int i = 0; i < 5000; i++) {
            char name[16];
            struct sidestep_tensor t = tensor(name, 1, DIMS(4));

            snprintf(name, sizeof(name), "w%d", i);
            t.offsets = DIMS(round % 2 * 2), t.lengths = DIMS(2);
            assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL),
                             round < 2 ? SIDESTEP_OK : SIDESTEP_EINVAL);
        }
    sidestep_state_dict_free(&state);
}

static enum sidestep_status build_everything(struct sidestep_error *err)
{
    struct sidestep_state_dict *state = NULL;
    enum sidestep_status status = sidestep_state_dict_new(&state, err);

    for (int64_t i = 0; status == SIDESTEP_OK && i < 150; i++) {
        char name[16];
        struct sidestep_tensor t = tensor(name, 1, DIMS(150));
        size_t count = state->count;

        const struct sidestep_path_item path[] = {{.key = "a"}, {.index = i / 2}, {.key = "b"}};
        snprintf(name, sizeof(name), "a.%d.b", (int)i / 2);
        t.offsets = &i, t.lengths = DIMS(1), t.path = path, t.path_length = 3;
        status = sidestep_state_dict_add_tensor(state, &t, err);
        if (status == SIDESTEP_OK)
            status = i % 40 == 0
                         ? sidestep_state_dict_add_bytes(state, "raw", NULL, 0, "abc", 3, err)
                         : SIDESTEP_OK;
        if (status == SIDESTEP_EINVAL && i != 0) /* "raw" again */
            status = SIDESTEP_OK;
        assert_true(status == SIDESTEP_OK || state->count - count <= 1);
    }
    sidestep_state_dict_free(&state);
    return status;
}

TEST(every_allocation_may_fail)
{
    unsigned long n = 1;

    for (;; n++) {
        struct sidestep_error err = {0};

        fault_arm("memory", n, false, ENOMEM);
        enum sidestep_status status = build_everything(&err);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
        if (!fired)
            break;
        assert_non_null(strstr(err.message, "cannot allocate"));
    }
    assert_true(n > 10);
}
