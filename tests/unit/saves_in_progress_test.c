/* SPDX-License-Identifier: BSD-3-Clause */
/* saves_in_progress_test.c -- saves under way as other processes see them: real ones, paused in the
 * middle, and with every allocation failing once. */
#include <sys/stat.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

TEST(a_save_is_listed_until_it_ends)
{
    struct sidestep_saving_list list = {0};
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_series *series = open_with(NULL);

    save_step(series, 1);
    ASSERT_OK(sidestep_list_saving(scratch.path, &list, &err));
    assert_int_equal(list.count, 0);
    sidestep_saving_list_release(&list);
    sidestep_engine_pause(engine);
    world_fill(&world, 2);
    ASSERT_OK(sidestep_series_save_async(series, 2, world.state, NULL, &save, &err));
    ASSERT_OK(sidestep_list_saving(scratch.path, &list, &err));
    assert_int_equal(list.count, 1);
    const struct sidestep_saving *saving = sidestep_saving_list_entry(&list, 0);
    assert_int_equal(sidestep_save_poll(save, &info), SIDESTEP_OK);
    assert_string_equal(saving->save_id, info.save_id);
    assert_string_equal(saving->name, "step-2");
    assert_true(saving->step == 2 && !saving->is_dead && saving->expected_ranks == 1);
    assert_true(saving->expected_bytes > 10000 && saving->rank_count <= 1);
    assert_non_null(strstr(saving->owner, "process "));
    assert_true(saving->written_bytes <= saving->bytes);
    sidestep_saving_list_release(&list);
    sidestep_saving_list_release(&list);
    sidestep_engine_resume(engine);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    ASSERT_OK(sidestep_list_saving(scratch.path, &list, &err));
    assert_int_equal(list.count, 0);
    sidestep_saving_list_release(&list);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

/* The files of a save of many ranks at some moment, and a foreign file. */
static void make_saving(void)
{
    const char *id = "0123456789abcdef0123456789abcdef";
    char dir[160], path[256];

    snprintf(dir, sizeof(dir), "%s/.sidestep.%s.saving", scratch.path, id);
    assert_int_equal(mkdir(dir, 0700), 0);
    for (unsigned rank = 0; rank < 120; rank++) {
        snprintf(path, sizeof(path), "%s/__%u_0.distcp%s", dir, rank, rank % 2 ? ".part" : "");
        FILE *file = fopen(path, "w");
        assert_true(file != NULL && fputs("12345", file) >= 0 && fclose(file) == 0);
        if (rank % 4 != 0)
            continue;
        snprintf(path, sizeof(path), "%s/__%u.%s.%s", dir, rank, id, rank == 4 ? "failed" : "yes");
        file = fopen(path, "w");
        assert_true(file != NULL && fclose(file) == 0);
    }
    snprintf(path, sizeof(path), "%s/notes.txt", dir);
    FILE *notes = fopen(path, "w");
    assert_true(notes != NULL && fputs("mine", notes) >= 0 && fclose(notes) == 0);
}

/* Names are not in the order of numbers. */
TEST(ranks_are_listed_separately)
{
    struct sidestep_saving_list list = {0};

    make_saving();
    ASSERT_OK(sidestep_list_saving(scratch.path, &list, &err));
    assert_int_equal(list.count, 1);
    const struct sidestep_saving *saving = sidestep_saving_list_entry(&list, 0);
    assert_null(saving->name);
    assert_true(saving->step == -1 && saving->owner == NULL);
    assert_true(saving->is_dead); /* without a marker it has no owner, and gc removes it */
    assert_true(saving->rank_count == 120 && saving->done_count == 29 && saving->failed_count == 1);
    assert_int_equal(saving->bytes, 600);
    for (uint32_t i = 0; i < saving->rank_count; i++) {
        const char *want = i == 4 ? "failed" : i % 4 == 0 ? "done" : i % 2 ? "writing" : "sealed";
        assert_int_equal(sidestep_saving_writer(saving, i)->rank, i);
        assert_string_equal(sidestep_saving_writer(saving, i)->state_name, want);
    }
    assert_null(sidestep_saving_writer(saving, saving->rank_count));
    assert_null(sidestep_saving_list_entry(&list, list.count));
    sidestep_saving_list_release(&list);
}

TEST(wrong_paths_are_refused_with_a_reason)
{
    struct sidestep_saving_list list = {0};
    char path[160];

    assert_int_equal(sidestep_list_saving(NULL, &list, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_list_saving(scratch.path, NULL, &err), SIDESTEP_EINVAL);
    snprintf(path, sizeof(path), "%s/nowhere", scratch.path);
    assert_int_equal(sidestep_list_saving(path, &list, &err), SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "nowhere"));
}

TEST(every_failure_is_survived)
{
    static const char *const points[] = {"memory", "posix"};
    struct sidestep_series *series = open_with(NULL);

    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    make_saving();
    for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
        bool fired = true;
        for (unsigned long nth = 1; fired; nth++) {
            struct sidestep_saving_list list = {0};
            fault_arm(points[p], nth, false, p == 0 ? 12 : 5);
            enum sidestep_status status = sidestep_list_saving(scratch.path, &list, &err);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            assert_true(status == SIDESTEP_OK || (fired && list.owner == NULL));
            assert_true(fired || list.count == 1);
            sidestep_saving_list_release(&list);
            assert_true(nth < 1000);
        }
    }
}

EACH_TEST(one_rank_setup, one_rank_teardown);
