/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_retention_test.c -- retention, pins, tags and metrics of a series.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "selection/prune.h"
#include "support/comm_threads.h"
#include "support/flip.h"
#include "support/one_series.h"
#include "support/prng.h"
#include "support/unit.h"

static unsigned long deleted_events, failed_events;

static void on_event(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "\"deleted\"") != NULL)
        __atomic_add_fetch(&deleted_events, 1, __ATOMIC_RELAXED);
    if (strstr(line, "\"delete_failed\"") != NULL && strstr(line, "'step-1'") != NULL)
        __atomic_add_fetch(&failed_events, 1, __ATOMIC_RELAXED);
}

static int setup(void **state)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    (void)state;
    options.on_event = on_event;
    deleted_events = failed_events = 0;
    return one_rank_begin(&options);
}

static struct sidestep_series *open_keeping(uint32_t keep_last)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.retention = &keep;
    return open_with(&options);
}

/* The committed steps, as "1 2 5". */
static const char *steps_there(void)
{
    static char text[256];
    struct sidestep_list list;
    size_t used = 0;

    text[0] = '\0';
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->state == SIDESTEP_COMMITTED)
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s%lld", used != 0 ? " " : "",
                                 (long long)sidestep_list_entry(&list, i)->step);
        else
            assert_int_not_equal(sidestep_list_entry(&list, i)->state, SIDESTEP_TRASH);
    sidestep_list_release(&list);
    return text;
}

static const char *path_of(uint64_t step, const char *rest)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu%s", scratch.path, (unsigned long long)step, rest);
    return path;
}

static void damage(uint64_t step, const char *file, long offset)
{
    flip(path_of(step, file), offset);
}

/* ---- retention ---- */

TEST(a_deletion_that_storage_refuses_is_an_event_and_tried_again)
{
    struct sidestep_series *series = open_keeping(1);

    save_step(series, 1);
    fault_arm("posix.renameat2", 3, false, EACCES); /* two make the commit */
    save_step(series, 2);
    close_series(&series);
    assert_string_equal(fault_fired(), "posix.renameat2");
    fault_arm("", 0, false, 0);
    assert_int_equal(failed_events, 1);
    assert_string_equal(steps_there(), "1 2");
    series = open_keeping(1);
    save_step(series, 3);
    close_series(&series);
    assert_string_equal(steps_there(), "3");
    assert_int_equal(failed_events, 1);
}

TEST(the_last_ones_stay)
{
    struct sidestep_series *series = open_keeping(2);
    struct sidestep_gc_report report;
    size_t told;

    for (uint64_t n = 8; n <= 12; n++) /* by number, not by letter */
        save_step(series, n);
    ASSERT_OK(sidestep_series_prune(series, &report, &err)); /* what the thread has not done yet */
    told = report.removed_count;
    assert_true(report.bytes > 0);
    assert_non_null(strstr(report.removed[0], "step-8"));
    assert_int_equal(report.kept_count, 2);
    sidestep_gc_report_release(&report);
    assert_int_equal(told, 3); /* each is reported once, whoever deleted it */
    assert_string_equal(steps_there(), "11 12");
    save_step(series, 13);
    close_series(&series); /* finishes the rest */
    assert_string_equal(steps_there(), "12 13");
    assert_int_equal(deleted_events, 4);
    series = open_keeping(1);
    ASSERT_OK(sidestep_series_prune(series, &report, &err) == SIDESTEP_ELOCKED ? SIDESTEP_OK
                                                                               : SIDESTEP_EIO);
    assert_string_equal(steps_there(), "12 13"); /* this incarnation has committed nothing */
    expect_resume(series, 13);
    close_series(&series);
}

TEST(checkpoints_that_are_not_ours_stay)
{
    char command[1024];
    struct sidestep_series *series = open_with(NULL);

    for (uint64_t n = 1; n <= 6; n++)
        save_step(series, n);
    close_series(&series);
    ASSERT_OK(sidestep_pin(path_of(2, ""), true, &err));
    snprintf(command, sizeof(command),
             "cd %s && touch step-3/config.json && mkdir step-1e3 step--1 step-007 && "
             "cp -r step-1 run-1 && cp -r step-1 step-9223372036854775808 && ln -s step-1 step-0",
             scratch.path);
    assert_int_equal(system(command), 0);
    damage(6, "/.metadata", 100); /* neither counted nor deleted */
    series = open_keeping(1);
    save_step(series, 7);
    damage(7, "/.metadata", 100);
    save_step(series, 8);
    close_series(&series);
    struct stat st;
    static const char *const stay[] = {"step-1e3", "step--1", "step-007",
                                       "run-1",    "step-0",  "step-9223372036854775808"};
    for (size_t i = 0; i < ARRAY_LENGTH(stay); i++) {
        snprintf(command, sizeof(command), "%s/%s", scratch.path, stay[i]);
        assert_int_equal(lstat(command, &st), 0);
    }
    assert_int_equal(stat(path_of(1, ""), &st), -1);
    assert_int_equal(stat(path_of(4, ""), &st), -1);
    assert_int_equal(stat(path_of(2, ""), &st), 0); /* pinned */
    assert_int_equal(stat(path_of(3, "/config.json"), &st), 0);
    assert_int_equal(stat(path_of(6, ""), &st), 0);
    series = open_with(NULL);
    expect_resume(series, 8);
    close_series(&series);
}

