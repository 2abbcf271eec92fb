/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_test.c -- copies of checkpoints: the same bytes, whole or not there, and a copy that was
 * killed or failed goes on where it stopped. Between directories, and to simulated buckets.
 * tests/objects/test_copy.py does the same through the command line and a server.
 */
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "copy/copy.h"
#include "support/flip.h"
#include "support/incremental.h"
#include "support/object_sim.h"
#include "support/scratch.h"
#include "support/unit.h"

#define FILES 3 /* of the source */

static char source[128];

static const char *copy_path(const char *name)
{
    return scratch_path(&scratch, name);
}

/* A checkpoint of several ranks, with tensors of many blocks. */
static int set_up(void **test UNUSED)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;

    if (begin(LARGE_SCALE, 2) != 0)
        return -1;
    world_fill(&world, 1);
    ASSERT_OK(sidestep_save(engine, copy_path("one"), world.state, NULL, NULL, &err));
    options.to = SIDESTEP_FORMAT_DCP;
    options.ranks = FILES;
    snprintf(source, sizeof(source), "%s", copy_path("source"));
    ASSERT_OK(sidestep_convert(copy_path("one"), source, &options, NULL, &err));
    return 0;
}

static struct sidestep_copy_report report;

static enum sidestep_status copy(const char *from, const char *to, uint32_t flags)
{
    struct sidestep_copy_options options = SIDESTEP_COPY_OPTIONS_INIT;

    options.flags = flags;
    return sidestep_copy(from, to, &options, &report, &err);
}

/* Are the same files in both directories? */
static void expect_equal(const char *a, const char *b)
{
    char command[512];

    snprintf(command, sizeof(command), "diff -r '%s' '%s'", a, b);
    if (system(command) != 0)
        fail_msg("'%s' and '%s' differ", a, b);
}

static void expect_absent(const char *path)
{
    if (access(path, F_OK) == 0)
        fail_msg("'%s' is there: %s", path, err.message);
}

/* The hidden directory of an interrupted copy; "": there is none. */
static const char *hidden(void)
{
    static char path[512];
    DIR *dir = opendir(scratch.path);

    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".saving") != NULL || strstr(entry->d_name, ".trash") != NULL)
            snprintf(path, sizeof(path), "%s/%s", scratch.path, entry->d_name);
    closedir(dir);
    return path;
}

TEST(copies_every_kind)
{
    static const char *const how[] = {NULL, "planes", "zstd"};

    for (size_t i = 0; i < ARRAY_LENGTH(how); i++) {
        struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
        char from[128], to[128];
        snprintf(from, sizeof(from), "%s/from%zu", scratch.path, i);
        snprintf(to, sizeof(to), "%s/to%zu", scratch.path, i);
        options.to = SIDESTEP_FORMAT_DCP;
        options.compress = how[i];
        ASSERT_OK(sidestep_convert(source, from, &options, NULL, &err));
        ASSERT_OK(copy(from, to, 0));
        assert_int_equal(report.copied_count, report.file_count);
        assert_int_equal(report.copied_bytes, report.bytes);
        expect_equal(from, to);
        /* A second time there is nothing to do. */
        ASSERT_OK(copy(from, to, 0));
        assert_int_equal(report.copied_count, 0);
    }
    assert_string_equal(hidden(), "");
}

/* A step has a file that other steps have, too. Its copy does without them. */
TEST(an_incremental_checkpoint_stands_alone)
{
    struct sidestep_series *series = open_incremental(0);
    struct world loaded;
    struct stat st;

    save_some(series, 1, 5);
    assert_int_equal(stat(path_of(5, KEPT), &st), 0);
    assert_true(st.st_nlink > 1);
    ASSERT_OK(copy(path_of(5, ""), copy_path("alone"), 0));
    expect_equal(path_of(5, ""), copy_path("alone"));
    assert_int_equal(stat(copy_path("alone/__0_1.distcp"), &st), 0);
    assert_int_equal(st.st_nlink, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, scale, true);
    for (size_t i = 0; i < loaded.count; i++)
        loaded.tensors[i].frozen = world.tensors[i].frozen;
    ASSERT_OK(sidestep_load(engine, copy_path("alone"), loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, 5), 0);
    world_free(&loaded);
}

