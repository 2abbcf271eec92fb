/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault_test.c -- every fault point fails, once and from then on, in every operation that touches
 * storage. The operation must report it, or succeed. What was there must still be there, whole.
 * When the fault is gone, the next save succeeds and leaves nothing behind.
 *
 * A plain run tries a sample of the numbers; with SIDESTEP_LONG in the environment, all of them.
 */
#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "base/fault.h"
#include "commit/sweep.h"
#include "engine/engine.h"
#include "support/unit.h"
#include "verify/verify.h"
#include "support/scratch.h"
#include "support/store_fault.h"
#include "support/world.h"

#define OLD 1u
#define NEW 2u
#define OTHER 7u /* a checkpoint beside it, which must never change */
#define NEXT 8u

static struct scratch scratch;
static struct store *faulty; /* fails on command */
static struct world saved, loaded;
static char one[128], root[128], other[128];
static const char *target;               /* of the next save or load */
static enum sidestep_status save_status; /* of the save under test */

/* An operation, and what is right after it. */
struct scenario {
    const char *name;
    void (*prepare)(void);
    enum sidestep_status (*act)(struct sidestep_error *err);
    void (*judge)(enum sidestep_status status);
    bool on_faulty_store; /* else the operation has no engine: only fault points below the store */
    uint64_t before;      /* seed of the state that is there; 0: none */
};

/* The present trial, for messages. */
static struct {
    const char *scenario;
    const char *prefix;
    unsigned long nth;
    bool sticky;
    const char *fired;
    uint64_t before;
    char said[704];
} trial;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_message("# %s, %s %lu%s (%s): '%s'\n# ", trial.scenario, trial.prefix,           \
                          trial.nth, trial.sticky ? "+" : "",                                      \
                          trial.fired != NULL ? trial.fired : "not fired", trial.said);            \
            print_message(__VA_ARGS__);                                                            \
            print_message("\n");                                                                   \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* ---- engines ---- */

static enum sidestep_status with_engine(struct store *store,
                                        enum sidestep_status (*work)(struct sidestep_engine *engine,
                                                                     struct sidestep_error *err),
                                        struct sidestep_error *err)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;

    options.threads = 1, options.timeout_ms = 2000;
    enum sidestep_status status = sidestep_engine_open(&engine, &options, err);
    if (status != SIDESTEP_OK)
        return status;
    engine->store = store;
    status = work(engine, err);
    enum sidestep_status closed =
        sidestep_engine_close(&engine, status == SIDESTEP_OK ? err : NULL);
    return status != SIDESTEP_OK ? status : closed;
}

static enum sidestep_status save_one(struct sidestep_engine *engine, struct sidestep_error *err)
{
    save_status = SIDESTEP_EABORTED;
    save_status = sidestep_save(engine, target, saved.state, NULL, NULL, err);
    return save_status;
}

static enum sidestep_status load_one(struct sidestep_engine *engine, struct sidestep_error *err)
{
    return sidestep_load(engine, target, loaded.state, NULL, NULL, err);
}

static enum sidestep_status verify_one(struct sidestep_engine *engine, struct sidestep_error *err)
{
    return verify_path(engine->store, one, SIDESTEP_VERIFY_BEFORE, 0, engine->stagers, NULL, err);
}

/* Clear the tensors, so that an earlier load cannot be taken for this one. */
static void clear_loaded(void)
{
    for (size_t i = 0; i < loaded.count; i++)
        memset(loaded.tensors[i].block, 0xee, loaded.tensors[i].block_bytes);
}

static void save_seed(const char *path, uint64_t seed)
{
    struct sidestep_error err = {0};

    target = path;
    world_fill(&saved, seed);
    enum sidestep_status status = with_engine(store_posix(), save_one, &err);
    target = one;
    CHECK(status == SIDESTEP_OK, "a save without a fault: %s", err.message);
}

