/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_test.c -- whole saves and loads on the host's file system, on one rank and on several. */
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/one_scratch.h"
#include "support/reader.h"
#include "support/world.h"

static bool exists(const char *directory, const char *name)
{
    char path[512];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return lstat(path, &st) == 0;
}

static void put_file(const char *directory, const char *name, const char *text)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Names in a directory that are neither "." nor "..". */
static int count_names(const char *directory)
{
    char command[600];
    int count = -1;

    snprintf(command, sizeof(command), "ls -A '%s' | wc -l", directory);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

/* ---- one rank ---- */

static void save_one(struct sidestep_engine *engine, const char *path, struct world *world,
                     uint64_t seed, struct sidestep_save_info *info)
{
    struct sidestep_error err = {0};

    world_fill(world, seed);
    ASSERT_OK(sidestep_save(engine, path, world->state, NULL, info, &err), err);
}

static void check_load(struct sidestep_engine *engine, const char *path, uint64_t seed,
                       enum world_layout layout, int64_t scale)
{
    struct sidestep_error err = {0};
    struct world loaded;

    world_make(&loaded, 0, 1, layout, scale, true);
    ASSERT_OK(sidestep_load(engine, path, loaded.state, NULL, NULL, &err), err);
    assert_int_equal(world_check(&loaded, seed), 0);
    world_free(&loaded);
}

TEST(a_saved_state_is_loaded_bit_for_bit)
{
    char path[256];
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct world world;

    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 20, false);
    save_one(engine, at(path, "step-1"), &world, 1, &info);
    assert_int_equal(info.state, SIDESTEP_SAVE_COMMITTED);
    assert_int_equal(info.bytes_written, info.bytes_total);
    assert_int_equal(strlen(info.save_id), 32);
    assert_int_equal(info.flags & SIDESTEP_SAVE_PLAN_REUSED, 0);
    check_load(engine, path, 1, WORLD_BY_COLUMNS, 20);
    save_one(engine, at(path, "step-2"), &world, 2, &info);
    assert_int_equal(info.flags & SIDESTEP_SAVE_PLAN_REUSED, SIDESTEP_SAVE_PLAN_REUSED);
    check_load(engine, path, 2, WORLD_BY_ROWS, 20);
    check_load(engine, at(path, "step-1"), 1, WORLD_BY_ROWS, 20);
    assert_int_equal(count_names(scratch.path), 2); /* nothing of ours is left beside them */
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

TEST(a_checkpoint_is_replaced_and_foreign_files_stay)
{
    char path[256];
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;

    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 2, false);
    assert_int_equal(mkdir(at(path, "ckpt"), 0777), 0);
    put_file(path, "config.json", "{}");
    for (uint64_t seed = 1; seed <= 3; seed++) {
        save_one(engine, path, &world, seed, NULL);
        check_load(engine, path, seed, WORLD_BY_ROWS, 2);
        assert_true(exists(path, "config.json"));
        assert_int_equal(count_names(path), 4); /* config.json, .metadata, manifest, one shard */
    }
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    options.flags = SIDESTEP_SAVE_NO_REPLACE;
    assert_int_equal(sidestep_save(engine, path, world.state, &options, NULL, &err),
                     SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "holds a checkpoint already"));
    check_load(engine, path, 3, WORLD_BY_ROWS, 2);
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

