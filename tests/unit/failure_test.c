/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failure_test.c -- a rank that cannot take part in a save or load, communicators that fail, ranks
 * with different requests, and handles that outlive their engine.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/one_scratch.h"
#include "support/world.h"

/* Count names in the scratch directory, hidden ones too. */
static size_t count_names(void)
{
    struct sidestep_list list = {0};

    assert_int_equal(sidestep_list_root(scratch.path, &list, NULL), SIDESTEP_OK);
    size_t count = list.count;
    sidestep_list_release(&list);
    return count;
}

/* ---------------------------------------------------------------- options.failure */

struct job {
    int culprit;
    bool blocking;
    bool in_flight; /* an earlier save is in flight when the failure happens */
};

static struct sidestep_error reason(void)
{
    struct sidestep_error why = {.status = SIDESTEP_EUNSUPPORTED, .sys_errno = 7, .rank = 99};

    snprintf(why.where, sizeof(why.where), "train.py:12");
    snprintf(why.message, sizeof(why.message), "'w' is sparse");
    return why;
}

/* Do all ranks get the reason, and the rank that gave it? */
static bool is_reason(const struct sidestep_comm *comm, int culprit, enum sidestep_status status,
                      const struct sidestep_error *err)
{
    char said[64];

    snprintf(said, sizeof(said), "rank %d: 'w' is sparse", culprit);
    return status == SIDESTEP_EUNSUPPORTED && err->status == SIDESTEP_EUNSUPPORTED &&
           err->sys_errno == 7 && strcmp(err->where, "train.py:12") == 0 &&
           err->rank == (comm->rank == culprit ? -1 : culprit) &&
           strstr(err->message, comm->rank == culprit ? "'w' is sparse" : said) != NULL;
}

static enum sidestep_status try_save(struct sidestep_engine *engine, const struct job *job,
                                     const char *path, const struct sidestep_state_dict *state,
                                     const struct sidestep_save_options *options,
                                     struct sidestep_error *err)
{
    struct sidestep_save *save = NULL;

    if (job->blocking)
        return sidestep_save(engine, path, state, options, NULL, err);
    enum sidestep_status status = sidestep_save_async(engine, path, state, options, &save, err);
    return status == SIDESTEP_OK ? sidestep_save_finish(&save, NULL, err) : status;
}

static int run_saves(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save_options save_options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err = {0}, why = reason();
    struct sidestep_engine *engine = NULL;
    struct sidestep_save *first = NULL;
    struct world world;
    char path[256], other[256];
    bool culprit = comm->rank == job->culprit;
    int bad = 0;

    options.comm = comm, options.threads = 1;
    EXPECT(sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK);
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    world_fill(&world, 1);
    EXPECT(sidestep_save_async(engine, at(path, "first"), world.state, NULL, &first, &err) ==
           SIDESTEP_OK);
    if (!job->in_flight)
        EXPECT(sidestep_save_finish(&first, NULL, &err) == SIDESTEP_OK);
    save_options.failure = culprit ? &why : NULL;
    enum sidestep_status status = try_save(engine, job, culprit ? NULL : at(other, "second"),
                                           culprit ? NULL : world.state, &save_options, &err);
    EXPECT(is_reason(comm, job->culprit, status, &err));
    EXPECT(sidestep_save_finish(&first, NULL, &err) == SIDESTEP_OK);
    /* The next save works, and its plan is still known. */
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    EXPECT(sidestep_save(engine, at(other, "third"), world.state, NULL, &info, &err) ==
           SIDESTEP_OK);
    EXPECT((info.flags & SIDESTEP_SAVE_PLAN_REUSED) != 0);
    world_free(&world);
    EXPECT(sidestep_engine_close(&engine, &err) == SIDESTEP_OK);
    return bad;
}

TEST(a_rank_that_cannot_save)
{
    for (int i = 0; i < 12; i++) {
        struct job job = {.culprit = i % 3, .blocking = i / 3 % 2 == 0, .in_flight = i / 6 == 0};

        assert_int_equal(comm_threads_run(3, run_saves, &job), 0);
        assert_int_equal(count_names(), 2); /* "first" and "third", and nothing else */
    }
}

static int run_loads(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_load_options load_options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_error err = {0}, why = reason();
    struct sidestep_engine *engine = NULL;
    struct world world, loaded;
    char path[256];
    bool culprit = comm->rank == job->culprit;
    int bad = 0;

    options.comm = comm, options.threads = 1;
    EXPECT(sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK);
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    world_make(&loaded, comm->rank, comm->size, WORLD_BY_COLUMNS, 2, true);
    world_fill(&world, 5);
    EXPECT(sidestep_save(engine, at(path, "one"), world.state, NULL, NULL, &err) == SIDESTEP_OK);
    load_options.failure = culprit ? &why : NULL;
    enum sidestep_status status = sidestep_load(
        engine, culprit ? NULL : path, culprit ? NULL : loaded.state, &load_options, NULL, &err);
    EXPECT(is_reason(comm, job->culprit, status, &err));
    EXPECT(sidestep_load(engine, path, loaded.state, NULL, NULL, &err) == SIDESTEP_OK);
    EXPECT(world_check(&loaded, 5) == 0);
    world_free(&loaded);
    world_free(&world);
    EXPECT(sidestep_engine_close(&engine, &err) == SIDESTEP_OK);
    return bad;
}