/* The seed of the whole checkpoint at ${path}; 0: there is none. */
static uint64_t seed_of(const char *path)
{
    struct sidestep_error err = {0};

    target = path;
    clear_loaded();
    enum sidestep_status status = with_engine(store_posix(), load_one, &err);
    target = one;
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNCOMMITTED)
        return 0;
    CHECK(status == SIDESTEP_OK, "what is there cannot be loaded: %s", err.message);
    for (uint64_t seed = OLD; seed <= NEXT; seed++)
        if (world_check(&loaded, seed) == 0)
            return seed;
    CHECK(false, "'%s' holds nothing that was ever saved", path);
    return 0;
}

/* ---- series ---- */

static uint64_t wanted_step, resumed_step;
static bool with_delete;
static const char *broken_point; /* armed once the series is open */

static enum sidestep_status use_series(struct sidestep_series *series, struct sidestep_error *err)
{
    if (broken_point != NULL)
        fault_arm(broken_point, 1, true, EIO);
    if (wanted_step != 0) {
        save_status = SIDESTEP_EABORTED;
        save_status = sidestep_series_save(series, wanted_step, saved.state, NULL, NULL, err);
        if (save_status != SIDESTEP_OK || !with_delete)
            return save_status;
        return sidestep_series_delete(series, OLD, err);
    }
    clear_loaded();
    enum sidestep_status status =
        sidestep_series_load(series, loaded.state, NULL, &resumed_step, NULL, NULL, err);
    CHECK(status != SIDESTEP_OK || world_check(&loaded, resumed_step) == 0,
          "resumed, but the state is not that of step %llu", (unsigned long long)resumed_step);
    return status;
}

static enum sidestep_status work_in_series(struct sidestep_engine *engine,
                                           struct sidestep_error *err)
{
    struct sidestep_series *series = NULL;

    TRY(sidestep_series_open(engine, root, NULL, &series, err));
    enum sidestep_status status = use_series(series, err);
    enum sidestep_status closed =
        sidestep_series_close(&series, status == SIDESTEP_OK ? err : NULL);
    return status != SIDESTEP_OK ? status : closed;
}

static void save_step(uint64_t step)
{
    struct sidestep_error err = {0};

    wanted_step = step;
    world_fill(&saved, step);
    enum sidestep_status status = with_engine(store_posix(), work_in_series, &err);
    CHECK(status == SIDESTEP_OK, "step %llu without a fault: %s", (unsigned long long)step,
          err.message);
}

static uint64_t newest_step(void)
{
    struct sidestep_error err = {0};

    wanted_step = 0;
    with_delete = false;
    enum sidestep_status status = with_engine(store_posix(), work_in_series, &err);
    if (status == SIDESTEP_ENOTFOUND)
        return 0;
    CHECK(status == SIDESTEP_OK, "the series cannot be resumed: %s", err.message);
    return resumed_step;
}

/* ---- leftovers ---- */

static void remove_path(const char *path)
{
    (void)nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Count names in ${path} that start with ${prefix}. */
static size_t count_names(const char *path, const char *prefix)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    size_t count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (dir != NULL)
        closedir(dir);
    return count;
}

static void collect(const char *parent)
{
    struct sidestep_gc_report report;
    struct sidestep_error err = {0};

    enum sidestep_status status = sidestep_gc(parent, 0, &report, &err);
    CHECK(status == SIDESTEP_OK, "gc without a fault: %s", err.message);
    CHECK(report.kept_count == 0, "gc keeps %s", report.kept[0]);
    sidestep_gc_report_release(&report);
}

/* Another save succeeds. After it and gc there is a checkpoint of three files, and nothing else. */
static void expect_tidy_save(void)
{
    save_seed(one, NEXT);
    CHECK(seed_of(one) == NEXT, "the save after it is not there");
    collect(scratch.path);
    CHECK(count_names(scratch.path, ".sidestep.") == 0, "leftovers beside the checkpoint");
    CHECK(count_names(one, "") == 3, "%zu names in the checkpoint", count_names(one, ""));
}

