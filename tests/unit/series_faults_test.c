/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_faults_test.c -- external faults of a series: wrong clocks and times, misleading names
 * and pointers, copies under another name, failing reads, deletion during a load, a disk that is
 * too full to delete, ranks with different options.
 */
#include <errno.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "engine/engine.h"
#include "series/series.h"
#include "support/comm_hook.h"
#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/store_fault.h"
#include "support/unit.h"

static int teardown(void **state)
{
    (void)state;
    fault_arm("", 0, false, 0);
    fault_delay("", 0);
    return one_rank_end();
}

static void run(const char *format, ...)
{
    char command[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

static struct sidestep_series *open_keeping(uint32_t keep_last)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.retention = keep_last != 0 ? &keep : NULL;
    return open_with(&options);
}

static void close_series(struct sidestep_series **series)
{
    ASSERT_OK(sidestep_series_close(series, &err));
}

/* Resume from step ${want}, the newest; its contents must be those of ${content}. */
static void expect_resume(struct sidestep_series *series, uint64_t want, uint64_t content,
                          const char *rejected_word)
{
    char rejected[2048];
    uint64_t step = 0;

    world_fill(&world, 999);
    ASSERT_OK(sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err));
    assert_int_equal(step, want);
    assert_int_equal(world_check(&world, content), 0);
    if (rejected_word != NULL)
        assert_non_null(strstr(rejected, rejected_word));
}

/* Older checkpoints have newer times. */
TEST(file_times_do_not_matter)
{
    struct sidestep_series *series = open_keeping(0);
    static const char *const years[] = {"2099", "1971", "2040", "1980"};

    for (uint64_t n = 1; n <= 4; n++)
        save_step(series, n);
    close_series(&series);
    for (uint64_t n = 1; n <= 4; n++)
        run("find %s -exec touch -d %s-01-01 {} +", step_path(n), years[n - 1]);
    run("find %s/.sidestep -exec touch -d 2099-01-01 {} +", scratch.path);
    series = open_keeping(2);
    expect_resume(series, 4, 4, NULL);
    save_step(series, 5);
    close_series(&series);
    assert_true(step_exists(5) && step_exists(4));
    assert_false(step_exists(3) || step_exists(2) || step_exists(1));
}

/* Added to the clock of the host. */
static time_t clock_is_wrong_by;

time_t time(time_t *now)
{
    struct timespec real;

    (void)clock_gettime(CLOCK_REALTIME, &real);
    time_t wrong = real.tv_sec + clock_is_wrong_by;
    if (now != NULL)
        *now = wrong;
    return wrong;
}

/* Into the future, beyond 2038, before 1970; within a run, and between two. */
TEST(clock_jumps_do_not_matter)
{
    static const int years[] = {20, -30, 80, -80, 0, 5, -5, -10};
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    unsigned wrong = 0;

    for (uint64_t n = 1; n <= ARRAY_LENGTH(years); n += 2) {
        struct sidestep_series *series = open_keeping(3);
        if (n > 1)
            expect_resume(series, n - 1, n - 1, NULL);
        for (uint64_t step = n; step <= n + 1; step++) {
            clock_is_wrong_by = (time_t)years[step - 1] * 365 * 86400;
            save_step(series, step);
        }
        close_series(&series);
    }
    clock_is_wrong_by = 0;
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        wrong += llabs((long long)(sidestep_list_entry(&list, i)->saved_at - time(NULL))) > 86400;
    assert_int_equal(list.count, 3);
    assert_int_equal(wrong, 3); /* it is visible, and has no effect */
    assert_true(step_exists(6) && step_exists(7) && step_exists(8));
}

static void expect_newest(uint64_t step)
{
    char *latest = NULL;

    ASSERT_OK(find_newest(scratch.path, SIDESTEP_VERIFY_READ, &latest, &err));
    assert_string_equal(latest, step_path(step));
    free(latest);
}

