/* SPDX-License-Identifier: BSD-3-Clause */
/* list_test.c -- which names contain a step: a wrong guess makes an old checkpoint the latest. */
#include <sys/stat.h>

#include "base/fault.h"
#include "catalog/list.h"
#include "support/scratch.h"
#include "support/unit.h"

static const struct {
    const char *name;
    long long step;
    long long number;
} names[] = {
    {"step-42", 42, 42},
    {"step_42", 42, 42},
    {"step-0", 0, 0},
    {"checkpoint-500", 500, 500},
    {"checkpoint_3", 3, 3},
    {"global_step1000", 1000, 1000},
    {"global_step_1000", 1000, 1000},
    {"dist_epoch_3", 3, 3}, /* torchtune */
    {"iter_0000042", 42, 42},
    {"epoch7", 7, 7},
    {"epoch-7", 7, 7},
    {"epoch_7", 7, 7},
    {"epoch_2_step_900", 900, 900},
    {"epoch=2-step=900", 900, 900},
    {"epoch=2-step=900.ckpt", 900, -1},
    {"epoch=2.ckpt", 2, -1},
    {"100", 100, 100},
    {"00000100", 100, 100},
    {"9223372036854775807", INT64_MAX, INT64_MAX},
    {"9223372036854775808", -1, -1},
    {"step-99999999999999999999", -1, -1},
    /* a number, but not a step */
    {"run-7", -1, 7},
    {"llama-3", -1, 3},
    {"exp2", -1, 2},
    {"my-step-42", -1, 42},
    {"old-checkpoint-42", -1, 42},
    {"step--42", -1, 42},
    {"Step-42", -1, 42},
    {"epoch_x_step_9", -1, 9},
    {"epoch__step_9", -1, 9},
    {"repoch_1_step_9", -1, 9},
    {"step-42.bak", -1, -1},
    {"step-42-old", -1, -1},
    {"step-42 (copy)", -1, -1},
    {"step-", -1, -1},
    {".ckpt", -1, -1},
    {"final", -1, -1},
    {"", -1, -1},
};

TEST(steps_in_names)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (step_name_parse(names[i].name) != names[i].step ||
            step_name_trailing_number(names[i].name) != names[i].number)
            print_message("# '%s'\n", names[i].name);
        assert_int_equal(step_name_parse(names[i].name), names[i].step);
        assert_int_equal(step_name_trailing_number(names[i].name), names[i].number);
    }
}

TEST(order)
{
    struct sidestep_listed entries[] = {{.name = "b", .step = 10},
                                        {.name = "old", .step = -1, .saved_at = 9},
                                        {.name = "a", .step = 10},
                                        {.name = "older", .step = -1, .saved_at = 5},
                                        {.name = "c", .step = 9}};
    static const char *const sorted[] = {"older", "old", "c", "a", "b"};

    list_sort(entries, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(entries[i].name, sorted[i]);
    list_sort(NULL, 0);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_true(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* List another program's checkpoint with every allocation, or every storage call, failing once: an
 * error, or the right answer; at worst "unreadable". */
TEST(any_failure_of_a_layout)
{
    static const char *const points[] = {"memory", "posix"};
    struct scratch scratch;
    char dir[128];

    assert_true(scratch_make(&scratch, NULL));
    snprintf(dir, sizeof(dir), "%s/checkpoint-7", scratch.path);
    assert_int_equal(mkdir(dir, 0700), 0);
    write_file(dir, "trainer_state.json", "{\"global_step\": 7}");
    write_file(dir, "model.safetensors.index.json", "{\"weight_map\": {\"w\": \"gone\"}}");
    for (size_t p = 0; p < 2; p++) {
        bool fired = true;
        for (unsigned long nth = 1; fired; nth++) {
            struct sidestep_list list = {0};
            struct sidestep_error err = {0};
            fault_arm(points[p], nth, false, p == 0 ? 12 : 5);
            enum sidestep_status status = sidestep_list_root(scratch.path, &list, &err);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            assert_true(fired || (status == SIDESTEP_OK && list.count == 1));
            if (status == SIDESTEP_OK && list.count == 1 && !fired) {
                assert_int_equal(sidestep_list_entry(&list, 0)->state, SIDESTEP_INCOMPLETE);
                assert_string_equal(sidestep_list_entry(&list, 0)->reason, "gone is missing");
                assert_string_equal(sidestep_list_entry(&list, 0)->layout, "transformers");
            }
            if (status == SIDESTEP_OK && list.count == 1)
                assert_int_not_equal(sidestep_list_entry(&list, 0)->state, SIDESTEP_COMPLETE);
            sidestep_list_release(&list);
            assert_true(nth < 1000);
        }
    }
    scratch_remove(&scratch);
}
