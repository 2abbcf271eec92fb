/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * extra_save_test.c -- small files are part of a save: written, listed, verified, copied and
 * deleted with it; and files of others of the same names stay.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

EACH_TEST(one_rank_setup, one_rank_teardown);

static const char *inside(const char *directory, const char *name)
{
    static char path[2][1024];
    static unsigned which;

    which = !which;
    snprintf(path[which], sizeof(path[which]), "%s/%s", directory, name);
    return path[which];
}

static bool is_there(const char *path)
{
    struct stat stat;

    return lstat(path, &stat) == 0;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void assert_holds(const char *path, const char *text)
{
    char found[256] = "";
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    found[fread(found, 1, sizeof(found) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

static void add(const char *name, const char *text)
{
    ASSERT_OK(sidestep_state_dict_add_file(world.state, name, text, strlen(text), 0, &err));
}

static enum sidestep_status save_at(const char *path)
{
    return sidestep_save(engine, path, world.state, NULL, NULL, &err);
}

static void assert_reads(const char *path, const char *name, const char *text)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    void *bytes = NULL;
    size_t length = 0;

    ASSERT_OK(sidestep_checkpoint_open(path, &checkpoint, &err));
    ASSERT_OK(sidestep_checkpoint_read_file(checkpoint, name, &bytes, &length, &err));
    assert_int_equal(length, strlen(text));
    assert_memory_equal(bytes, text, length);
    sidestep_bytes_free(&bytes);
    sidestep_checkpoint_close(&checkpoint);
}

static enum sidestep_status verify(const char *path)
{
    struct sidestep_verify_report report = {0};

    ASSERT_OK(sidestep_verify(path, NULL, &report, &err));
    enum sidestep_status status = report.status;
    sidestep_verify_report_release(&report);
    return status;
}

static void add_usual(void)
{
    add("trainer_state.json", "{\"step\": 1}");
    add("tokenizer/vocab.txt", "a b c");
    add("empty", "");
    ASSERT_OK(sidestep_state_dict_add_file(world.state, "optimizer_0", NULL, 0, SIDESTEP_FILE_ALIAS,
                                           &err));
}

TEST(files_appear_under_their_names_and_are_read_back)
{
    char target[8];
    struct sidestep_checkpoint *checkpoint = NULL;

    add_usual();
    ASSERT_OK(save_at(step_path(1)));
    assert_holds(inside(step_path(1), "trainer_state.json"), "{\"step\": 1}");
    assert_holds(inside(step_path(1), "tokenizer/vocab.txt"), "a b c");
    assert_holds(inside(step_path(1), "optimizer_0/empty"), "");
    assert_int_equal(readlink(inside(step_path(1), "optimizer_0"), target, sizeof(target)), 1);
    assert_reads(step_path(1), "trainer_state.json", "{\"step\": 1}");
    assert_reads(step_path(1), "tokenizer/vocab.txt", "a b c");
    assert_reads(step_path(1), "empty", "");
    ASSERT_OK(sidestep_checkpoint_open(step_path(1), &checkpoint, &err));
    assert_int_equal(sidestep_checkpoint_file_count(checkpoint), 4);
    assert_string_equal(sidestep_checkpoint_file(checkpoint, 1)->name, "tokenizer/vocab.txt");
    assert_int_equal(sidestep_checkpoint_file(checkpoint, 1)->bytes, 5);
    assert_null(sidestep_checkpoint_file(checkpoint, 4));
    sidestep_checkpoint_close(&checkpoint);
    assert_int_equal(SIDESTEP_OK, verify(step_path(1)));
    ASSERT_OK(sidestep_load(engine, step_path(1), world.state, NULL, NULL, &err));
}

static void take(const char *name, const char *path)
{
    ASSERT_OK(sidestep_state_dict_add_file(world.state, name, path, strlen(path),
                                           SIDESTEP_FILE_TAKE, &err));
}

static void absolute(char path[PATH_MAX], const char *name)
{
    char place[PATH_MAX];

    assert_non_null(realpath(scratch.path, place));
    assert_true(snprintf(path, PATH_MAX, "%s/%s", place, name) < PATH_MAX);
}

static ino_t inode(const char *path)
{
    struct stat stat;

    assert_int_equal(lstat(path, &stat), 0);
    return stat.st_ino;
}

TEST(a_file_that_is_taken_gets_a_second_name)
{
    char other[PATH_MAX];

    absolute(other, "of_hook");
    put(other, "written by a hook");
    take("hook/a", other);
    ASSERT_OK(save_at(step_path(1)));
    assert_holds(inside(step_path(1), "hook/a"), "written by a hook");
    assert_int_equal(inode(inside(step_path(1), "hook/a")), inode(other));
    assert_int_equal(unlink(other), 0);
    assert_reads(step_path(1), "hook/a", "written by a hook");
    assert_int_equal(SIDESTEP_OK, verify(step_path(1)));
}

/* Whoever has the other name, or the file that a link leads to, may change it later. */
TEST(a_file_with_other_names_is_taken_as_a_copy)
{
    char owned[PATH_MAX], linked[PATH_MAX], symbolic[PATH_MAX];

    absolute(owned, "owned");
    absolute(linked, "linked");
    absolute(symbolic, "symbolic");
    put(owned, "first");
    assert_int_equal(link(owned, linked), 0);
    assert_int_equal(symlink(owned, symbolic), 0);
    take("linked", linked);
    take("symbolic", symbolic);
    ASSERT_OK(save_at(step_path(1)));
    assert_int_not_equal(inode(inside(step_path(1), "linked")), inode(owned));
    put(owned, "second");
    assert_reads(step_path(1), "linked", "first");
    assert_reads(step_path(1), "symbolic", "first");
    assert_int_equal(unlink(linked), 0);
    sidestep_state_dict_clear_files(world.state);
    take("symbolic", symbolic); /* what it leads to has one name, which is not ours */
    ASSERT_OK(save_at(step_path(2)));
    put(owned, "third");
    assert_reads(step_path(2), "symbolic", "second");
    assert_int_equal(SIDESTEP_OK, verify(step_path(2)));
}

TEST(a_file_that_cannot_be_taken_fails_the_save)
{
    char gone[PATH_MAX];

    assert_int_equal(SIDESTEP_EINVAL, sidestep_state_dict_add_file(world.state, "a", "here", 4,
                                                                   SIDESTEP_FILE_TAKE, &err));
    absolute(gone, "gone");
    take("a", gone);
    assert_int_equal(SIDESTEP_ENOTFOUND, save_at(step_path(1)));
    assert_non_null(strstr(err.message, "file 'a'"));
    assert_false(is_there(step_path(1)));
}

TEST(the_next_save_has_the_files_of_its_own)
{
    add_usual();
    ASSERT_OK(save_at(step_path(1)));
    sidestep_state_dict_clear_files(world.state);
    add("other", "2");
    ASSERT_OK(save_at(step_path(2)));
    assert_false(is_there(inside(step_path(2), "trainer_state.json")));
    assert_holds(inside(step_path(2), "other"), "2");
    add("other", "3"); /* replaced */
    ASSERT_OK(save_at(step_path(3)));
    assert_holds(inside(step_path(3), "other"), "3");
    assert_holds(inside(step_path(2), "other"), "2");
}

TEST(damage_is_found)
{
    add_usual();
    for (uint64_t step = 1; step <= 5; step++)
        ASSERT_OK(save_at(step_path(step)));
    put(inside(step_path(1), "trainer_state.json"), "{\"step\": 2}");
    assert_int_equal(unlink(inside(step_path(2), "tokenizer/vocab.txt")), 0);
    put(inside(step_path(3), "empty"), "not");
    assert_int_equal(unlink(inside(step_path(4), "optimizer_0")), 0);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(verify(step_path(step)), SIDESTEP_ECORRUPT);
    assert_int_equal(SIDESTEP_OK, verify(step_path(4))); /* an alias has no bytes */
    assert_int_equal(SIDESTEP_OK, verify(step_path(5)));
    assert_int_equal(unlink(inside(step_path(4), "trainer_state.json")), 0);
    char *newest = NULL;
    assert_int_equal(unlink(inside(step_path(5), "trainer_state.json")), 0);
    ASSERT_OK(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &newest, &err));
    assert_non_null(strstr(newest, "step-1")); /* another content of the same size */
    free(newest);
}

TEST(names_that_cannot_be_saved_fail_in_the_call)
{
    static const char *const names[] = {"../up", "/abs", ".metadata", "__0_0.distcp",
                                        ".sidestep.x"};

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        sidestep_state_dict_clear_files(world.state);
        add(names[i], "x");
        assert_int_equal(save_at(step_path(1)), SIDESTEP_EINVAL);
        assert_non_null(strstr(err.message, names[i]));
        assert_false(is_there(step_path(1)));
    }
    assert_false(is_there(inside(scratch.path, "up")));
    sidestep_state_dict_clear_files(world.state);
    add("Name", "1");
    add("name", "2");
    assert_int_equal(save_at(step_path(1)), SIDESTEP_EINVAL);
    assert_false(is_there(step_path(1)));
}

TEST(limits_of_files)
{
    char name[32];

    assert_int_equal(
        sidestep_state_dict_add_file(world.state, "x", "", SIDESTEP_MAX_FILE_BYTES + 1, 0, &err),
        SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_add_file(world.state, "x", NULL, 1, 0, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(sidestep_state_dict_add_file(world.state, "x", "", 0, 1u << 30, &err),
                     SIDESTEP_EUNSUPPORTED);
    assert_int_equal(
        sidestep_state_dict_add_file(world.state, "x", "1", 1, SIDESTEP_FILE_ALIAS, &err),
        SIDESTEP_EINVAL);
    for (unsigned i = 0; i < SIDESTEP_MAX_FILES; i++) {
        snprintf(name, sizeof(name), "%u", i);
        add(name, "");
    }
    add("0", "again"); /* is there already */
    assert_int_equal(sidestep_state_dict_add_file(world.state, "x", "", 0, 0, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "4096"));
}

/* ------------------------------------------------------------------ in a directory that is there
 */

TEST(files_of_others_stay_and_ours_are_found_all_the_same)
{
    const char *path = step_path(1);

    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(mkdir(inside(path, "tokenizer"), 0777), 0);
    put(inside(path, "trainer_state.json"), "theirs");
    put(inside(path, "notes.txt"), "mine");
    put(inside(path, "tokenizer/vocab.json"), "more");
    add_usual();
    ASSERT_OK(save_at(path));
    assert_holds(inside(path, "trainer_state.json"), "theirs");
    assert_reads(path, "trainer_state.json", "{\"step\": 1}");
    assert_holds(inside(path, "tokenizer/vocab.txt"), "a b c"); /* a free name */
    assert_int_equal(SIDESTEP_OK, verify(path));
    sidestep_state_dict_clear_files(world.state);
    add("tokenizer/vocab.txt", "d e f");
    ASSERT_OK(save_at(path));
    assert_holds(inside(path, "tokenizer/vocab.txt"), "d e f");
    assert_false(is_there(inside(path, "optimizer_0")));
    assert_false(is_there(inside(path, "empty")));
    assert_int_equal(SIDESTEP_OK, verify(path));
    assert_holds(inside(path, "trainer_state.json"), "theirs");
    assert_holds(inside(path, "notes.txt"), "mine");
    assert_holds(inside(path, "tokenizer/vocab.json"), "more");
    assert_int_equal(sidestep_delete(path, &err), SIDESTEP_ELOCKED);
    assert_holds(inside(path, "notes.txt"), "mine");
}

TEST(a_replaced_checkpoint_leaves_no_files)
{
    const char *path = step_path(1);

    add_usual();
    ASSERT_OK(save_at(path)); /* in a new directory */
    sidestep_state_dict_clear_files(world.state);
    add("trainer_state.json", "2");
    ASSERT_OK(save_at(path)); /* in place */
    assert_holds(inside(path, "trainer_state.json"), "2");
    assert_false(is_there(inside(path, "tokenizer")));
    assert_false(is_there(inside(path, "empty")));
    assert_false(is_there(inside(path, "optimizer_0")));
    assert_int_equal(SIDESTEP_OK, verify(path));
    sidestep_state_dict_clear_files(world.state);
    ASSERT_OK(save_at(path));
    assert_false(is_there(inside(path, "trainer_state.json")));
    assert_int_equal(SIDESTEP_OK, verify(path));
    ASSERT_OK(sidestep_delete(path, &err));
    assert_false(is_there(path));
}

TEST(a_file_that_somebody_changed_stays_when_the_checkpoint_is_replaced)
{
    const char *path = step_path(1);

    add_usual();
    ASSERT_OK(save_at(path)); /* in a new directory: under their own names */
    put(inside(path, "trainer_state.json"), "{\"step\": 9}");
    put(inside(path, "tokenizer/mine"), "mine");
    sidestep_state_dict_clear_files(world.state);
    ASSERT_OK(save_at(path));
    assert_holds(inside(path, "trainer_state.json"), "{\"step\": 9}");
    assert_holds(inside(path, "tokenizer/mine"), "mine");
    assert_false(is_there(inside(path, "tokenizer/vocab.txt")));
    assert_false(is_there(inside(path, "empty")));
    assert_int_equal(sidestep_delete(path, &err), SIDESTEP_ELOCKED);
    assert_holds(inside(path, "trainer_state.json"), "{\"step\": 9}");
}

TEST(a_link_that_replaced_a_file_is_read_and_not_written_through)
{
    const char *path = step_path(1);

    add_usual();
    ASSERT_OK(save_at(path));
    put(inside(scratch.path, "outside"), "{\"step\": 1}");
    assert_int_equal(unlink(inside(path, "trainer_state.json")), 0);
    assert_int_equal(symlink("../outside", inside(path, "trainer_state.json")), 0);
    assert_int_equal(verify(path), SIDESTEP_OK);
    put(inside(scratch.path, "outside"), "{\"step\": 2}");
    assert_int_equal(verify(path), SIDESTEP_ECORRUPT);
    sidestep_state_dict_clear_files(world.state);
    ASSERT_OK(save_at(path));
    assert_holds(inside(scratch.path, "outside"), "{\"step\": 2}");
    assert_true(is_there(inside(path, "trainer_state.json")));
}

TEST(a_sweep_makes_links_that_a_killed_save_did_not)
{
    const char *path = step_path(1);

    assert_int_equal(mkdir(path, 0777), 0);
    add_usual();
    ASSERT_OK(save_at(path));
    assert_int_equal(unlink(inside(path, "trainer_state.json")), 0);
    assert_int_equal(unlink(inside(path, "tokenizer/vocab.txt")), 0);
    assert_int_equal(rmdir(inside(path, "tokenizer")), 0);
    struct sidestep_gc_report report = {0};
    ASSERT_OK(sidestep_gc(scratch.path, 0, &report, &err));
    assert_int_equal(report.removed_count, 0);
    sidestep_gc_report_release(&report);
    assert_holds(inside(path, "trainer_state.json"), "{\"step\": 1}");
    assert_holds(inside(path, "tokenizer/vocab.txt"), "a b c");
}

TEST(a_sweep_makes_the_alias_of_a_killed_save_that_has_no_files)
{
    const char *path = step_path(1);
    struct sidestep_checkpoint_info info = SIDESTEP_CHECKPOINT_INFO_INIT;
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_gc_report report = {0};
    char marker[128];

    assert_int_equal(mkdir(path, 0777), 0);
    ASSERT_OK(sidestep_state_dict_add_file(world.state, "optimizer_0", NULL, 0, SIDESTEP_FILE_ALIAS,
                                           &err));
    ASSERT_OK(save_at(path));
    ASSERT_OK(sidestep_checkpoint_open(path, &checkpoint, &err));
    ASSERT_OK(sidestep_checkpoint_info(checkpoint, &info));
    snprintf(marker, sizeof(marker), ".sidestep.%s.pending", info.save_id);
    put(inside(path, marker), "target step-1\n");
    sidestep_checkpoint_close(&checkpoint);
    assert_int_equal(unlink(inside(path, "optimizer_0")), 0);
    ASSERT_OK(sidestep_gc(scratch.path, 0, &report, &err));
    sidestep_gc_report_release(&report);
    assert_true(is_there(inside(path, "optimizer_0")));
    assert_false(is_there(inside(path, marker)));
}

/* ------------------------------------------------------------------ copies and deletions */

/* A manifest of another save stays if its removal was interrupted. */
TEST(a_checkpoint_beside_manifests_of_replaced_ones_is_deleted_whole)
{
    const char *path = step_path(1);
    char command[1024];

    add_usual();
    for (unsigned i = 0; i < 8; i++) { /* the last is found first once in 8 times */
        add("trainer_state.json", "{\"step\": 2}");
        ASSERT_OK(save_at(path));
        snprintf(command, sizeof(command), "mkdir -p %s/kept && cp %s/.sidestep.manifest.* %s/kept",
                 scratch.path, path, scratch.path);
        assert_int_equal(system(command), 0);
    }
    snprintf(command, sizeof(command), "cp %s/kept/.sidestep.manifest.* %s", scratch.path, path);
    assert_int_equal(system(command), 0);
    ASSERT_OK(sidestep_delete(path, &err));
    assert_false(is_there(path));
}

TEST(a_copy_has_the_files)
{
    add_usual();
    ASSERT_OK(save_at(step_path(1)));
    ASSERT_OK(save_at(step_path(1))); /* in place: the files have names with the save id */
    ASSERT_OK(save_at(step_path(2)));
    for (uint64_t step = 1; step <= 2; step++) {
        char copy[512];
        snprintf(copy, sizeof(copy), "%s/copy-%u", scratch.path, (unsigned)step);
        struct sidestep_copy_report report;
        ASSERT_OK(sidestep_copy(step_path(step), copy, NULL, &report, &err));
        assert_int_equal(report.file_count, 4); /* a shard and three files */
        assert_holds(inside(copy, "trainer_state.json"), "{\"step\": 1}");
        assert_holds(inside(copy, "tokenizer/vocab.txt"), "a b c");
        assert_holds(inside(copy, "optimizer_0/empty"), "");
        assert_int_equal(SIDESTEP_OK, verify(copy));
        ASSERT_OK(sidestep_delete(copy, &err));
        assert_false(is_there(copy));
    }
}

TEST(a_copy_of_a_damaged_file_fails)
{
    char copy[512];

    add_usual();
    ASSERT_OK(save_at(step_path(1)));
    put(inside(step_path(1), "tokenizer/vocab.txt"), "a b x");
    snprintf(copy, sizeof(copy), "%s/copy", scratch.path);
    assert_int_equal(sidestep_copy(step_path(1), copy, NULL, NULL, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "tokenizer/vocab.txt"));
    assert_false(is_there(copy));
}

TEST(a_checkpoint_goes_with_its_files)
{
    add_usual();
    ASSERT_OK(save_at(step_path(1)));
    ASSERT_OK(sidestep_delete(step_path(1), &err));
    assert_false(is_there(step_path(1)));
    ASSERT_OK(save_at(step_path(1)));
    put(inside(step_path(1), "tokenizer/mine.txt"), "mine");
    assert_int_equal(sidestep_delete(step_path(1), &err), SIDESTEP_ELOCKED);
    assert_holds(inside(step_path(1), "tokenizer/mine.txt"), "mine");
    assert_holds(inside(step_path(1), "trainer_state.json"), "{\"step\": 1}");
    assert_int_equal(SIDESTEP_OK, verify(step_path(1)));
}

/* Whatever a deletion cannot read or remove, it leaves so that the next sweep finds all of it. */
TEST(a_deletion_that_fails_leaves_nothing_that_no_sweep_removes)
{
    struct sidestep_gc_report report = {0};
    unsigned long nth = 1;
    bool fired = true;

    for (; fired; nth++) {
        add_usual();
        ASSERT_OK(save_at(step_path(1)));
        fault_arm("posix.", nth, false, EIO);
        enum sidestep_status status UNUSED = sidestep_delete(step_path(1), &err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (is_there(step_path(1)))
            ASSERT_OK(sidestep_delete(step_path(1), &err));
        ASSERT_OK(sidestep_gc(scratch.path, 0, &report, &err));
        if (report.kept_count != 0)
            fail_msg("call %lu: %s", nth, report.kept[0]);
        sidestep_gc_report_release(&report);
    }
    assert_true(nth > 20);
}