/* An open checkpoint stays until it is closed; one that is not open is deleted (a negative
 * control). */
TEST(a_checkpoint_being_read_stays)
{
    struct sidestep_checkpoint *reading = NULL;
    struct sidestep_gc_report report;
    struct sidestep_series *series = open_keeping(1);
    struct stat st;

    save_step(series, 1);
    ASSERT_OK(sidestep_checkpoint_open(path_of(1, ""), &reading, &err));
    for (uint64_t n = 2; n <= 3; n++)
        save_step(series, n);
    ASSERT_OK(sidestep_series_prune(series, &report, &err));
    assert_int_equal(report.kept_count, 2);
    assert_non_null(strstr(report.kept[0], "step-1: it is being read"));
    sidestep_gc_report_release(&report);
    assert_int_equal(stat(path_of(2, ""), &st), -1);
    assert_int_equal(sidestep_series_delete(series, 1, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "it is being read"));
    sidestep_checkpoint_close(&reading);
    ASSERT_OK(sidestep_series_prune(series, &report, &err));
    sidestep_gc_report_release(&report);
    assert_int_equal(stat(path_of(1, ""), &st), -1);
    close_series(&series);
}

/* The newest is damaged: the one before it is not deleted. */
TEST(a_damaged_one_does_not_count)
{
    struct sidestep_series *series = open_with(NULL);
    struct sidestep_gc_report report;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};

    save_step(series, 1);
    save_step(series, 2);
    save_step(series, 3);
    close_series(&series);
    damage(3, "/.metadata", 100);
    ASSERT_OK(sidestep_prune(scratch.path, &keep, SIDESTEP_GC_DRY_RUN, &report, &err));
    assert_int_equal(report.removed_count, 1);
    sidestep_gc_report_release(&report);
    assert_string_equal(steps_there(), "1 2 3");
    ASSERT_OK(sidestep_prune(scratch.path, &keep, 0, &report, &err));
    assert_int_equal(report.removed_count, 1);
    assert_non_null(strstr(report.removed[0], "step-1"));
    assert_non_null(strstr(report.kept[1], "does not verify"));
    sidestep_gc_report_release(&report);
    assert_string_equal(steps_there(), "2 3");
    series = open_with(NULL);
    assert_int_equal(sidestep_prune(scratch.path, &keep, 0, &report, &err), SIDESTEP_ELOCKED);
    close_series(&series);
}

/* Save without the lock of the series, into the directory of an old checkpoint. */
static void replace_first(void)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.has_step = true;
    options.step = 4;
    world_fill(&world, 4);
    ASSERT_OK(sidestep_save(engine, path_of(1, ""), world.state, &options, NULL, &err));
}

static enum sidestep_status replace_before_it_is_asked(void *context, struct sidestep_error *why)
{
    (void)context;
    (void)why;
    replace_first();
    return SIDESTEP_OK;
}

static bool replace_after_it_was_asked(void *context, const struct sidestep_listed *entry)
{
    (void)context;
    (void)entry;
    replace_first();
    return true;
}

/* The checkpoint that was to be deleted is gone; its replacement was reported as saved, and stays.
 */
TEST(a_replacement_of_a_doomed_checkpoint_stays)
{
    const struct sidestep_retention keep_one = {.struct_size = sizeof(keep_one), .keep_last = 1};
    struct retention keep;

    ASSERT_OK(retention_copy(&keep, &keep_one, &err));
    for (int i = 0; i < 2; i++) {
        OWNED_DIR *root = NULL;
        struct prune prune = {.store = store_posix(), .path = scratch.path, .retention = &keep};
        world_fill(&world, 1);
        ASSERT_OK(sidestep_save(engine, path_of(1, ""), world.state, NULL, NULL, &err));
        world_fill(&world, 2);
        ASSERT_OK(sidestep_save(engine, path_of(2, ""), world.state, NULL, NULL, &err));
        ASSERT_OK(store_dir_open(store_posix(), NULL, scratch.path, &root, &err));
        prune.root = root;
        if (i == 0)
            prune.may_delete = replace_before_it_is_asked;
        else
            prune.claim = replace_after_it_was_asked;
        ASSERT_OK(prune_run(&prune, &err));
        world_fill(&world, 0);
        ASSERT_OK(sidestep_load(engine, path_of(1, ""), world.state, NULL, NULL, &err));
        assert_int_equal(world_check(&world, 4), 0);
    }
}

