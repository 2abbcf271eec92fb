/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_links_test.c -- people move checkpoints, or their shards, to larger disks, and leave
 * symbolic links.  A series reads through them, changes nothing through them, and never takes a
 * name that cannot be opened for damage.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "support/one_series.h"

static int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    return one_rank_end();
}

static void run(const char *command)
{
    char text[1024];

    snprintf(text, sizeof(text), "cd %s && %s", scratch.path, command);
    assert_int_equal(system(text), 0);
}

static bool holds(const char *command)
{
    char text[1024];

    snprintf(text, sizeof(text), "cd %s && %s", scratch.path, command);
    return system(text) == 0;
}

static struct sidestep_series *open_keeping(uint32_t keep_last)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.retention = keep_last != 0 ? &keep : NULL;
    return open_with(&options);
}

static void save_steps(uint64_t first, uint64_t last)
{
    struct sidestep_series *series = open_with(NULL);

    for (uint64_t n = first; n <= last; n++)
        save_step(series, n);
    close_series(&series);
}

/* Resume from ${want}; ${word}: of `rejected`, which is empty if it is NULL. */
static void expect_resumed(uint64_t want, const char *word)
{
    struct sidestep_series *series = open_with(NULL);
    char rejected[2048];
    uint64_t step = 0;

    ASSERT_OK(resume(series, &step, rejected));
    if (step != want || (word == NULL ? rejected[0] != '\0' : strstr(rejected, word) == NULL))
        fail_msg("resumed from %llu, rejected: %s", (unsigned long long)step, rejected);
    close_series(&series);
    expect_latest(want);
}

/* A resume fails with ${status}, and changes no name. */
static void expect_refused(enum sidestep_status want, const char *word)
{
    struct sidestep_series *series = open_with(NULL);
    char rejected[2048], *latest = NULL;
    uint64_t step;

    enum sidestep_status status = resume(series, &step, rejected);
    if (status != want || strstr(err.message, word) == NULL)
        fail_msg("%d: %s", (int)status, status != SIDESTEP_OK ? err.message : "resumed");
    close_series(&series);
    assert_int_equal(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err), want);
    assert_true(holds("test -d step-1 && test -d step-2 && ! ls -A | grep -q bad"));
}

static void expect_whole(const char *name)
{
    struct sidestep_verify_report report = {0};
    char path[320];

    snprintf(path, sizeof(path), "%s/%s", scratch.path, name);
    ASSERT_OK(sidestep_verify(path, NULL, &report, &err));
    assert_true(report.is_ok);
    assert_int_equal(report.unchecked_count, 0);
    sidestep_verify_report_release(&report);
}

static void expect_listed(const char *name, enum sidestep_presence state, bool is_link)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(sidestep_list_entry(&list, i)->name, name) == 0) {
            assert_int_equal(sidestep_list_entry(&list, i)->state, state);
            assert_int_equal(sidestep_list_entry(&list, i)->is_link, is_link);
            assert_true(state == SIDESTEP_FOREIGN || sidestep_list_entry(&list, i)->bytes > 1000);
            return;
        }
    fail_msg("'%s' is not listed", name);
}

TEST(shards_behind_links_are_read)
{
    save_steps(1, 2);
    run("mkdir large && mv step-2/*.distcp large && cd step-2 && ln -s ../large/* .");
    expect_listed("step-2", SIDESTEP_COMMITTED, false);
    expect_whole("step-2");
    expect_resumed(2, NULL);
}

/* As a download cache does it: each file, also .metadata and the manifest. */
TEST(a_checkpoint_of_links_alone_is_read)
{
    save_steps(1, 2);
    run("mkdir blobs && cd step-2 && for f in .[!.]* *; do mv $f ../blobs && ln -s ../blobs/$f $f; "
        "done");
    expect_listed("step-2", SIDESTEP_COMMITTED, false);
    expect_whole("step-2");
    expect_resumed(2, NULL);
}

TEST(a_step_that_is_a_link_is_that_step)
{
    save_steps(1, 2);
    run("mkdir large && mv step-2 large && ln -s large/step-2 step-2");
    expect_listed("step-2", SIDESTEP_COMMITTED, true);
    expect_whole("step-2");
    expect_resumed(2, NULL);
    run("rm large/step-2/*.distcp"); /* the control: it is checked as any other */
    expect_listed("step-2", SIDESTEP_DAMAGED, true);
    expect_resumed(1, "step-2': file '__0_0.distcp': it is missing");
    assert_true(holds("test -L step-2")); /* the link is not ours to rename */
}

/* A link into the root is no step of its own, whatever its name. */
TEST(a_link_to_another_step_is_not_that_step)
{
    save_steps(1, 2);
    run("ln -s step-1 step-3 && ln -s step-2 zlatest");
    expect_listed("step-3", SIDESTEP_FOREIGN, true);
    expect_listed("zlatest", SIDESTEP_FOREIGN, true);
    expect_resumed(2, "step-3': it is a symbolic link to another name in the same directory");
}

TEST(links_to_nothing_are_told)
{
    save_steps(1, 2);
    run("ln -s /nowhere/step-3 step-3 && ln -s step-4 step-4");
    expect_listed("step-3", SIDESTEP_FOREIGN, true);
    expect_resumed(2, "step-3': it is a symbolic link that leads to nothing");
    expect_resumed(2, "step-4': it is a symbolic link in a loop");
    run("mv step-2/__0_0.distcp large && cd step-2 && ln -s /nowhere/large __0_0.distcp");
    expect_refused(SIDESTEP_EIO, "leads to nothing; if its storage is not mounted, mount it");
    run("rm step-2/__0_0.distcp && mv large step-2/__0_0.distcp");
    expect_resumed(2, "step-3");
}