TEST(what_is_there_stays)
{
    FILE *f;

    ASSERT_OK(copy(copy_path("one"), copy_path("copy"), 0));
    assert_int_equal(copy(source, copy_path("copy"), 0), SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "option replace"));
    expect_equal(copy_path("one"), copy_path("copy"));
    ASSERT_OK(copy(source, copy_path("copy"), SIDESTEP_COPY_REPLACE));
    expect_equal(source, copy_path("copy"));
    /* Somebody's own file is not replaced. */
    f = fopen(copy_path("copy/notes.txt"), "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(copy(copy_path("one"), copy_path("copy"), SIDESTEP_COPY_REPLACE),
                     SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "notes.txt"));
    assert_int_equal(access(copy_path("copy/notes.txt"), F_OK), 0);
    assert_string_equal(hidden(), "");
    /* A file, and a directory that is missing. */
    assert_int_equal(copy(source, copy_path("copy/notes.txt"), SIDESTEP_COPY_REPLACE),
                     SIDESTEP_EEXISTS);
    assert_int_equal(copy(source, copy_path("missing/copy"), 0), SIDESTEP_ENOTFOUND);
    assert_int_equal(copy(copy_path("missing"), copy_path("new"), 0), SIDESTEP_ENOTFOUND);
    assert_int_equal(copy(source, "gs://bucket/copy", 0), SIDESTEP_EUNSUPPORTED);
    /* The same place, by another name. */
    assert_int_equal(copy(source, copy_path("./source/"), SIDESTEP_COPY_REPLACE), SIDESTEP_EINVAL);
    ASSERT_OK(mkdir(copy_path("empty"), 0777));
    ASSERT_OK(copy(source, copy_path("empty"), 0));
    expect_equal(source, copy_path("empty"));
}

TEST(damage_is_not_copied)
{
    static const struct {
        const char *file;
        long offset; /* from the end if negative */
    } flips[] = {{"/__0_0.distcp", 1},
                 {"/__1_0.distcp", 900000},
                 {"/__2_0.distcp", -40},
                 {"/__1_0.distcp", -400}};

    for (size_t i = 0; i < ARRAY_LENGTH(flips); i++) {
        struct stat st;
        char path[256];
        ASSERT_OK(copy(source, copy_path("damaged"), SIDESTEP_COPY_REPLACE));
        snprintf(path, sizeof(path), "%s%s", copy_path("damaged"), flips[i].file);
        assert_int_equal(stat(path, &st), 0);
        flip(path, flips[i].offset < 0 ? st.st_size + flips[i].offset : flips[i].offset);
        if (copy(copy_path("damaged"), copy_path("copy"), 0) != SIDESTEP_ECORRUPT)
            fail_msg("flip %zu: %d %s", i, err.status, err.message);
        assert_non_null(strstr(err.message, flips[i].file + 1));
        expect_absent(copy_path("copy"));
        assert_string_equal(hidden(), "");
    }
    /* A damaged copy is not taken for a copy. */
    assert_int_equal(copy(source, copy_path("damaged"), 0), SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "damaged"));
    ASSERT_OK(copy(source, copy_path("damaged"), SIDESTEP_COPY_REPLACE));
    expect_equal(source, copy_path("damaged"));
}

/* ---- interrupted */

static uint64_t kill_after;

static void kill_self(void *context UNUSED, uint64_t done, uint64_t total UNUSED)
{
    if (done >= kill_after)
        kill(getpid(), SIGKILL);
}

static void copy_and_die(const char *to, uint64_t after)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        struct sidestep_copy_options options = SIDESTEP_COPY_OPTIONS_INIT;
        kill_after = after;
        options.on_progress = kill_self;
        options.threads = 1;
        _exit(sidestep_copy(source, to, &options, NULL, NULL) == SIDESTEP_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

TEST(a_killed_copy_goes_on)
{
    ASSERT_OK(copy(source, copy_path("whole"), 0));
    const uint64_t bytes = report.bytes;

    for (unsigned part = 1; part <= 8; part++) {
        char path[512];
        copy_and_die(copy_path("copy"), bytes * part / 8);
        expect_absent(copy_path("copy"));
        snprintf(path, sizeof(path), "%s/__0_0.distcp", hidden());
        if (part == 8) /* what was there is damaged meanwhile */
            flip(path, 5000);
        ASSERT_OK(copy(source, copy_path("copy"), 0));
        expect_equal(source, copy_path("copy"));
        if (part == 8) /* and the last file was not finished */
            assert_in_range(report.copied_count, 1, FILES - 1);
        assert_string_equal(hidden(), "");
        struct scratch made;
        snprintf(made.path, sizeof(made.path), "%s", copy_path("copy"));
        scratch_remove(&made);
    }
}

/* Another copy of the same to the same is at work as long as the marker is locked. */
TEST(a_live_copy_is_left_alone)
{
    DIR *dir;
    char path[800] = "";

    copy_and_die(copy_path("copy"), 1);
    dir = opendir(hidden());
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".pending") != NULL)
            snprintf(path, sizeof(path), "%s/%s", hidden(), entry->d_name);
    closedir(dir);
    int fd = open(path, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    assert_int_equal(copy(source, copy_path("copy"), 0), SIDESTEP_ELOCKED);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    ASSERT_OK(copy(source, copy_path("copy"), 0));
    expect_equal(source, copy_path("copy"));
}