static void expect_tidy_series(void)
{
    char step[200];

    save_step(NEXT);
    CHECK(newest_step() == NEXT, "the step after it is not there");
    CHECK(count_names(root, ".sidestep.") == 0, "leftovers in the series");
    for (uint64_t n = OLD; n <= NEXT; n++) {
        snprintf(step, sizeof(step), "%s/step-%llu", root, (unsigned long long)n);
        size_t names = count_names(step, "");
        CHECK(names == 0 || names == 3, "%zu names in %s", names, step);
    }
}

/* ---- scenarios ---- */

static void prepare_nothing(void)
{
    world_fill(&saved, NEW);
}

static void prepare_old(void)
{
    save_seed(one, OLD);
    world_fill(&saved, NEW);
}

static void prepare_step(void)
{
    save_step(OLD);
    world_fill(&saved, NEW);
    wanted_step = NEW;
}

/* Make a real leftover: of a save that fails and cannot be undone. */
static void prepare_garbage(void)
{
    struct sidestep_error err = {0};

    save_step(OLD);
    save_step(NEW);
    world_fill(&saved, 5);
    wanted_step = 5;
    broken_point = "store.rename";
    CHECK(with_engine(faulty, work_in_series, &err) != SIDESTEP_OK, "a save that cannot rename");
    fault_arm("", 0, false, 0);
    CHECK(count_names(root, ".sidestep.") >= 1, "nothing was left behind");
    broken_point = NULL;
    wanted_step = 0;
}

static void prepare_delete(void)
{
    prepare_step();
    with_delete = true;
}

static void prepare_garbage_and_old(void)
{
    struct sidestep_error err = {0};

    prepare_old();
    fault_arm("store.unlink", 1, true,
              EIO); /* in place, and the replaced files cannot be deleted */
    (void)with_engine(faulty, save_one, &err);
    fault_arm("", 0, false, 0);
    CHECK(count_names(one, "") > 3, "nothing was left behind");
}

static void prepare_lost_metadata(void)
{
    char path[200];

    save_seed(one, OLD);
    snprintf(path, sizeof(path), "%s/.metadata", one);
    assert_int_equal(unlink(path), 0);
}

static enum sidestep_status act_save(struct sidestep_error *err)
{
    save_status = SIDESTEP_EABORTED;
    return with_engine(faulty, save_one, err);
}

static enum sidestep_status act_load(struct sidestep_error *err)
{
    clear_loaded();
    return with_engine(faulty, load_one, err);
}

static enum sidestep_status act_verify(struct sidestep_error *err)
{
    return with_engine(faulty, verify_one, err);
}

static enum sidestep_status act_series(struct sidestep_error *err)
{
    save_status = SIDESTEP_EABORTED;
    return with_engine(faulty, work_in_series, err);
}

static enum sidestep_status act_gc(struct sidestep_error *err)
{
    struct sidestep_gc_report report = {0};

    TRY(sidestep_gc(scratch.path, 0, &report, err));
    sidestep_gc_report_release(&report);
    return SIDESTEP_OK;
}

static enum sidestep_status act_rebuild(struct sidestep_error *err)
{
    return sidestep_rebuild(one, err);
}

/* Is the state allowed by what the save returned? */
static void expect_answered(uint64_t found, uint64_t before)
{
    CHECK(found == before || found == NEW, "state %llu is there", (unsigned long long)found);
    if (save_status == SIDESTEP_OK)
        CHECK(found == NEW, "the save succeeded, but is not there");
    else
        CHECK(found == before || save_status == SIDESTEP_EUNKNOWN, "the save failed, but is there");
}

static void judge_save(enum sidestep_status status)
{
    (void)status;
    expect_answered(seed_of(one), trial.before);
    expect_tidy_save();
}

static void judge_step(enum sidestep_status status)
{
    (void)status;
    expect_answered(newest_step(), OLD);
    expect_tidy_series();
}

static void judge_resume(enum sidestep_status status)
{
    CHECK(status != SIDESTEP_OK || resumed_step == NEW, "step %llu was resumed",
          (unsigned long long)resumed_step);
    CHECK(newest_step() == NEW, "the newest step is lost");
    expect_tidy_series();
}

