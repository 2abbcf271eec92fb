/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_beside_test.c -- events while a series deletes, or while a save of it is under way: pins,
 * going back, another save of the same step. Each test acts at one storage operation.
 */
#include <pthread.h>

#include "base/owned.h"
#include "commit/sweep.h"
#include "catalog/list.h"
#include "series/series.h"
#include "format/file_name.h"
#include "support/sim_series.h"
#include "support/unit.h"

static void (*_Atomic at)(const char *op,
                          const char *name); /* before each operation; NULL: nothing */
static atomic_int armed;

static void before_op(void *context, int client, const char *op, const char *name)
{
    void (*now)(const char *op, const char *name) = at;

    (void)context;
    if (client == 0 && now != NULL)
        now(op, name);
}

static void open_run(uint32_t keep_last)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = keep_last};

    options.retention = keep_last != 0 ? &keep : NULL;
    ASSERT_OK(sidestep_series_open(engine, RUN, &options, &series, &err));
}

static int setup(void **state)
{
    (void)state;
    at = NULL;
    atomic_store(&armed, 1);
    return sim_series_begin(before_op);
}

static int teardown(void **state)
{
    (void)state;
    at = NULL;
    sidestep_engine_resume(engine);
    return sim_series_end();
}

static void save(uint64_t step)
{
    world_fill(&world, step);
    ASSERT_OK(sidestep_series_save(series, step, world.state, NULL, NULL, &err));
}

static struct sidestep_save *begin_save(uint64_t step)
{
    struct sidestep_save *handle = NULL;

    world_fill(&world, step);
    ASSERT_OK(sidestep_series_save_async(series, step, world.state, NULL, &handle, &err));
    return handle;
}

/* "1 2! 5": the committed steps; ! marks those left behind. */
static const char *there(void)
{
    static char text[256];
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    size_t used = 0;

    text[0] = '\0';
    ASSERT_OK(list_root(sim_store(sim, 1), RUN, 0, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->state == SIDESTEP_COMMITTED)
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s%lld%s", used != 0 ? " " : "",
                                 (long long)sidestep_list_entry(&list, i)->step,
                                 sidestep_list_entry(&list, i)->is_abandoned ? "!" : "");
    return text;
}

static enum sidestep_status go_back(uint64_t step)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status =
        sidestep_series_load_step(series, step, loaded.state, NULL, NULL, &err);
    world_free(&loaded);
    return status;
}

/* ---- pins */

/* Pin as sidestep_pin() does, by what it still sees. */
static void pin_the_first(const char *op, const char *name)
{
    struct store_stat stat;
    int once = 1;

    if (strcmp(op, "rename") != 0 || strcmp(name, "step-1") != 0 ||
        !atomic_compare_exchange_strong(&armed, &once, 0))
        return;
    assert_int_equal(
        annotations_set(series->lease.dir, ANNOTATION_PIN, NULL, "step-1", NULL, NULL, NULL),
        SIDESTEP_OK);
    assert_int_equal(store_stat(series->lease.root, "step-1", &stat, NULL), SIDESTEP_OK);
}

TEST(a_checkpoint_pinned_during_a_prune_stays)
{
    open_run(1);
    save(1);
    at = pin_the_first;
    save(2);
    (void)prune(); /* or the thread of the series has tried */
    assert_int_equal(atomic_load(&armed), 0);
    assert_string_equal(there(), "1 2");
    assert_int_equal(prune(), 0);
}

TEST(an_unknown_outcome_stops_deletion_by_name)
{
    open_run(0);
    save(1);
    save(2);
    at = pin_the_first;
    assert_int_equal(sidestep_series_delete(series, 1, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "it is pinned"));
    assert_string_equal(there(), "1 2");
}

static void sweep_kept(void *context, const char *name, const char *reason)
{
    (void)context, (void)name;
    assert_string_equal(reason, "it is being deleted");
    atomic_store(&armed, -1);
}

/* Sweep in another process, as sidestep_gc() does, when the pinned one is about to be renamed
 * back. */
static void sweep_then(const char *op, const char *name)
{
    OWNED_DIR *root = NULL;
    struct sweep sweep = {.store = sim_store(sim, 1), .mode = SWEEP_ALL, .kept = sweep_kept};

    pin_the_first(op, name);
    if (strcmp(op, "rename") != 0 || file_name_parse(name).kind != FILE_NAME_TRASH)
        return;
    ASSERT_OK(store_dir_open(sweep.store, NULL, RUN, &root, &err));
    sweep.parent = root;
    ASSERT_OK(sweep_parent(&sweep, &err));
}

TEST(gc_keeps_a_pinned_checkpoint_on_its_way_back)
{
    open_run(0);
    save(1);
    save(2);
    at = sweep_then;
    assert_int_equal(sidestep_series_delete(series, 1, &err), SIDESTEP_ELOCKED);
    assert_int_equal(atomic_load(&armed), -1);
    assert_string_equal(there(), "1 2");
    ASSERT_OK(go_back(1));
}

/* ---- going back */

TEST(a_save_under_way_is_left_behind_too)
{
    open_run(0);
    save(1);
    save(2);
    sidestep_engine_pause(engine);
    struct sidestep_save *handle = begin_save(3);
    ASSERT_OK(go_back(1)); /* waits for it */
    sidestep_engine_resume(engine);
    ASSERT_OK(sidestep_save_finish(&handle, NULL, &err));
    assert_string_equal(there(), "1 2! 3!");
}