TEST(gc_removes_what_nobody_goes_on_with)
{
    struct sidestep_gc_report gc;

    copy_and_die(copy_path("copy"), 1);
    assert_string_not_equal(hidden(), "");
    ASSERT_OK(sidestep_gc(scratch.path, 0, &gc, &err));
    sidestep_gc_report_release(&gc);
    assert_string_equal(hidden(), "");
}

static bool cancelled;
static void cancel(void *context UNUSED, uint64_t done, uint64_t total)
{
    cancelled = done == total;
}

TEST(a_cancelled_copy_goes_on)
{
    struct sidestep_copy_options options = SIDESTEP_COPY_OPTIONS_INIT;

    options.on_progress = cancel;
    options.cancel = &cancelled;
    options.threads = 1;
    assert_int_equal(sidestep_copy(source, copy_path("copy"), &options, &report, &err),
                     SIDESTEP_ECANCELLED);
    expect_absent(copy_path("copy"));
    /* What was there is synced, too: the first copy may have been killed before that. */
    fault_arm("posix.fsync", 1000, false, EIO);
    ASSERT_OK(copy(source, copy_path("copy"), 0));
    assert_in_range(fault_hits(), FILES + 2, 999);
    fault_arm("", 0, false, 0);
    assert_true(report.copied_count <= 1);
    expect_equal(source, copy_path("copy"));
}

static void cancel_at_once(void *context UNUSED, uint64_t done UNUSED, uint64_t total UNUSED)
{
    cancelled = true;
}