static double metric_of(const struct sidestep_listed *entry, const char *name)
{
    for (uint32_t i = 0; i < entry->metric_count; i++)
        if (strcmp(entry->metrics[i].name, name) == 0)
            return entry->metrics[i].value;
    return NAN;
}

TEST(the_best_and_every_nth_stay)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep),
                                      .keep_last = 1,
                                      .keep_every = 4,
                                      .keep_best = 1,
                                      .metric = "loss"};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    static const double losses[] = {9, 5, 2.5, 3, 4, 6, 7};
    const char *tag = "evaluated";
    struct sidestep_list list;

    options.retention = &keep;
    struct sidestep_series *series = open_with(&options);
    for (uint64_t n = 1; n <= 7; n++) {
        struct sidestep_metric metrics[] = {{"loss", -1}, {"losses", 1}, {"rate", 2}};
        ASSERT_OK(sidestep_series_note(series, n, metrics, 3, &tag, 1, &err));
        metrics[0].value = losses[n - 1]; /* replaces that one, and no other */
        ASSERT_OK(sidestep_series_note(series, n, metrics, 1, NULL, 0, &err));
        save_step(series, n);
        metrics[2].value = 3;
        ASSERT_OK(sidestep_series_note(series, n, &metrics[2], 1, NULL, 0, &err));
    }
    /* No better than step 3: the thread that prunes may run before or after this. */
    struct sidestep_metric later = {"loss", 8};
    ASSERT_OK(sidestep_series_note(series, 7, &later, 1, NULL, 0, &err));
    later.name = "no word";
    assert_int_equal(sidestep_series_note(series, 7, &later, 1, NULL, 0, &err), SIDESTEP_EINVAL);
    close_series(&series);
    assert_string_equal(steps_there(), "3 4 7");
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++) {
        if (sidestep_list_entry(&list, i)->step == 7)
            assert_true(metric_of(sidestep_list_entry(&list, i), "loss") == 8);
        if (sidestep_list_entry(&list, i)->step != 3)
            continue;
        assert_int_equal(sidestep_list_entry(&list, i)->metric_count, 3);
        assert_true(metric_of(sidestep_list_entry(&list, i), "loss") == 2.5);
        assert_true(metric_of(sidestep_list_entry(&list, i), "losses") == 1);
        assert_true(metric_of(sidestep_list_entry(&list, i), "rate") == 3);
        assert_string_equal(sidestep_list_entry(&list, i)->tags[0], "evaluated");
    }
    sidestep_list_release(&list);
    ASSERT_OK(sidestep_tag(path_of(3, ""), "evaluated", false, &err));
    ASSERT_OK(sidestep_tag(path_of(3, ""), "release-1", true, &err));
    assert_int_equal(sidestep_tag(path_of(3, ""), "a/b", true, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_pin(path_of(5, ""), true, &err), SIDESTEP_ENOTFOUND);
}

/* ---- several ranks, and requests ---- */

static int run_ranks(struct sidestep_comm *comm, void *context)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 2};
    struct sidestep_series_options wanted = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_save *save = NULL;
    struct world mine;
    uint32_t due = 0;
    uint64_t step = 0;
    int bad = 0, saves = 0;
    struct sidestep_error why = {0};

    (void)context;
    wanted.retention = &keep;
    wanted.interval_steps = 10;
    wanted.check_ms = 1;
    wanted.flags = SIDESTEP_SERIES_REQUESTS;
    bad |= comm_threads_open(comm, &own, &why) != SIDESTEP_OK;
    bad |= sidestep_series_open(own, scratch.path, &wanted, &series, &why) != SIDESTEP_OK;
    world_make(&mine, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    while (bad == 0 && (due & SIDESTEP_DUE_STOP) == 0 && step < 100000) {
        step++;
        if (step == 25 && comm->rank == 2)
            sidestep_series_request(series, SIDESTEP_DUE_SAVE);
        if (step == 45 && comm->rank == 1)
            sidestep_series_request(series, SIDESTEP_DUE_STOP);
        bad |= sidestep_series_should_save(series, step, &due, &why) != SIDESTEP_OK;
        if (due == 0 || bad != 0)
            continue;
        saves++;
        world_fill(&mine, step);
        bad |=
            sidestep_series_save_async(series, step, mine.state, NULL, &save, &why) != SIDESTEP_OK;
        bad |= sidestep_save_finish(&save, NULL, &why) != SIDESTEP_OK;
    }
    /* Every ten steps, or at a request in between. */
    bad |= saves < 5 || step >= 100000;
    world_free(&mine);
    bad |= sidestep_series_close(&series, &why) != SIDESTEP_OK;
    bad |= sidestep_engine_close(&own, &why) != SIDESTEP_OK;
    if (bad != 0)
        print_message("# rank %d, step %llu, %d saves: %s\n", comm->rank, (unsigned long long)step,
                      saves, why.message);
    return bad;
}