static void see_the_lock(const char *op, const char *name)
{
    (void)op, (void)name;
    if (pthread_mutex_trylock(&series->prune_lock.mutex) == 0) {
        pthread_mutex_unlock(&series->prune_lock.mutex);
        atomic_store(&armed, 0);
    }
}

/* A plan that was made before could delete the checkpoint that the run goes back to. */
TEST(nothing_is_deleted_while_a_run_goes_back)
{
    open_run(2);
    save(1);
    save(2);
    at = see_the_lock;
    ASSERT_OK(go_back(1));
    at = NULL;
    assert_int_equal(atomic_load(&armed), 1);
    assert_string_equal(there(), "1 2!");
}

TEST(a_deleted_checkpoint_is_not_resumed_from)
{
    open_run(0);
    save(2);
    save(3);
    assert_int_equal(series_record_resume(series, 1, &err), SIDESTEP_ENOTFOUND);
    assert_string_equal(there(), "2 3");
}

/* ---- the same step once more, without waiting */

TEST(a_refused_save_takes_no_annotations)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_metric loss = {"loss", 0.5};
    struct sidestep_save *again = NULL;

    options.flags = SIDESTEP_SAVE_NOWAIT;
    open_run(0);
    sidestep_engine_pause(engine);
    ASSERT_OK(sidestep_series_note(series, 1, &loss, 1, NULL, 0, &err));
    struct sidestep_save *handle = begin_save(1);
    assert_int_equal(sidestep_series_save_async(series, 1, world.state, &options, &again, &err),
                     SIDESTEP_EBUSY);
    sidestep_engine_resume(engine);
    ASSERT_OK(sidestep_save_finish(&handle, NULL, &err));
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    ASSERT_OK(list_root(sim_store(sim, 1), RUN, 0, &list, &err));
    assert_int_equal(list.count, 1);
    assert_int_equal(sidestep_list_entry(&list, 0)->metric_count, 1);
}

/* ---- another process deletes by hand when a run begins */

static struct store_file *held; /* the lock of the series */

static void hold(const char *who)
{
    OWNED_DIR *dir = NULL;

    open_run(0);
    save(1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    ASSERT_OK(store_dir_open(sim_store(sim, 1), NULL, RUN "/" FILE_NAME_SERIES_DIR, &dir, &err));
    ASSERT_OK(store_file_open(dir, "lock", STORE_WRITE, &held, &err));
    ASSERT_OK(store_file_lock(held, true, &err));
    ASSERT_OK(store_file_truncate(held, 0, &err));
    ASSERT_OK(store_file_write_at(held, who, strlen(who), 0, &err));
}

/* So late that a process that tries only a few times has given up. */
static void let_go_at_last(const char *op, const char *name)
{
    if (strcmp(op, "file_lock") == 0 && strcmp(name, "lock") == 0 &&
        atomic_fetch_add(&armed, 1) == 16)
        store_file_discard(TAKE(held));
}

/* One process that deletes follows another: when the lock is asked for the fifth time, the text is
 * still that of a run, and then there is none for long. */
static void let_others_delete(const char *op, const char *name)
{
    if (strcmp(op, "file_lock") != 0 || strcmp(name, "lock") != 0)
        return;
    if (atomic_load(&armed) == 5) {
        ASSERT_OK(store_file_truncate(held, 0, &err));
        ASSERT_OK(store_file_write_at(held, "process 7 on a-host\n", 20, 0, &err));
    } else if (atomic_load(&armed) == 6) {
        ASSERT_OK(store_file_truncate(held, 0, &err));
    }
    let_go_at_last(op, name);
}

TEST(a_run_waits_for_a_process_that_only_deletes)
{
    hold("process 1 on a-host, which deletes\n");
    at = let_go_at_last;
    open_run(0);
    assert_null(held);
    assert_string_equal(there(), "1");
}

TEST(a_run_waits_for_processes_that_delete_in_turn)
{
    hold("process 1 on a-host, which deletes\n");
    at = let_others_delete;
    open_run(0);
    assert_null(held);
}

TEST(a_run_does_not_wait_for_another_run)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    hold("process 1 on a-host\n");
    at = let_go_at_last;
    assert_int_equal(sidestep_series_open(engine, RUN, &options, &series, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "process 1 on a-host"));
    store_file_discard(TAKE(held));
}

/* ---- threads */

static void *prune_on_and_on(void *unused)
{
    (void)unused;
    while (atomic_load(&armed) != 0)
        (void)prune();
    return NULL;
}

/* What it keeps shows that it has seen each save in time; ThreadSanitizer shows that nothing else
 * is shared. */
TEST(deleting_on_another_thread_is_safe)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *handles[41] = {0};
    pthread_t thread;

    options.queue = 2;
    open_run(1);
    save(1);
    assert_int_equal(pthread_create(&thread, NULL, prune_on_and_on, NULL), 0);
    for (uint64_t step = 2; step <= 40; step++) {
        struct sidestep_save *handle = NULL;
        ASSERT_OK(sidestep_series_save_async(series, step, world.state, &options, &handle, &err));
        if (step % 4 == 0)
            ASSERT_OK(sidestep_save_finish(&handle, NULL, &err));
        else
            handles[step] = handle;
    }
    for (uint64_t step = 2; step <= 40; step++)
        if (handles[step] != NULL)
            ASSERT_OK(sidestep_save_finish(&handles[step], NULL, &err));
    atomic_store(&armed, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)prune();
    assert_string_equal(there(), "40");
}

EACH_TEST(setup, teardown);