/* Files, links and pipes that claim to be the newest, or to know which it is. */
TEST(misleading_pointers_and_names)
{
    struct sidestep_series *series = open_keeping(0);

    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    run("cd %s && echo step-1 >latest && echo 999 >latest_checkpointed_iteration.txt && "
        "echo >latest_step && ln -s step-1 newest && ln -s step-1 step-99 && "
        "ln -s ../../nowhere step-98 && mkfifo step-97 && touch step-96 && mkdir step-95 && "
        "cp -r step-1 step--4 && cp -r step-1 step-1e9 && cp -r step-1 step-007 && "
        "cp -r step-1 step-+8 && cp -r step-1 step-9223372036854775808 && "
        "cp -r step-1 step-18446744073709551619",
        scratch.path);
    expect_newest(3);
    series = open_keeping(1);
    expect_resume(series, 3, 3, "step-99': it is a symbolic link to another name");
    expect_resume(series, 3, 3, "step-98': it is a symbolic link that leads to nothing");
    save_step(series, 4);
    assert_int_equal(try_save_step(series, 98), SIDESTEP_EEXISTS); /* a dangling link */
    assert_int_equal(try_save_step(series, 97), SIDESTEP_EEXISTS);
    assert_int_equal(try_save_step(series, 96), SIDESTEP_EEXISTS);
    save_step(series, 5);
    close_series(&series);
    expect_newest(5);
    assert_false(step_exists(1) || step_exists(2) || step_exists(3) || step_exists(4));
    run("cd %s && test -L step-99 && test -L newest && test -p step-97 && test -f latest && "
        "test -f step-96 && test -d step-95 && test -d step-1e9 && test -d step-007",
        scratch.path);
}

TEST(a_copy_under_another_step_is_not_that_step)
{
    struct sidestep_series *series = open_keeping(0);
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};

    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    run("cd %s && cp -r step-2 step-9", scratch.path);
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        assert_true(sidestep_list_entry(&list, i)->is_renamed ==
                    (strcmp(sidestep_list_entry(&list, i)->name, "step-9") == 0));
    series = open_keeping(1);
    expect_resume(series, 3, 3, "step-9' was saved under another name");
    save_step(series, 4);
    close_series(&series);
    assert_true(step_exists(9) && step_exists(4)); /* it does not count, and is not deleted */
    assert_false(step_exists(3));
    series = open_keeping(0);
    ASSERT_OK(sidestep_series_load_step(series, 9, world.state, NULL, NULL, &err));
    assert_int_equal(world_check(&world, 2), 0);
    close_series(&series);
    series = open_keeping(1); /* it was loaded by name: from then on it counts */
    expect_resume(series, 9, 2, NULL);
    save_step(series, 10);
    close_series(&series);
    assert_false(step_exists(9));
}

static const char *const read_points[] = {"store.file_open", "store.file_read_at", "store.dir_open",
                                          "store.dir_list", "store.stat"};

/* Reads that fail, anywhere and for any time: a resume takes the newest or fails, and the newest is
 * still there afterwards. */
TEST(a_failed_read_is_not_damage)
{
    struct store *faulty = store_fault_new(store_posix());
    unsigned refused = 0;

    assert_non_null(faulty);
    struct sidestep_series *series = open_keeping(0);
    save_step(series, 1);
    save_step(series, 2);
    close_series(&series);
    engine->store = faulty;
    series = open_keeping(0);
    for (size_t p = 0; p < ARRAY_LENGTH(read_points); p++)
        for (int sticky = 0; sticky <= 1; sticky++)
            for (unsigned long nth = 1; nth <= 40; nth++) {
                uint64_t step = 2;
                fault_arm(read_points[p], nth, sticky == 1, EIO);
                enum sidestep_status status =
                    sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err);
                bool fired = fault_fired() != NULL;
                fault_arm("", 0, false, 0);
                if (step != 2 || (status != SIDESTEP_OK && status != SIDESTEP_EIO))
                    fail_msg("%s %lu: step %u, status %d: %s", read_points[p], nth, (unsigned)step,
                             status, err.message);
                refused += status == SIDESTEP_EIO;
                expect_resume(series, 2, 2, NULL);
                if (!fired)
                    break;
            }
    assert_true(refused > 10);
    close_series(&series);
    ASSERT_OK(sidestep_engine_close(&engine, &err)); /* it uses the store */
    store_fault_free(&faulty);
}