/* Nothing is deleted or renamed through a link, and no link is deleted. */
TEST(what_links_lead_to_stays)
{
    static const struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report = {0};
    size_t links = 0;

    save_steps(1, 3);
    run("mkdir large && mv step-1 large && ln -s large/step-1 step-1 && mv step-2/*.distcp large "
        "&& "
        "cd step-2 && ln -s ../large/*.distcp .");
    struct sidestep_series *series = open_keeping(1);
    uint64_t step;
    ASSERT_OK(resume(series, &step, NULL));
    save_step(series, 4);
    close_series(&series);
    assert_false(step_exists(3));
    ASSERT_OK(sidestep_prune(scratch.path, &keep, 0, &report, &err));
    for (size_t i = 0; i < report.kept_count; i++)
        links += strstr(report.kept[i], "symbolic link") != NULL;
    assert_int_equal(links, 2);
    sidestep_gc_report_release(&report);
    assert_int_equal(sidestep_delete(step_path(1), &err), SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "nothing is deleted through one"));
    assert_int_equal(sidestep_delete(step_path(2), &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "some of its files are symbolic links"));
    assert_true(holds("test -L step-1 && test -L step-2/__0_0.distcp && test -e step-1/.metadata"));
    expect_whole("step-1");
    expect_whole("step-2");
}

TEST(a_series_writes_through_no_link)
{
    struct world back;

    save_steps(1, 3);
    run("mkdir large empty && mv step-2 large && ln -s large/step-2 step-2 && ln -s empty step-4 "
        "&& "
        "cp -r large/step-2 before");
    struct sidestep_series *series = open_with(NULL);
    world_make(&back, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load_step(series, 1, back.state, NULL, NULL, &err));
    world_free(&back);
    assert_int_equal(try_save_step(series, 2), SIDESTEP_EEXISTS); /* abandoned, so it may go */
    assert_non_null(strstr(err.message, "a series writes through none"));
    assert_int_equal(try_save_step(series, 4), SIDESTEP_EEXISTS);
    save_step(series, 3);
    close_series(&series);
    assert_true(
        holds("diff -r before large/step-2 && test -L step-2 && test -z \"$(ls -A empty)\""));
}

/* ---- which errors set a checkpoint aside */

/* Whatever a call to open a file of the newest checkpoint says, it does not say that bytes are
 * wrong: the resume takes it, or fails and changes nothing.  ENOENT and ENOTDIR are left out: they
 * say that there is no such name. */
TEST(what_cannot_be_opened_is_never_set_aside)
{
    static const int errors[] = {EACCES, EPERM,  ELOOP,   ENAMETOOLONG, ENXIO,     ENODEV,
                                 EISDIR, EMFILE, ENFILE,  ESTALE,       ETIMEDOUT, EOVERFLOW,
                                 EIO,    EINVAL, ETXTBSY, EBUSY,        EREMOTEIO};
    char rejected[2048];
    uint64_t step;

    save_steps(1, 2);
    for (size_t i = 0; i < ARRAY_LENGTH(errors); i++)
        for (unsigned long nth = 1;; nth++) {
            struct sidestep_series *series = open_with(NULL);
            fault_arm("posix.openat2", nth, true, errors[i]);
            step = 0;
            enum sidestep_status status = resume(series, &step, rejected);
            bool fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            close_series(&series);
            if (!holds("test -d step-2 && ! ls -A | grep -q bad") ||
                (status == SIDESTEP_OK && step != 2))
                fail_msg("error %d of opening %lu: step %llu, %s", errors[i], nth,
                         (unsigned long long)step, status != SIDESTEP_OK ? err.message : rejected);
            if (!fired)
                break;
        }
}

/* The same for what is no regular file. */
TEST(what_is_no_file_is_never_set_aside)
{
    static const char *const names[] = {"__0_0.distcp", ".metadata", ".sidestep.*"};
    static const char *const makers[] = {"mkfifo %s", "mkdir %s", "ln -s /dev/zero %s",
                                         "ln -s %s %s", "mknod %s c 1 5 || mkfifo %s"};

    save_steps(1, 2);
    run("cp -r step-2 whole");
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++)
        for (size_t m = 0; m < ARRAY_LENGTH(makers); m++) {
            char make[128], command[512];
            snprintf(make, sizeof(make), makers[m], "$f", "$f");
            snprintf(
                command, sizeof(command),
                "rm -rf step-2 && cp -r whole step-2 && cd step-2 && f=$(ls -d %s) && rm $f && "
                "%s",
                names[n], make);
            run(command);
            expect_refused(SIDESTEP_EIO, "could not be read, which does not mean that it is");
        }
}

/* The control: bytes that were read and are wrong, and names that are not there. */
TEST(damage_is_set_aside)
{
    static const char *const damages[] = {
        "printf x | dd of=step-2/__0_0.distcp bs=1 seek=30000 conv=notrunc 2>/dev/null",
        "truncate -s 700 step-2/__0_0.distcp", "rm step-2/__0_0.distcp",
        "cp step-1/__0_0.distcp step-2/__0_0.distcp"};

    for (size_t i = 0; i < ARRAY_LENGTH(damages); i++) {
        run("rm -rf .sidestep* step-*");
        save_steps(1, 2);
        run(damages[i]);
        struct sidestep_series *series = open_with(NULL);
        char rejected[2048];
        uint64_t step;
        ASSERT_OK(resume(series, &step, rejected));
        assert_int_equal(step, 1);
        assert_true(strstr(rejected, "step-2") != NULL && !step_exists(2));
        assert_true(holds("ls -A | grep -q 'bad$'"));
        close_series(&series);
    }
}

EACH_TEST(one_rank_setup, teardown);
