/* SPDX-License-Identifier: BSD-3-Clause */
/* list_check_test.c -- a listing calls a whole checkpoint committed, a damaged one damaged, and one
 * that it could not read neither; a resume reports what it passes over. */
#include <errno.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "catalog/list.h"
#include "support/one_series.h"
#include "support/store_fault.h"
#include "support/unit.h"

static void save_steps(uint64_t first, uint64_t last)
{
    struct sidestep_series *series = open_with(NULL);

    for (uint64_t n = first; n <= last; n++)
        save_step(series, n);
    close_series(&series);
}

static void run(const char *format, const char *a)
{
    char command[512];

    snprintf(command, sizeof(command), format, a);
    assert_int_equal(system(command), 0);
}

static void unlink_in(uint64_t step, const char *name)
{
    char path[320];

    snprintf(path, sizeof(path), "%s/%s", step_path(step), name);
    assert_int_equal(unlink(path), 0);
}

/* List with a fault armed. Returns whether it was reached. */
static bool look_with(struct store *store, const char *point, unsigned long nth, int error)
{
    struct sidestep_list list = {0};

    fault_arm(point, nth, false, error);
    enum sidestep_status status = list_root(store, scratch.path, LIST_CHECKED, &list, &err);
    bool fired = fault_fired() != NULL;
    fault_arm("", 0, false, 0);
    assert_true(fired || status == SIDESTEP_OK);
    for (size_t i = 0; status == SIDESTEP_OK && i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        bool is_unread = entry->state == SIDESTEP_UNREADABLE;
        if (!is_unread && entry->state != SIDESTEP_COMMITTED)
            fail_msg("%s %lu: '%s' is %s: %s", point, nth, entry->name, entry->state_name,
                     entry->reason);
        assert_true(!is_unread ||
                    (fired && entry->reason != NULL && entry->status == SIDESTEP_EIO));
    }
    sidestep_list_release(&list);
    return fired;
}

/* Of our checkpoints, and of torch's, which is opened as by a load. */
TEST(a_failed_read_is_not_damage)
{
    static const char *const points[] = {"store.file_open", "store.file_read_at", "store.dir_open",
                                         "store.dir_list",  "store.stat",         "store.file_stat",
                                         "memory"};
    struct store *faulty = store_fault_new(store_posix());

    assert_non_null(faulty);
    save_steps(1, 2);
    run("cp -r tests/golden/torch-2.14.1/nested %s/step-9 && chmod -R u+w %1$s", scratch.path);
    for (size_t p = 0; p < ARRAY_LENGTH(points); p++) {
        unsigned long nth = 1;
        while (look_with(faulty, points[p], nth, strcmp(points[p], "memory") == 0 ? ENOMEM : EIO))
            nth++;
        assert_true(nth > 3);
    }
    store_fault_free(&faulty);
}

/* So many that several threads check them: each gets its own answer. */
TEST(each_of_many_has_its_own_answer)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    save_steps(1, 40);
    for (uint64_t n = 3; n <= 40; n += 3)
        unlink_in(n, "__0_0.distcp");
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    assert_int_equal(list.count, 40);
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        bool is_damaged = entry->step % 3 == 0;
        assert_int_equal(entry->step, i + 1);
        assert_int_equal(entry->state, is_damaged ? SIDESTEP_DAMAGED : SIDESTEP_COMMITTED);
        assert_int_equal(entry->status, is_damaged ? SIDESTEP_ECORRUPT : SIDESTEP_OK);
        if (is_damaged)
            assert_string_equal(entry->reason, "file '__0_0.distcp': it is missing");
        else
            assert_null(entry->reason);
    }
}

/* It was the newest, and passing it over is reported. */
TEST(a_lost_metadata_is_reported)
{
    struct sidestep_series *series;
    char rejected[2048];
    uint64_t step;

    save_steps(1, 2);
    unlink_in(2, ".metadata");
    series = open_with(NULL);
    ASSERT_OK(resume(series, &step, rejected));
    assert_int_equal(step, 1);
    assert_non_null(strstr(rejected, "step-2"));
    assert_non_null(strstr(rejected, "its .metadata is missing"));
    close_series(&series);
    assert_true(step_exists(2)); /* it can be rebuilt, so it is not set aside */
    ASSERT_OK(sidestep_rebuild(step_path(2), &err));
    series = open_with(NULL); /* but the run has left it behind */
    ASSERT_OK(resume(series, &step, rejected));
    assert_int_equal(step, 1);
    assert_non_null(strstr(rejected, "step-2' was left behind"));
    close_series(&series);
}

TEST(a_lost_metadata_is_not_taken_for_an_empty_directory)
{
    struct sidestep_series *series;
    char rejected[2048], *latest = NULL;
    uint64_t step;

    save_steps(1, 1);
    unlink_in(1, ".metadata");
    assert_int_equal(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err),
                     SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "sidestep rebuild"));
    series = open_with(NULL);
    assert_int_equal(resume(series, &step, rejected), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "its .metadata is missing"));
    close_series(&series);
}

/* Checkpoints that were moved to a disk that is not there now, with links in their place: a run
 * must not start anew because of that. */
TEST(links_are_not_taken_for_an_empty_directory)
{
    struct sidestep_series *series;
    char rejected[2048], *latest = NULL;
    uint64_t step;

    save_steps(1, 1);
    run("cd %s && rm -r step-1 && ln -s elsewhere/step-1 step-1", scratch.path);
    assert_int_equal(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err),
                     SIDESTEP_EMISMATCH);
    assert_non_null(strstr(err.message, "'step-1': it is a symbolic link"));
    series = open_with(NULL);
    assert_int_equal(resume(series, &step, rejected), SIDESTEP_EMISMATCH);
    assert_non_null(strstr(err.message, "'step-1': it is a symbolic link"));
    close_series(&series);
}

EACH_TEST(one_rank_setup, one_rank_teardown);