/* ... and while a run goes back: if it reports success, it has gone back. */
TEST(a_failed_read_does_not_undo_going_back)
{
    struct store *faulty = store_fault_new(store_posix());
    unsigned refused = 0, went = 0;

    assert_non_null(faulty);
    struct sidestep_series *series = open_keeping(0);
    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    engine->store = faulty;
    for (size_t p = 0; p < ARRAY_LENGTH(read_points); p++) {
        bool fired = true;
        for (unsigned long nth = 1; fired; nth++) {
            series = open_keeping(0);
            fault_arm(read_points[p], nth, false, EIO);
            enum sidestep_status status =
                sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            close_series(&series);
            if (status != SIDESTEP_OK && status != SIDESTEP_EIO)
                fail_msg("%s %lu: status %d: %s", read_points[p], nth, status, err.message);
            series = open_keeping(0);
            if (status == SIDESTEP_OK)
                expect_resume(series, 1, 1, NULL);
            refused += status == SIDESTEP_EIO;
            went += status == SIDESTEP_OK && fired;
            ASSERT_OK(sidestep_series_load_step(series, 3, world.state, NULL, NULL, &err));
            close_series(&series);
        }
    }
    assert_true(refused > 10 && went > 2);
    ASSERT_OK(sidestep_engine_close(&engine, &err)); /* it uses the store */
    store_fault_free(&faulty);
}

/* ---- deletion */

/* Another process deletes at any moment: what is loaded is whole, and of one step. */
TEST(a_deletion_during_a_load_mixes_nothing)
{
    char command[256], rejected[2048];
    unsigned older = 0;

    for (unsigned i = 0; i < 12; i++) {
        struct sidestep_series *series = open_keeping(0);
        uint64_t first = i * 10 + 1, step = 0;
        save_step(series, first);
        save_step(series, first + 1);
        world_fill(&world, 999);
        fault_delay("posix", 300);
        snprintf(command, sizeof(command), "sleep 0.%03u; rm -rf %s", i * 3, step_path(first + 1));
        FILE *remover = popen(command, "r");
        assert_non_null(remover);
        ASSERT_OK(sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err));
        fault_delay("", 0);
        assert_true(step == first || step == first + 1);
        assert_int_equal(world_check(&world, step), 0);
        older += step == first;
        (void)pclose(remover);
        close_series(&series);
    }
    print_message("# %u of 12 times the older one\n", older);
}

struct vanishing {
    const char *command;
    enum sidestep_verify_mode verify;
};

struct deleter {
    const char *command; /* NULL: deleted already */
};

/* Rank 0 has chosen, and no rank has opened it yet. */
static void delete_what_was_chosen(void *context, size_t bytes)
{
    struct deleter *d = context;

    if (bytes <= SERIES_REJECTED_BYTES || d->command == NULL)
        return;
    assert_int_equal(system(d->command), 0);
    d->command = NULL;
}

