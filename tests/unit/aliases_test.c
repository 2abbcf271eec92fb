/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aliases_test.c -- loads into tensors that share memory: consistent ones are loaded,
 * contradictory ones are refused, and mere neighbours do not matter.
 */
#include "load/fetch_item.h"
#include "model/model.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define ROWS 300
#define COLUMNS 700 /* more than one block */

static float saved[3][ROWS * COLUMNS]; /* "a" and "b" are equal */
static float memory[3 * ROWS * COLUMNS];
static char checkpoint[512];

static void add(struct sidestep_state_dict *state, const char *name, int64_t rows, int64_t columns,
                const int64_t *strides, float *data)
{
    const struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                           .name = name,
                                           .dtype = SIDESTEP_FLOAT32,
                                           .ndim = 2,
                                           .shape = (const int64_t[]){rows, columns},
                                           .strides = strides,
                                           .data = data};

    ASSERT_OK(sidestep_state_dict_add_tensor(state, &tensor, &err));
}

static int setup(void **test)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_state_dict *state = NULL;

    (void)test;
#ifdef __SANITIZE_THREAD__
    /* Threads may write to shared memory at once. Only the result matters, which is checked, but
     * ThreadSanitizer would report a race. */
    options.threads = 1;
#endif
    if (one_rank_begin(&options) != 0)
        return -1;
    snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint", scratch.path);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < ROWS * COLUMNS; i++)
            saved[k][i] = (float)(k == 2 ? -i : i);
    ASSERT_OK(sidestep_state_dict_new(&state, &err));
    add(state, "a", ROWS, COLUMNS, NULL, saved[0]);
    add(state, "b", ROWS, COLUMNS, NULL, saved[1]);
    add(state, "c", ROWS, COLUMNS, NULL, saved[2]);
    /* The second half of "a". */
    add(state, "half", ROWS / 2, COLUMNS, NULL, saved[0] + ROWS / 2 * COLUMNS);
    ASSERT_OK(sidestep_save(engine, checkpoint, state, NULL, NULL, &err));
    sidestep_state_dict_free(&state);
    return 0;
}

static int teardown(void **test)
{
    (void)test;
    return one_rank_end();
}

/* One tensor at the beginning of the memory, another of ${rows} at ${at}. */
static size_t read_in_place; /* how many of them are read straight into their memory */

static size_t count_read_in_place(const struct sidestep_state_dict *state)
{
    size_t count = 0;

    for (size_t i = 0; i < state->count; i++) {
        struct state_entry *targets[] = {&state->entries[i]};
        const struct load_plan_chunk chunk = {
            .box = targets[0]->box, .target_count = 1, .targets = targets};
        count += fetch_contiguous_target(&chunk) != NULL;
    }
    return count;
}

static enum sidestep_status load_two(const char *first, const int64_t *strides, const char *second,
                                     int64_t rows, const int64_t *second_strides, float *at)
{
    struct sidestep_state_dict *state = NULL;

    memset(memory, 0, sizeof(memory));
    ASSERT_OK(sidestep_state_dict_new(&state, &err));
    add(state, first, ROWS, COLUMNS, strides, memory);
    add(state, second, rows, COLUMNS, second_strides, at);
    enum sidestep_status status = sidestep_load(engine, checkpoint, state, NULL, NULL, &err);
    read_in_place = count_read_in_place(state);
    sidestep_state_dict_free(&state);
    return status;
}

TEST(equal_tensors_in_shared_memory_are_loaded)
{
    ASSERT_OK(load_two("a", NULL, "b", ROWS, NULL, memory));
    assert_memory_equal(memory, saved[0], sizeof(saved[0]));
    ASSERT_OK(load_two("a", NULL, "half", ROWS / 2, NULL, memory + ROWS / 2 * COLUMNS));
    assert_memory_equal(memory, saved[0], sizeof(saved[0]));
}

/* Its bytes are hashed where they are read to, and another thread may write the other tensor there.
 */
TEST(shared_memory_is_not_read_into_directly)
{
    ASSERT_OK(load_two("a", NULL, "b", ROWS, NULL, memory));
    assert_int_equal(read_in_place, 0);
    (void)load_two("a", NULL, "c", ROWS, NULL, memory + ROWS * COLUMNS - 1);
    assert_int_equal(read_in_place, 0);
    ASSERT_OK(load_two("a", NULL, "b", ROWS, NULL, memory + ROWS * COLUMNS));
    assert_int_equal(read_in_place, 2);
}

TEST(different_tensors_in_shared_memory_are_refused)
{
    for (int late = 0; late < 2; late++) { /* by one element, or by all */
        float *at = memory + (late ? ROWS * COLUMNS - 1 : 0);
        assert_int_equal(load_two("a", NULL, "c", ROWS, NULL, at), SIDESTEP_EMISMATCH);
        assert_non_null(strstr(err.message, "shares memory with another tensor"));
    }
    assert_int_equal(load_two("a", NULL, "half", ROWS / 2, NULL, memory), SIDESTEP_EMISMATCH);
}

/* A tensor with overlapping rows, beside one that it does not touch. */
TEST(a_tensor_that_overlaps_itself_is_refused)
{
    const int64_t strides[] = {1, 1};

    assert_int_equal(load_two("a", strides, "b", ROWS, NULL, memory + ROWS * COLUMNS),
                     SIDESTEP_EMISMATCH);
    assert_non_null(strstr(err.message, "'a' shares memory"));
}

/* Side by side, row by row, and transposed. */
TEST(neighbours_are_loaded)
{
    const int64_t beside[] = {2 * COLUMNS, 1}, turned[] = {1, 2 * ROWS}, strange[] = {2, 2 * ROWS};

    ASSERT_OK(load_two("a", beside, "c", ROWS, beside, memory + COLUMNS));
    for (int row = 0; row < ROWS; row++) {
        const float *at = memory + (size_t)row * 2 * COLUMNS;
        assert_memory_equal(at, saved[0] + row * COLUMNS, sizeof(float) * COLUMNS);
        assert_memory_equal(at + COLUMNS, saved[2] + row * COLUMNS, sizeof(float) * COLUMNS);
    }
    ASSERT_OK(load_two("a", turned, "c", ROWS, turned, memory + ROWS));
    ASSERT_OK(load_two("a", strange, "c", ROWS, strange, memory + 1));
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) {
            assert_true(memory[2 * row + 2 * ROWS * column] == saved[0][row * COLUMNS + column]);
            assert_true(memory[2 * row + 2 * ROWS * column + 1] ==
                        saved[2][row * COLUMNS + column]);
        }
}

EACH_TEST(setup, teardown);