static void judge_delete(enum sidestep_status status)
{
    char step[200];

    snprintf(step, sizeof(step), "%s/step-%u", root, OLD);
    bool is_there = access(step, F_OK) == 0;
    CHECK(status != SIDESTEP_OK || !is_there, "it was deleted, but is there");
    CHECK(!is_there || seed_of(step) == OLD, "it was not deleted, but is damaged");
    uint64_t found = newest_step();
    CHECK(found == NEW || (is_there && save_status != SIDESTEP_OK), "step %llu is the newest",
          (unsigned long long)found);
    expect_tidy_series();
}

static void judge_load(enum sidestep_status status)
{
    CHECK(status != SIDESTEP_OK || world_check(&loaded, OLD) == 0,
          "loaded, but entry %d is something else", world_check(&loaded, OLD));
    CHECK(seed_of(one) == OLD, "it is lost");
}

static void judge_unchanged(enum sidestep_status status)
{
    CHECK(seed_of(one) == OLD, "it is lost (status %d)", (int)status);
}

static void judge_gc(enum sidestep_status status)
{
    CHECK(seed_of(one) == NEW, "gc has damaged a checkpoint (status %d)", (int)status);
    expect_tidy_save();
}

static void judge_rebuild(enum sidestep_status status)
{
    struct sidestep_error err = {0};

    uint64_t found = seed_of(one);
    CHECK(found == OLD || (found == 0 && status != SIDESTEP_OK), "state %llu is there",
          (unsigned long long)found);
    enum sidestep_status again = sidestep_rebuild(one, &err);
    CHECK(again == (found == OLD ? SIDESTEP_EEXISTS : SIDESTEP_OK), "again: %s", err.message);
    CHECK(seed_of(one) == OLD, "it was not rebuilt");
    CHECK(count_names(one, "") == 3, "%zu names in it", count_names(one, ""));
}

static const struct scenario scenarios[] = {
    {"save anew", prepare_nothing, act_save, judge_save, true, 0},
    {"save in place", prepare_old, act_save, judge_save, true, OLD},
    {"save a step", prepare_step, act_series, judge_step, true, OLD},
    {"load", prepare_old, act_load, judge_load, true, OLD},
    {"verify", prepare_old, act_verify, judge_unchanged, true, OLD},
    {"recover a series", prepare_garbage, act_series, judge_resume, true, OLD},
    {"delete a step", prepare_delete, act_series, judge_delete, true, OLD},
    {"gc", prepare_garbage_and_old, act_gc, judge_gc, false, OLD},
    {"rebuild", prepare_lost_metadata, act_rebuild, judge_rebuild, false, OLD},
};

static void reset(void)
{
    remove_path(one);
    remove_path(root);
    wanted_step = 0;
    target = one;
    resumed_step = 0;
    with_delete = false;
    broken_point = NULL;
}

/* false: the fault was never reached. */
static bool try_one(const struct scenario *scenario)
{
    struct sidestep_error err = {.rank = -1};

    reset();
    trial.fired = NULL;
    trial.said[0] = '\0';
    scenario->prepare();
    fault_arm(trial.prefix, trial.nth, trial.sticky, EIO);
    enum sidestep_status status = scenario->act(&err);
    trial.fired = fault_fired();
    fault_arm("", 0, false, 0);
    memcpy(trial.said, err.message, sizeof(trial.said));
    if (status == SIDESTEP_OK) {
        CHECK(err.message[0] == '\0', "it succeeded, with a message");
    } else {
        CHECK(trial.fired != NULL, "it failed by itself");
        CHECK((enum sidestep_status)err.status == status, "status %d, but the error has %d",
              (int)status, err.status);
        CHECK(strlen(err.message) > 10, "it failed without words");
    }
    scenario->judge(status);
    return trial.fired != NULL;
}