TEST(ranks_save_together_and_delete_once)
{
    char steps[256];

    assert_int_equal(comm_threads_run(3, run_ranks, NULL), 0);
    snprintf(steps, sizeof(steps), "%s", steps_there());
    assert_non_null(strchr(steps, ' '));
    assert_ptr_equal(strchr(steps, ' '), strrchr(steps, ' ')); /* two of them */
}

/* ---- faults ---- */

/* Whatever fails while a series prunes: the newest stays, and the next prune completes it. */
TEST(any_failure_leaves_the_newest)
{
    static const char *const points[] = {"memory", "posix"};

    for (size_t p = 0; p < ARRAY_LENGTH(points); p++) {
        bool fired = true;
        for (unsigned long nth = 1; fired && nth < 400; nth++) {
            struct sidestep_series *series = open_with(NULL);
            struct sidestep_gc_report report = {0};
            struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
            for (uint64_t n = 1; n <= 3; n++)
                save_step(series, nth * 10 + n);
            close_series(&series);
            fault_arm(points[p], nth, false, p == 0 ? 12 : 5);
            enum sidestep_status status = sidestep_prune(scratch.path, &keep, 0, &report, NULL);
            fired = fault_fired() != NULL;
            assert_true(fired || status == SIDESTEP_OK);
            fault_arm("", 0, false, 0);
            sidestep_gc_report_release(&report);
            series = open_with(NULL);
            expect_resume(series, nth * 10 + 3);
            close_series(&series);
            ASSERT_OK(sidestep_prune(scratch.path, &keep, 0, &report, &err));
            sidestep_gc_report_release(&report);
            assert_null(strchr(steps_there(), ' '));
        }
        assert_false(fired);
    }
}

static void *keep_looking(void *context)
{
    const bool *stop = context;
    size_t missed = 0, looks = 0;

    while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
        struct sidestep_error why = {0};
        struct sidestep_list list;
        char *path = NULL;
        size_t committed = 0;
        bool found =
            find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &path, &why) == SIDESTEP_OK;
        free(path);
        if (!found)
            print_message("# latest: %s\n", why.message);
        if (sidestep_list_root(scratch.path, &list, NULL) == SIDESTEP_OK)
            for (size_t i = 0; i < list.count; i++)
                committed += sidestep_list_entry(&list, i)->state == SIDESTEP_COMMITTED;
        sidestep_list_release(&list);
        missed += !found || committed == 0;
        looks++;
    }
    return (void *)(missed != 0 || looks < 5 ? missed + 1 : 0);
}

static void move_step(uint64_t step, bool in)
{
    char hidden[256];

    snprintf(hidden, sizeof(hidden), "%s/.sidestep/step-%llu", scratch.path,
             (unsigned long long)step);
    const char *shown = path_of(step, "");
    assert_int_equal(rename(in ? hidden : shown, in ? shown : hidden), 0);
}

/* Beside a run that keeps one checkpoint there is always one, at any time. */
TEST(a_reader_beside_a_run_always_finds_a_checkpoint)
{
    struct sidestep_series *series = open_with(NULL);
    pthread_t looker;
    bool stop = false;
    void *missed;

    save_step(series, 1);
    save_step(series, 2);
    close_series(&series);
    move_step(2, false);
    fault_delay("posix.pread", 300);
    assert_int_equal(pthread_create(&looker, NULL, keep_looking, &stop), 0);
    for (unsigned i = 0; i < 500; i++) {
        uint64_t from = 1 + i % 2;
        move_step(3 - from, true);
        move_step(from, false);
        (void)usleep(5000);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(looker, &missed), 0);
    fault_delay("", 0);
    assert_null(missed);
}

EACH_TEST(setup, one_rank_teardown);