TEST(a_small_pool_streams)
{
    char path[256];
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct world world;

    options.pool_bytes = 16u << 20;
    options.snapshot = SIDESTEP_SNAPSHOT_COPY; /* write protection would wait instead */
    ASSERT_OK(sidestep_engine_open(&engine, &options, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 400, false); /* 70 MB */
    world_fill(&world, 9);
    ASSERT_OK(sidestep_save_async(engine, at(path, "big"), world.state, NULL, &save, &err), err);
    world_fill(&world, 10); /* the call has returned, so the trainer goes on */
    ASSERT_OK(sidestep_save_finish(&save, &info, &err), err);
    assert_null(save);
    assert_true((info.flags & SIDESTEP_SAVE_STREAMED) != 0);
    check_load(engine, path, 9, WORLD_BY_ROWS, 400);
    options.pool_bytes = 1;
    struct sidestep_engine *none = NULL;
    assert_int_equal(sidestep_engine_open(&none, &options, &err), SIDESTEP_EINVAL);
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

static void async_save_holds(enum sidestep_snapshot snapshot, int64_t released_ms)
{
    char path[256];
    struct sidestep_engine *engine = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct sidestep_save *save = NULL, *second = NULL;
    struct sidestep_save_options nowait = SIDESTEP_SAVE_OPTIONS_INIT;
    struct world world;

    nowait.flags = SIDESTEP_SAVE_NOWAIT;
    options.snapshot = snapshot;
    ASSERT_OK(sidestep_engine_open(&engine, &options, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 200, false);
    ASSERT_OK(sidestep_engine_prepare(engine, world.state, &err), err);
    world_fill(&world, 5);
    ASSERT_OK(sidestep_save_async(engine, at(path, "a"), world.state, NULL, &save, &err), err);
    ASSERT_OK(sidestep_save_wait(save, SIDESTEP_SAVE_RELEASED, released_ms, &err), err);
    enum sidestep_status status =
        sidestep_save_async(engine, at(path, "b"), world.state, &nowait, &second, &err);
    assert_true(status == SIDESTEP_EBUSY || status == SIDESTEP_OK); /* a fast disk may be done */
    if (status == SIDESTEP_OK)
        ASSERT_OK(sidestep_save_finish(&second, NULL, &err), err);
    world_fill(&world, 6);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err), err);
    check_load(engine, at(path, "a"), 5, WORLD_BY_ROWS, 200);
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

TEST(an_async_save_holds_the_state_of_the_call)
{
    /* Copied host memory is released at once. */
    async_save_holds(SIDESTEP_SNAPSHOT_COPY, tensor_memory_has_devices() ? -1 : 0);
    async_save_holds(SIDESTEP_SNAPSHOT_COW, -1);
    async_save_holds(SIDESTEP_SNAPSHOT_AUTO, -1);
}

TEST(unsavable_tensors_are_refused_with_a_reason)
{
    char path[256];
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;

    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 1);
    assert_int_equal(
        sidestep_save(engine, at(path, "no/such/parent"), world.state, NULL, NULL, &err),
        SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, at(path, "no' does not exist; make it first")));
    assert_int_equal(err.sys_errno, ENOENT);
    put_file(scratch.path, "file", "x");
    assert_int_equal(sidestep_save(engine, at(path, "file"), world.state, NULL, NULL, &err),
                     SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "is a file"));
    assert_int_equal(
        sidestep_save(engine, at(path, "file/below/it"), world.state, NULL, NULL, &err),
        SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, at(path, "file' is not a directory")));
    assert_int_equal(err.sys_errno, ENOTDIR);
    assert_int_equal(symlink("nowhere", at(path, "dangling")), 0);
    assert_int_equal(sidestep_save(engine, path, world.state, NULL, NULL, &err), SIDESTEP_EEXISTS);
    assert_int_equal(sidestep_save(engine, NULL, world.state, NULL, NULL, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_save(engine, at(path, ".sidestep"), world.state, NULL, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(sidestep_load(engine, at(path, "absent"), world.state, NULL, NULL, &err),
                     SIDESTEP_ENOTFOUND);
    assert_int_equal(mkdir(at(path, "hollow"), 0777), 0);
    assert_int_equal(sidestep_load(engine, path, world.state, NULL, NULL, &err),
                     SIDESTEP_EUNCOMMITTED);
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

TEST(a_link_to_a_directory_is_saved_in_place)
{
    char path[256], link[256];
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;

    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    assert_int_equal(mkdir(at(path, "real"), 0777), 0);
    assert_int_equal(symlink("real", at(link, "link")), 0);
    save_one(engine, link, &world, 4, NULL);
    check_load(engine, at(path, "real"), 4, WORLD_BY_ROWS, 1);
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

static void skip_because(const char *reason)
{
    print_message("skipped: %s\n", reason);
    skip();
}

/* Run ${work} in a child process. 0: it succeeded; 77: it cannot run here. */
static void in_child(int (*work)(const char *path), const char *path)
{
#ifdef __SANITIZE_THREAD__
    skip_because("ThreadSanitizer cannot follow threads that a forked child starts");
#endif
    need_reader_beside_devices();
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        _exit(work(path));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip_because("needs root");
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Save to ${path} and load it again: 0, or 1 + the status of the save. */
static int save_and_load(const char *path, uint32_t *flags)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_error err = {0};
    struct world world, loaded;

    if (sidestep_engine_open(&engine, NULL, &err) != SIDESTEP_OK)
        return 100;
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    world_fill(&world, 8);
    enum sidestep_status status = sidestep_save(engine, path, world.state, NULL, &info, &err);
    *flags = info.flags;
    if (status != SIDESTEP_OK)
        return 1 + (int)status;
    status = sidestep_load(engine, path, loaded.state, NULL, NULL, &err);
    return status == SIDESTEP_OK && world_check(&loaded, 8) == 0 ? 0 : 101;
}

/* The directory may be written, but not its parent; and the reverse. */
static int save_without_permission(const char *parent)
{
    char path[300];
    uint32_t flags;

    if (getuid() == 0 &&
        (chown(parent, 65534, 65534) != 0 || setgid(65534) != 0 || setuid(65534) != 0))
        return 77;
    snprintf(path, sizeof(path), "%s/ckpt", parent);
    if (mkdir(path, 0777) != 0 || chmod(parent, 0555) != 0)
        return 102;
    int in_place = save_and_load(path, &flags);
    snprintf(path, sizeof(path), "%s/new", parent);
    int fresh = save_and_load(path, &flags);
    if (chmod(parent, 0777) != 0)
        return 103;
    return in_place == 0 && fresh == 1 + SIDESTEP_EPERM ? 0 : 1;
}

TEST(a_parent_that_cannot_be_written)
{
    struct scratch open_to_all;

    assert_true(scratch_make(&open_to_all, "/tmp")); /* which every user may enter */
    in_child(save_without_permission, open_to_all.path);
    scratch_remove(&open_to_all);
}

static int save_to_mount_point(const char *path)
{
    uint32_t flags = 0;

    if (getuid() != 0 || unshare(CLONE_NEWNS) != 0)
        return 77;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", path, "tmpfs", 0, NULL) != 0)
        return 77;
    int result = save_and_load(path, &flags);
    return result == 0 && (flags & SIDESTEP_SAVE_VOLATILE) != 0 ? 0 : 1;
}

TEST(a_mount_point_is_saved_in_place)
{
    char path[256];

    assert_int_equal(mkdir(at(path, "mounted"), 0777), 0);
    in_child(save_to_mount_point, path);
}

/* ---- several ranks ---- */

struct job {
    char path[256];
    uint64_t seed;
    enum world_layout layout;
    bool async;
    int failing_rank; /* -1: none; else it has another shape */
};

static int run_save(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_save *save = NULL;
    struct sidestep_error err = {0};
    struct world world;
    enum sidestep_status status;

    options.comm = comm;
    options.threads = 2;
    status = sidestep_engine_open(&engine, &options, &err);
    if (status != SIDESTEP_OK)
        return 1;
    world_make(&world, comm->rank, comm->size, job->layout, comm->rank == job->failing_rank ? 3 : 4,
               false);
    world_fill(&world, job->seed);
    if (job->async) {
        status = sidestep_save_async(engine, job->path, world.state, NULL, &save, &err);
        if (status == SIDESTEP_OK) {
            world_fill(&world, 999);
            status = sidestep_save_finish(&save, NULL, &err);
        }
    } else {
        status = sidestep_save(engine, job->path, world.state, NULL, NULL, &err);
    }
    if (status != SIDESTEP_OK && job->failing_rank < 0)
        fprintf(stderr, "rank %d: %s\n", comm->rank, err.message);
    world_free(&world);
    (void)sidestep_engine_close(&engine, NULL);
    return status != SIDESTEP_OK;
}

static int run_load(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_load_report report = SIDESTEP_LOAD_REPORT_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;
    int bad;

    options.comm = comm;
    options.threads = 2;
    if (sidestep_engine_open(&engine, &options, &err) != SIDESTEP_OK)
        return 1;
    world_make(&world, comm->rank, comm->size, job->layout, 4, true);
    bad = sidestep_load(engine, job->path, world.state, NULL, &report, &err) != SIDESTEP_OK;
    if (bad)
        fprintf(stderr, "rank %d: %s\n", comm->rank, err.message);
    bad |= world_check(&world, job->seed) != 0;
    bad |= report.missing_count != 0 || report.unexpected_count != 0;
    sidestep_load_report_release(&report);
    world_free(&world);
    bad |= sidestep_engine_close(&engine, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(any_sharding_is_loaded_on_any_number_of_ranks)
{
    static const int sizes[] = {1, 2, 3, 5};

    for (size_t s = 0; s < 4; s++) {
        struct job job = {.seed = 10 + s,
                          .layout = s % 2 == 0 ? WORLD_BY_ROWS : WORLD_BY_COLUMNS,
                          .async = s % 2 == 1,
                          .failing_rank = -1};
        char name[32];
        snprintf(name, sizeof(name), "ranks-%d", sizes[s]);
        at(job.path, name);
        assert_int_equal(comm_threads_run(sizes[s], run_save, &job), 0);
        for (size_t l = 0; l < 4; l++) {
            job.layout = l % 2 == 0 ? WORLD_BY_COLUMNS : WORLD_BY_ROWS;
            assert_int_equal(comm_threads_run(sizes[l], run_load, &job), 0);
        }
        struct sidestep_verify_report report;
        struct sidestep_error err = {0};
        ASSERT_OK(sidestep_verify(job.path, NULL, &report, &err), err);
        assert_true(report.is_ok);
        sidestep_verify_report_release(&report);
    }
}

TEST(ranks_that_disagree_save_nothing)
{
    struct job job = {.seed = 1, .failing_rank = 2};

    at(job.path, "disagree");
    assert_int_equal(comm_threads_run(4, run_save, &job), 4); /* an error on every rank */
    assert_int_equal(count_names(scratch.path), 0);
}

/* Many ranks need few descriptors: there are more shards than are kept open, and than the limit
 * allows. */
TEST(many_shards_need_few_descriptors)
{
    enum { SHARDS = 300 };
    char path[256], name[64];
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct rlimit limit, small;
    struct job job = {.seed = 3, .failing_rank = -1};

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit; /* what so many ranks in one process need themselves */
    small.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    if (small.rlim_cur < 16 * SHARDS) {
        print_message("skipped: so many ranks in one process need more descriptors\n");
        skip();
    }
    at(job.path, "many");
    assert_int_equal(comm_threads_run(SHARDS, run_save, &job), 0);
    snprintf(name, sizeof(name), "__%d_0.distcp", SHARDS - 1);
    assert_true(exists(job.path, name));
    small.rlim_cur = 290;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err), err);
    check_load(engine, at(path, "many"), 3, WORLD_BY_COLUMNS, 4);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ---- damage ---- */

TEST(every_flipped_byte_is_found)
{
    char path[256], file[300];
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;
    static const char *const names[] = {"__0_0.distcp", ".metadata"};

    ASSERT_OK(sidestep_engine_open(&engine, NULL, &err), err);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    save_one(engine, at(path, "flip"), &world, 7, NULL);
    for (size_t n = 0; n < 2; n++) {
        snprintf(file, sizeof(file), "%s/%s", path, names[n]);
        FILE *f = fopen(file, "r+");
        struct stat st;
        assert_non_null(f);
        assert_int_equal(stat(file, &st), 0);
        long stride = st.st_size > 20000 ? st.st_size / 400 : 37;
        for (long offset = 0; offset < st.st_size; offset += stride) {
            struct sidestep_verify_report report;
            fseek(f, offset, SEEK_SET);
            int byte = fgetc(f);
            fseek(f, offset, SEEK_SET);
            fputc(byte ^ 1 << offset % 8, f);
            fflush(f);
            ASSERT_OK(sidestep_verify(path, NULL, &report, &err), err);
            if (report.is_ok)
                print_message("# %s: flipped byte %ld was not found\n", names[n], offset);
            assert_false(report.is_ok);
            assert_true(report.problem_count > 0);
            sidestep_verify_report_release(&report);
            fseek(f, offset, SEEK_SET);
            fputc(byte, f);
            fflush(f);
        }
        fclose(f);
    }
    check_load(engine, path, 7, WORLD_BY_ROWS, 1);
    world_free(&world);
    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

EACH_TEST(scratch_setup, scratch_teardown);