static void no_fault_harms(void **state)
{
    const struct scenario *scenario = *state;
    static const char *const prefixes[] = {"store.",       "posix.", "memory",
                                           "thread.start", "random", "pool.map"};
    bool all = getenv("SIDESTEP_LONG") != NULL;

    trial.scenario = scenario->name;
    trial.before = scenario->before;
    save_seed(other, OTHER);
    for (size_t p = scenario->on_faulty_store ? 0 : 1; p < 6; p++) {
        for (int sticky = 0; sticky < 2; sticky++) {
            trial.prefix = prefixes[p];
            trial.sticky = sticky == 1;
            /* All small numbers, and ever fewer of the large ones. */
            for (trial.nth = 1; try_one(scenario);
                 trial.nth += all || trial.nth < 8 ? 1 : 1 + trial.nth / (sticky ? 5 : 12))
                assert_true(trial.nth < 20000);
        }
    }
    CHECK(seed_of(other) == OTHER, "another checkpoint was touched");
}

/* ---- the negative control: a saver that never syncs and ignores errors ---- */

static enum sidestep_status save_carelessly(struct sidestep_error *err)
{
    struct store_dir *parent = NULL, *from = NULL, *to = NULL;

    TRY(with_engine(store_posix(), save_one, err));
    (void)store_dir_open(faulty, NULL, scratch.path, &parent, NULL);
    (void)store_dir_open(faulty, parent, parent != NULL ? "it" : one, &from, NULL);
    (void)(parent != NULL && store_dir_make(parent, "copy", NULL) == SIDESTEP_OK &&
           store_dir_open(faulty, parent, "copy", &to, NULL) == SIDESTEP_OK);
    if (from != NULL && to != NULL) {
        (void)store_rename(from, ".metadata", to, ".metadata", STORE_REPLACE, NULL);
        (void)store_rename(from, "__0_0.distcp", to, "__0_0.distcp", STORE_REPLACE, NULL);
    }
    store_dir_close(to);
    store_dir_close(from);
    store_dir_close(parent);
    return SIDESTEP_OK;
}

static void carelessness_is_caught(void **state)
{
    (void)state;
    char copy[200], shard[300];
    struct sidestep_error err = {0};
    unsigned caught = 0;
    bool fired = true;

    snprintf(copy, sizeof(copy), "%s/copy", scratch.path);
    snprintf(shard, sizeof(shard), "%s/__0_0.distcp", copy);
    for (unsigned long n = 1; fired; n++) {
        reset();
        remove_path(copy);
        world_fill(&saved, NEW);
        fault_arm("store.", n, false, EIO);
        assert_int_equal(save_carelessly(&err), SIDESTEP_OK);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        caught += access(shard, F_OK) != 0; /* reported as saved, but missing */
    }
    assert_true(caught > 0);
    remove_path(copy);
}

static int setup(void **state)
{
    (void)state;
    /* A fast place, because this does not test the disk. */
    if (!scratch_make(&scratch, access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : NULL))
        return -1;
    snprintf(one, sizeof(one), "%s/it", scratch.path);
    snprintf(root, sizeof(root), "%s/root", scratch.path);
    snprintf(other, sizeof(other), "%s/other", scratch.path);
    world_make(&saved, 0, 1, WORLD_BY_ROWS, 1, false);
    world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, 1, true);
    faulty = store_fault_new(store_posix());
    return faulty != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    store_fault_free(&faulty);
    world_free(&saved);
    world_free(&loaded);
    scratch_remove(&scratch);
    return 0;
}

int main(void)
{
    enum { COUNT = sizeof(scenarios) / sizeof(scenarios[0]) };
    struct CMUnitTest tests[COUNT + 1] = {
        {.name = "carelessness is caught", .test_func = carelessness_is_caught}};
    bool few = tensor_memory_has_devices() && getenv("SIDESTEP_LONG") == NULL;
    size_t count = 1;

    for (const struct scenario *s = scenarios; s < scenarios + COUNT; s++)
        if (!few || s->prepare == prepare_nothing || s->act == act_load) /* it moves tensors */
            tests[count++] = (struct CMUnitTest){s->name, no_fault_harms, NULL, NULL, (void *)s};
    return _cmocka_run_group_tests("every fault", tests, count, setup, teardown);
}