/* All space of a file is allocated before its first byte is written. */
TEST(a_cancelled_copy_keeps_no_space_of_unfinished_files)
{
    struct sidestep_copy_options options = SIDESTEP_COPY_OPTIONS_INIT;
    char found[512] = "", command[512];

    cancelled = false;
    options.on_progress = cancel_at_once;
    options.cancel = &cancelled;
    options.threads = 1;
    assert_int_equal(sidestep_copy(source, copy_path("copy"), &options, &report, &err),
                     SIDESTEP_ECANCELLED);
    assert_string_not_equal(hidden(), "");
    snprintf(command, sizeof(command), "find %s -path '*.saving/*.distcp'", scratch.path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_null(fgets(found, sizeof(found), pipe));
    assert_int_equal(pclose(pipe), 0);
    ASSERT_OK(copy(source, copy_path("copy"), 0));
    expect_equal(source, copy_path("copy"));
}

/* A full disk among them. */
TEST(every_call_may_fail)
{
    unsigned long failures = 0, step = 1;
    bool fired = true;

    for (unsigned long nth = 1; fired; nth += step) {
        struct sidestep_copy_options options = SIDESTEP_COPY_OPTIONS_INIT;
        struct sidestep_error why = {0};
        options.threads = 1;
        fault_arm("", nth, false, ENOSPC);
        enum sidestep_status status =
            sidestep_copy(source, copy_path("copy"), &options, NULL, &why);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (status != SIDESTEP_OK && status != SIDESTEP_EUNKNOWN) {
            if (!fired || access(copy_path("copy"), F_OK) == 0)
                fail_msg("hit %lu: %s", nth, why.message);
            failures++;
            if (copy(source, copy_path("copy"), 0) != SIDESTEP_OK)
                fail_msg("after hit %lu (%s): %s", nth, why.message, err.message);
        }
        expect_equal(source, copy_path("copy"));
        struct scratch made;
        snprintf(made.path, sizeof(made.path), "%s", copy_path("copy"));
        scratch_remove(&made);
        step = nth < 120 ? 1 : 23;
    }
    assert_true(failures > 60);
    assert_string_equal(hidden(), "");
}

TEST(a_full_disk_says_how_much_is_needed)
{
    fault_arm("posix.fallocate", 2, false, ENOSPC);
    assert_int_equal(copy(source, copy_path("copy"), 0), SIDESTEP_ENOSPC);
    fault_arm("", 0, false, 0);
    assert_non_null(strstr(err.message, "the storage is full: the copy takes "));
    expect_absent(copy_path("copy"));
    assert_string_equal(hidden(), ""); /* the space was given back */
    ASSERT_OK(copy(source, copy_path("copy"), 0));
    expect_equal(source, copy_path("copy"));
}

/* ---- simulated buckets */

static enum sidestep_status copy_between(struct object_bucket *from, const char *a,
                                         struct object_bucket *to, const char *b)
{
    struct store *stores[2] = {store_posix(), store_posix()};
    struct object_bucket *buckets[2] = {from, to};

    for (int i = 0; i < 2; i++)
        if (buckets[i] != NULL)
            ASSERT_OK(object_store_new("runs", object_sim_client(buckets[i], i), &stores[i], &err));
    struct checkpoint_copy c = {
        .source = a, .destination = b, .from = stores[0], .to = stores[1], .clock = clock_system()};
    c.options.threads = 2;
    enum sidestep_status status = copy_run(&c, &report, &err);
    copy_release(&c);
    for (int i = 0; i < 2; i++)
        if (buckets[i] != NULL)
            object_store_free(&stores[i]);
    return status;
}

/* There, whole; or not there. */
static void expect_in_bucket(struct object_bucket *bucket, const char *name, bool must_be)
{
    size_t length;
    bool is_there = object_sim_bytes(bucket, "copy/.metadata", &length) != NULL;

    if (must_be && !is_there)
        fail_msg("%s: there is no copy", name);
    if (!is_there)
        return;
    ASSERT_OK(copy_between(bucket, "s3://runs/copy", NULL, copy_path("back")));
    expect_equal(source, copy_path("back"));
    struct scratch made;
    snprintf(made.path, sizeof(made.path), "%s", copy_path("back"));
    scratch_remove(&made);
}

TEST(each_request_meets_each_fate)
{
    static const enum object_fate fates[] = {OBJECT_REFUSED, OBJECT_LOST, OBJECT_LATE};

    for (size_t f = 0; f < ARRAY_LENGTH(fates); f++)
        for (unsigned at = 1;; at += 2) {
            struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
            struct object_meeting meeting = {.at = at, .fate = fates[f]};
            char name[64];
            snprintf(name, sizeof(name), "fate %zu of request %u", f, at);
            object_sim_set_hook(bucket, object_sim_meet, &meeting);
            enum sidestep_status status = copy_between(NULL, source, bucket, "s3://runs/copy");
            bool ends = meeting.seen < at;
            meeting.at = 0;
            expect_in_bucket(bucket, name, status == SIDESTEP_OK);
            while (object_sim_late_count(bucket) != 0)
                object_sim_land(bucket, 0);
            expect_in_bucket(bucket, name, status == SIDESTEP_OK);
            ASSERT_OK(copy_between(NULL, source, bucket, "s3://runs/copy"));
            expect_in_bucket(bucket, name, true);
            object_sim_free(&bucket);
            if (ends)
                break;
        }
}

/* Save so many long names that the checkpoint has an index of chunks. */
static void save_with_index(const char *path)
{
    struct sidestep_state_dict *state = NULL;
    char name[4001];

    ASSERT_OK(sidestep_state_dict_new(&state, &err));
    for (int i = 0; i < 20; i++) {
        memset(name, 'x', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        name[snprintf(name, sizeof(name), "%d", i)] = '.';
        ASSERT_OK(sidestep_state_dict_add_value(state, name, NULL, 0, sidestep_value_int(i), &err));
    }
    ASSERT_OK(sidestep_save(engine, path, state, NULL, NULL, &err));
    sidestep_state_dict_free(&state);
}

/* If a checkpoint has an index of chunks, its copies have it, too. */
TEST(the_index_of_chunks_is_copied)
{
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    char wide[128], path[512];
    glob_t found;

    snprintf(wide, sizeof(wide), "%s", copy_path("wide"));
    save_with_index(wide);
    snprintf(path, sizeof(path), "%s/.sidestep.index.*", wide);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    ASSERT_OK(copy(wide, copy_path("copy"), 0));
    expect_equal(wide, copy_path("copy"));
    ASSERT_OK(copy_between(NULL, wide, bucket, "s3://runs/copy"));
    ASSERT_OK(copy_between(bucket, "s3://runs/copy", NULL, copy_path("back")));
    expect_equal(wide, copy_path("back"));
    object_sim_free(&bucket);
    /* A damaged one is not copied. */
    flip(found.gl_pathv[0], 3);
    assert_int_equal(copy(wide, copy_path("third"), 0), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "index of chunks"));
    expect_absent(copy_path("third"));
    globfree(&found);
}

/* The negative control of the tests of faults. */
TEST(a_torn_copy_is_noticed)
{
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);

    ASSERT_OK(copy_between(NULL, source, bucket, "s3://runs/copy"));
    object_sim_flip(bucket, "copy/__1_0.distcp", 2000);
    assert_int_equal(copy_between(bucket, "s3://runs/copy", NULL, copy_path("back")),
                     SIDESTEP_ECORRUPT);
    expect_absent(copy_path("back"));
    object_sim_free(&bucket);
}

EACH_TEST(set_up, teardown);
