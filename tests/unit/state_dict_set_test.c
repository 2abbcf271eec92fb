/* SPDX-License-Identifier: BSD-3-Clause */
/* state_dict_set_test.c -- changes addresses and objects of a state dict, without its layout. */
#include "model/state_dict.h"
#include "support/unit.h"

static char memory[4096];

/* Two shards of "w" around an object, a shard without elements, and one with negative strides. */
static struct sidestep_state_dict *new_state(void)
{
    struct sidestep_state_dict *state = NULL;
    struct sidestep_tensor t = {.struct_size = sizeof(t),
                                .name = "w",
                                .dtype = SIDESTEP_FLOAT32,
                                .ndim = 1,
                                .shape = (int64_t[]){8},
                                .lengths = (int64_t[]){4},
                                .data = memory};

    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    assert_int_equal(
        sidestep_state_dict_add_value(state, "o", NULL, 0, sidestep_value_int(1), NULL),
        SIDESTEP_OK);
    t.offsets = (int64_t[]){4};
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    t.name = "empty", t.offsets = NULL, t.lengths = (int64_t[]){0};
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    t.name = "back", t.lengths = (int64_t[]){8}, t.strides = (int64_t[]){-1}, t.data = memory + 64;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    return state;
}

TEST(addresses_are_set_in_order)
{
    struct sidestep_state_dict *state = new_state();
    void *const data[] = {memory + 4, memory + 8, NULL, memory + 128};
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_state_dict_set_data(state, data, 4, &err), SIDESTEP_OK);
    assert_ptr_equal(state->entries[0].data, memory + 4);
    assert_null(state->entries[1].data); /* the object */
    assert_ptr_equal(state->entries[2].data, memory + 8);
    assert_null(state->entries[3].data);
    assert_ptr_equal(state->entries[4].data, memory + 128);
    assert_int_equal(state->entries[4].strides[0], -1);
    sidestep_state_dict_free(&state);
}

TEST(all_or_none)
{
    static const struct {
        void *data[5];
        size_t count;
        const char *says;
    } cases[] = {
        {{memory, memory, memory, memory}, 3, "3 addresses for the 4 tensor shards of the state"},
        {{memory, memory, memory, memory}, 5, "5 addresses for the 4 tensor shards of the state"},
        {{0}, 0, "0 addresses for the 4 tensor shards"},
        {{memory + 4, NULL, NULL, memory + 64},
         4,
         "'w': the address is NULL, but the shard has 4 elements"},
        {{memory + 4, memory, NULL, (void *)8}, 4, "'back': strides [-1] put the shard out"},
    };
    struct sidestep_state_dict *state = new_state();
    struct sidestep_state_dict *empty = NULL;
    struct sidestep_error err = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(sidestep_state_dict_set_data(state, cases[i].data, cases[i].count, &err),
                         SIDESTEP_EINVAL);
        if (strstr(err.message, cases[i].says) == NULL)
            fail_msg("%zu: '%s'", i, err.message);
        assert_ptr_equal(state->entries[0].data, memory);
        assert_ptr_equal(state->entries[4].data, memory + 64);
    }
    assert_int_equal(sidestep_state_dict_set_data(state, NULL, 4, &err), SIDESTEP_EINVAL);
    assert_string_equal(err.message, "the list of addresses is NULL");
    assert_int_equal(sidestep_state_dict_set_data(NULL, NULL, 0, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_new(&empty, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_set_data(empty, NULL, 0, &err), SIDESTEP_OK);
    sidestep_state_dict_free(&empty);
    sidestep_state_dict_free(&state);
}
