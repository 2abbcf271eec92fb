/* SPDX-License-Identifier: BSD-3-Clause */
/* delete_test.c -- sidestep_delete(): one checkpoint of ours goes; whatever else is there stays. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "root/directory.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

EACH_TEST(one_rank_setup, one_rank_teardown);

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void save(uint64_t step)
{
    ASSERT_OK(sidestep_save(engine, step_path(step), world.state, NULL, NULL, &err));
}

TEST(a_checkpoint_goes_with_all_its_files)
{
    save(1);
    save(2);
    ASSERT_OK(sidestep_delete(step_path(1), &err));
    assert_false(is_there(step_path(1)));
    assert_true(is_there(step_path(2)));
    assert_int_equal(sidestep_delete(step_path(1), &err), SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "delete '"));
    assert_int_equal(sidestep_delete(NULL, &err), SIDESTEP_EINVAL);
}

TEST(a_pinned_one_stays)
{
    save(1);
    ASSERT_OK(sidestep_pin(step_path(1), true, &err));
    assert_int_equal(sidestep_delete(step_path(1), &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "pinned"));
    ASSERT_OK(sidestep_load(engine, step_path(1), world.state, NULL, NULL, &err));
    ASSERT_OK(sidestep_pin(step_path(1), false, &err));
    ASSERT_OK(sidestep_delete(step_path(1), &err));
    assert_false(is_there(step_path(1)));
}

TEST(one_with_files_of_others_stays)
{
    char path[600];

    save(1);
    snprintf(path, sizeof(path), "%s/config.json", step_path(1));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(sidestep_delete(step_path(1), &err), SIDESTEP_ELOCKED);
    assert_true(is_there(path));
    ASSERT_OK(sidestep_load(engine, step_path(1), world.state, NULL, NULL, &err));
}

TEST(one_that_is_being_read_stays)
{
    struct sidestep_checkpoint *checkpoint = NULL;

    save(1);
    ASSERT_OK(sidestep_checkpoint_open(step_path(1), &checkpoint, &err));
    enum sidestep_status status = sidestep_delete(step_path(1), &err);
    sidestep_checkpoint_close(&checkpoint);
    assert_int_equal(status, SIDESTEP_ELOCKED);
    ASSERT_OK(sidestep_delete(step_path(1), &err));
}

TEST(a_directory_that_is_no_checkpoint_stays)
{
    assert_int_equal(mkdir(step_path(1), 0777), 0);
    assert_int_equal(sidestep_delete(step_path(1), &err), SIDESTEP_ENOTFOUND);
    assert_true(is_there(step_path(1)));
    assert_int_equal(sidestep_delete(scratch.path, &err), SIDESTEP_ENOTFOUND);
}

/* Somebody has its directory open, and makes a file there after the last look. */
TEST(a_file_that_comes_last_keeps_its_place)
{
    char path[600];
    OWNED_DIR *root = NULL;

    save(1);
    ASSERT_OK(store_dir_open(store_posix(), NULL, scratch.path, &root, &err));
    struct deletion d = {.root = root, .name = strrchr(step_path(1), '/') + 1};
    ASSERT_OK(directory_delete_look(&d, &err));
    ASSERT_OK(directory_delete_hide(&d, &err));
    snprintf(path, sizeof(path), "%s/%s/late.txt", scratch.path, d.trash);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    ASSERT_OK(directory_delete_finish(&d, NULL, &err));
    deletion_release(&d);
    snprintf(path, sizeof(path), "%s/late.txt", step_path(1));
    assert_true(is_there(path));
    snprintf(path, sizeof(path), "%s/.metadata", step_path(1));
    assert_false(is_there(path));
}