TEST(a_rank_that_cannot_load)
{
    for (int i = 0; i < 3; i++) {
        struct job job = {.culprit = i};

        assert_int_equal(comm_threads_run(3, run_loads, &job), 0);
    }
}

static int run_series(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save_options save_options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_load_options load_options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_error err = {0}, why = reason();
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_save *save = NULL;
    struct world world;
    bool culprit = comm->rank == job->culprit;
    uint64_t step = 0;
    int bad = 0;

    options.comm = comm, options.threads = 1;
    save_options.failure = load_options.failure = culprit ? &why : NULL;
    EXPECT(sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK);
    EXPECT(sidestep_series_open(engine, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    world_fill(&world, 5);
    EXPECT(is_reason(
        comm, job->culprit,
        sidestep_series_save(series, 1, culprit ? NULL : world.state, &save_options, NULL, &err),
        &err));
    EXPECT(is_reason(comm, job->culprit,
                     sidestep_series_save_async(series, 1, culprit ? NULL : world.state,
                                                &save_options, &save, &err),
                     &err));
    EXPECT(save == NULL);
    EXPECT(sidestep_series_save(series, 1, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    EXPECT(is_reason(comm, job->culprit,
                     sidestep_series_load(series, culprit ? NULL : world.state, &load_options,
                                          culprit ? NULL : &step, NULL, NULL, &err),
                     &err));
    EXPECT(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err) == SIDESTEP_OK);
    EXPECT(step == 1 && world_check(&world, 5) == 0);
    world_free(&world);
    EXPECT(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    EXPECT(sidestep_engine_close(&engine, &err) == SIDESTEP_OK);
    return bad;
}

TEST(a_rank_that_cannot_take_part_in_a_series)
{
    char path[256];

    for (int i = 0; i < 2; i++) {
        struct job job = {.culprit = i};

        assert_int_equal(comm_threads_run(2, run_series, &job), 0);
        assert_int_equal(access(at(path, "step-1/.metadata"), F_OK), 0);
        scratch_teardown(NULL);
        scratch_setup(NULL);
    }
}

TEST(a_failure_option_needs_a_status)
{
    static const int32_t statuses[] = {SIDESTEP_OK, -1, SIDESTEP_EDEVICE + 1, INT32_MAX};
    struct sidestep_save_options save_options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_load_options load_options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0}, why = {0};

    save_options.failure = load_options.failure = &why;
    assert_int_equal(sidestep_engine_open(&engine, NULL, &err), SIDESTEP_OK);
    memset(why.message, 'x', sizeof(why.message)); /* not NUL-terminated */
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        why.status = statuses[i];
        assert_int_equal(sidestep_save(engine, NULL, NULL, &save_options, NULL, &err),
                         SIDESTEP_EINVAL);
        assert_non_null(strstr(err.message, "failure has status "));
        assert_int_equal(sidestep_load(engine, NULL, NULL, &load_options, NULL, &err),
                         SIDESTEP_EINVAL);
        assert_non_null(strstr(err.message, "which is not a failure: xxx"));
    }
    why.status = SIDESTEP_EIO;
    assert_int_equal(sidestep_save(engine, NULL, NULL, &save_options, NULL, &err), SIDESTEP_EIO);
    assert_non_null(memchr(err.message, '\0', sizeof(err.message)));
    assert_int_equal(sidestep_save(engine, NULL, NULL, &save_options, NULL, NULL), SIDESTEP_EIO);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
}

/* ---------------------------------------------------------------- closing an engine */

/* A communicator that can be cut. */
struct cut {
    struct sidestep_comm inner;
    bool dead;
};

static int cut_max(void *context, uint64_t *values, size_t count)
{
    struct cut *cut = context;

    return cut->dead ? -1 : cut->inner.all_reduce_max(cut->inner.context, values, count);
}

static int cut_broadcast(void *context, void *buffer, size_t bytes, int32_t root)
{
    struct cut *cut = context;

    return cut->dead ? -1 : cut->inner.broadcast(cut->inner.context, buffer, bytes, root);
}

static int cut_gather(void *context, const void *send, size_t send_bytes, void *recv,
                      const size_t *recv_bytes)
{
    struct cut *cut = context;

    return cut->dead ? -1
                     : cut->inner.gather(cut->inner.context, send, send_bytes, recv, recv_bytes);
}

static int cut_scatter(void *context, const void *send, const size_t *send_bytes, void *recv,
                       size_t recv_bytes)
{
    struct cut *cut = context;

    return cut->dead ? -1
                     : cut->inner.scatter(cut->inner.context, send, send_bytes, recv, recv_bytes);
}

/* A save in flight and an open series; then the communicator fails for ever. */
static int run_until_cut(struct sidestep_comm *comm, void *context)
{
    struct cut cut = {.inner = *comm};
    struct sidestep_comm ours = *comm;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct sidestep_engine *engine = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_save *save = NULL;
    struct world world;
    int bad = 0;

    (void)context;
    ours.context = &cut;
    ours.all_reduce_max = cut_max, ours.broadcast = cut_broadcast;
    ours.gather = cut_gather, ours.scatter = cut_scatter;
    options.comm = &ours, options.threads = 1;
    EXPECT(sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK);
    EXPECT(sidestep_series_open(engine, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    world_fill(&world, 5);
    EXPECT(sidestep_series_save_async(series, 3, world.state, NULL, &save, &err) == SIDESTEP_OK);
    cut.dead = true;
    EXPECT(sidestep_engine_close(&engine, &err) == SIDESTEP_EPEER);
    EXPECT(engine == NULL && strstr(err.message, "'all_reduce_max' failed") != NULL);
    /* A save in flight ends by what storage shows. */
    EXPECT(sidestep_save_finish(&save, NULL, &err) == SIDESTEP_OK);
    EXPECT(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    EXPECT(save == NULL && series == NULL);
    world_free(&world);
    return bad;
}

TEST(an_engine_closes_without_its_communicator)
{
    char path[256];

    assert_int_equal(comm_threads_run(3, run_until_cut, NULL), 0);
    assert_int_equal(access(at(path, "step-3/.metadata"), F_OK), 0);
}

static void count_event(void *context, const char *line)
{
    (void)line;
    ++*(int *)context;
}

TEST(handles_outlive_their_engine)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL, *next = NULL;
    struct sidestep_series *series = NULL, *second = NULL, *again = NULL;
    struct sidestep_save *older = NULL, *newer = NULL;
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    struct sidestep_error err = {0};
    struct world world;
    char path[256];
    uint64_t step;
    int events = 0;

    options.on_event = count_event, options.event_context = &events;
    assert_int_equal(sidestep_engine_open(&engine, &options, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_series_open(engine, scratch.path, NULL, &series, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_series_open(engine, at(path, "more"), NULL, &second, &err),
                     SIDESTEP_OK);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 2, false);
    world_fill(&world, 1);
    assert_int_equal(sidestep_series_save_async(series, 1, world.state, NULL, &older, &err),
                     SIDESTEP_OK);
    assert_int_equal(sidestep_series_save_async(second, 2, world.state, NULL, &newer, &err),
                     SIDESTEP_OK);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
    assert_null(engine);
    int before = events;
    assert_true(before >= 10);

    /* Its locks are free, and calls on its handles say why they fail. */
    assert_int_equal(sidestep_engine_open(&next, NULL, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_series_open(next, scratch.path, NULL, &again, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_series_save(series, 9, world.state, NULL, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "the engine of series '"));
    assert_int_equal(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_int_equal(sidestep_series_delete(series, 1, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_save_wait(older, SIDESTEP_SAVE_COMMITTED, 0, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_save_finish(&older, &info, &err), SIDESTEP_OK);
    assert_int_equal(info.state, SIDESTEP_SAVE_COMMITTED);
    assert_int_equal(sidestep_series_close(&series, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_series_close(&second, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_save_finish(&newer, &info, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_series_close(&again, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_engine_close(&next, &err), SIDESTEP_OK);
    assert_int_equal(events, before);
    world_free(&world);
}

/* ---------------------------------------------------------------- too few descriptors */

TEST(too_few_descriptors)
{
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct rlimit limit, small;
    struct world world;
    char path[256], other[256];
    unsigned failed = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(sidestep_engine_open(&engine, NULL, &err), SIDESTEP_OK);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 2, false);
    world_fill(&world, 1);
    assert_int_equal(sidestep_save(engine, at(path, "one"), world.state, NULL, NULL, &err),
                     SIDESTEP_OK);
    at(other, "two");
    for (small = limit, small.rlim_cur = 3;; small.rlim_cur++) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
        err = (struct sidestep_error){0};
        enum sidestep_status load = sidestep_load(engine, path, world.state, NULL, NULL, &err);
        if (load != SIDESTEP_OK) {
            assert_int_equal(load, SIDESTEP_EIO);
            assert_int_equal(err.sys_errno, EMFILE);
        }
        err = (struct sidestep_error){0};
        enum sidestep_status save = sidestep_save(engine, other, world.state, NULL, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (save == SIDESTEP_OK && load == SIDESTEP_OK)
            break;
        failed++;
        if (save != SIDESTEP_OK) {
            assert_int_equal(save, SIDESTEP_EIO);
            assert_int_equal(err.sys_errno, EMFILE);
            assert_int_equal(access(other, F_OK), -1);
        }
        assert_true(small.rlim_cur < 100);
    }
    assert_true(failed > 2);
    world_free(&world);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
}

/* ---------------------------------------------------------------- paths of entries */

static void assert_paths(const char *path)
{
    struct sidestep_checkpoint *checkpoint = NULL;

    assert_int_equal(sidestep_checkpoint_open(path, &checkpoint, NULL), SIDESTEP_OK);
    const struct sidestep_entry *entry = sidestep_checkpoint_find(checkpoint, "state.-3.0");
    assert_non_null(entry);
    assert_int_equal(entry->path_length, 3);
    assert_string_equal(entry->path[0].key, "state");
    assert_null(entry->path[1].key);
    assert_int_equal(entry->path[1].index, -3);
    assert_int_equal(entry->path[1].flags, SIDESTEP_PATH_INT_KEY);
    assert_int_equal(entry->path[2].index, 0);
    assert_int_equal(entry->path[2].flags, 0);
    entry = sidestep_checkpoint_find(checkpoint, "plain");
    assert_non_null(entry);
    assert_int_equal(entry->path_length, 1);
    assert_string_equal(entry->path[0].key, "plain");
    sidestep_checkpoint_close(&checkpoint);
    /* No path is recorded. */
    assert_int_equal(
        sidestep_checkpoint_open("tests/golden/torch-2.14.1/nested", &checkpoint, NULL),
        SIDESTEP_OK);
    entry = sidestep_checkpoint_find(checkpoint, "o.a.0");
    assert_int_equal(entry->path_length, 3);
    assert_int_equal(entry->path[2].flags, 0);
    sidestep_checkpoint_close(&checkpoint);
}

TEST(integer_keys_come_back)
{
    const struct sidestep_path_item item[] = {
        {.key = "state"}, {.index = -3, .flags = SIDESTEP_PATH_INT_KEY}, {.index = 0}};
    struct sidestep_engine *engine = NULL;
    struct sidestep_state_dict *s = NULL;
    struct sidestep_error err = {0};
    float data[4] = {0};
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "state.-3.0",
                                     .dtype = SIDESTEP_FLOAT32,
                                     .ndim = 1,
                                     .shape = (int64_t[]){4},
                                     .data = data,
                                     .path = item,
                                     .path_length = 3};
    char path[256], lost[256];

    assert_int_equal(sidestep_engine_open(&engine, NULL, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_new(&s, &err), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_tensor(s, &tensor, &err), SIDESTEP_OK);
    assert_int_equal(
        sidestep_state_dict_add_value(s, "plain", NULL, 0, sidestep_value_int(1), &err),
        SIDESTEP_OK);
    assert_int_equal(sidestep_save(engine, at(path, "one"), s, NULL, NULL, &err), SIDESTEP_OK);
    assert_paths(path);
    assert_int_equal(unlink(at(lost, "one/.metadata")), 0);
    assert_int_equal(sidestep_rebuild(path, &err), SIDESTEP_OK);
    assert_paths(path);
    struct sidestep_verify_report report;
    assert_int_equal(sidestep_verify(path, NULL, &report, &err), SIDESTEP_OK);
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
    sidestep_state_dict_free(&s);
    assert_int_equal(sidestep_engine_close(&engine, &err), SIDESTEP_OK);
}

/* One rank may replace the checkpoint, and the others may not. */
static int save_unequally(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_save_options how = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;
    char path[256];
    int bad = 0;

    options.comm = comm;
    how.flags = comm->rank != *(int *)context ? SIDESTEP_SAVE_NO_REPLACE : 0;
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    EXPECT(sidestep_engine_open(&engine, &options, &err) == SIDESTEP_OK);
    EXPECT(sidestep_save(engine, at(path, "unequal"), world.state, &how, NULL, &err) ==
           SIDESTEP_EDISAGREE);
    EXPECT(strstr(err.message, "may be replaced") != NULL);
    world_free(&world);
    EXPECT(sidestep_engine_close(&engine, &err) == SIDESTEP_OK);
    return bad;
}

TEST(ranks_agree_on_whether_to_replace)
{
    for (int rank = 0; rank < 3; rank += 2)
        assert_int_equal(comm_threads_run(3, save_unequally, &rank), 0);
    assert_int_equal(count_names(), 0);
}

EACH_TEST(scratch_setup, scratch_teardown);