static int load_what_vanishes(struct sidestep_comm *comm, void *context)
{
    const struct vanishing *v = context;
    struct deleter deleter = {.command = comm->rank == 0 ? v->command : NULL};
    struct comm_hook hook = {.inner = *comm, .before = delete_what_was_chosen, .context = &deleter};
    struct sidestep_comm hooked = comm_hook_over(&hook);
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_load_options how = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct world mine;
    uint64_t step = 0;
    int bad = 0;

    options.comm = &hooked;
    options.threads = 1;
    how.verify = v->verify;
    bad |= sidestep_engine_open(&own, &options, NULL) != SIDESTEP_OK;
    bad |= sidestep_series_open(own, scratch.path, NULL, &series, NULL) != SIDESTEP_OK;
    world_make(&mine, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    for (uint64_t n = 1; n <= 2; n++) {
        world_fill(&mine, n);
        bad |= sidestep_series_save(series, n, mine.state, NULL, NULL, NULL) != SIDESTEP_OK;
    }
    bad |= sidestep_series_load(series, mine.state, &how, &step, NULL, NULL, NULL) != SIDESTEP_OK;
    bad |= step != 1 || world_check(&mine, 1) != 0;
    bad |= deleter.command != NULL;
    world_free(&mine);
    bad |= sidestep_series_close(&series, NULL) != SIDESTEP_OK;
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

/* Whatever is left of it, and however it was chosen. */
TEST(a_checkpoint_deleted_before_its_load_is_passed_over)
{
    static const char *const what[] = {".metadata", ".metadata .sidestep*", "*.distcp",
                                       "../step-2"};

    for (size_t i = 0; i < 2 * sizeof(what) / sizeof(*what); i++) {
        char command[512];
        struct vanishing vanishing = {.command = command,
                                      .verify = i % 2 == 0 ? SIDESTEP_VERIFY_READ
                                                           : SIDESTEP_VERIFY_BEFORE};
        snprintf(command, sizeof(command), "cd %s && rm -r %s", step_path(2), what[i / 2]);
        print_message("# %s\n", command);
        assert_int_equal(comm_threads_run(2, load_what_vanishes, &vanishing), 0);
        run("rm -rf %s && mkdir %s", scratch.path, scratch.path);
    }
}

/* A file system may need space to delete: then the checkpoint stays, whole, and this is reported.
 */
TEST(a_disk_too_full_to_delete)
{
    struct sidestep_series *series = open_keeping(0);
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report = {0};

    for (uint64_t n = 1; n <= 3; n++)
        save_step(series, n);
    close_series(&series);
    fault_arm("posix.renameat2", 1, true, ENOSPC);
    assert_int_equal(sidestep_prune(scratch.path, &keep, 0, &report, &err), SIDESTEP_ENOSPC);
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    assert_int_equal(report.removed_count, 0);
    assert_int_equal(report.kept_count, 3);
    sidestep_gc_report_release(&report);
    assert_true(step_exists(1) && step_exists(2) && step_exists(3));
    fault_arm("posix.pwrite", 1, true, ENOSPC); /* deletion helps then */
    ASSERT_OK(sidestep_prune(scratch.path, &keep, 0, &report, &err));
    assert_int_equal(report.removed_count, 2);
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    sidestep_gc_report_release(&report);
    series = open_keeping(0);
    expect_resume(series, 3, 3, NULL);
    close_series(&series);
}

/* ---- ranks */

static int open_differently(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_error why = {0};
    int bad = 0;

    (void)context;
    bad |= comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    for (int what = 0; what <= 6; what++) {
        struct sidestep_series_options wanted = SIDESTEP_SERIES_OPTIONS_INIT;
        struct sidestep_series *series = NULL;
        bool odd = comm->rank == 1;
        wanted.interval_steps = what == 1 && odd ? 20 : 10;
        wanted.interval_ms = what == 2 && odd ? 2000 : 1000;
        wanted.flags = what == 3 && odd ? SIDESTEP_SERIES_REQUESTS : 0;
        wanted.check_ms = what == 4 && odd ? 7 : 0;
        wanted.prefix = what == 5 && odd ? "other-" : NULL;
        if (what == 6) /* the same of most steps */
            wanted.name = odd ? "step-{step:02}" : "step-{step}";
        enum sidestep_status status =
            sidestep_series_open(own, scratch.path, &wanted, &series, &why);
        bad |= status != (what == 0 ? SIDESTEP_OK : SIDESTEP_EDISAGREE);
        if (status == SIDESTEP_OK)
            bad |= sidestep_series_close(&series, NULL) != SIDESTEP_OK;
    }
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(ranks_that_decide_differently_are_refused)
{
    assert_int_equal(comm_threads_run(3, open_differently, NULL), 0);
}

/* One rank is a step behind: nothing is saved, and then they are at the same one. */
static int save_differently(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct world mine;
    int bad = 0;

    (void)context;
    bad |= comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    bad |= sidestep_series_open(own, scratch.path, NULL, &series, NULL) != SIDESTEP_OK;
    world_make(&mine, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    world_fill(&mine, 8);
    uint64_t step = comm->rank == 2 ? 7 : 8;
    bad |= sidestep_series_save(series, step, mine.state, NULL, NULL, NULL) != SIDESTEP_EDISAGREE;
    bad |= step_exists(7) || step_exists(8);
    bad |= sidestep_series_save(series, 9, mine.state, NULL, NULL, NULL) != SIDESTEP_OK;
    world_free(&mine);
    bad |= sidestep_series_close(&series, NULL) != SIDESTEP_OK;
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(ranks_at_different_steps_are_refused)
{
    assert_int_equal(comm_threads_run(3, save_differently, NULL), 0);
    assert_true(step_exists(9));
    assert_false(step_exists(7) || step_exists(8));
}

EACH_TEST(one_rank_setup, teardown);
