/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff_test.c -- comparing two checkpoints: saved by any ranks, with and without reading, damaged,
 * interrupted, larger than a batch, and with every allocation failing once.
 */
#include <math.h>
#include <unistd.h>

#include "base/fault.h"
#include "inspect/diff.h"
#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/unit.h"

static char a_path[160], b_path[160];

static int setup(void **state)
{
    (void)state;
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(a_path, sizeof(a_path), "%s/a", scratch.path);
    snprintf(b_path, sizeof(b_path), "%s/b", scratch.path);
    return 0;
}

static void save_world(const char *path, uint64_t seed)
{
    world_fill(&world, seed);
    ASSERT_OK(sidestep_save(engine, path, world.state, NULL, NULL, &err));
}

static struct sidestep_diff_report compare(void)
{
    struct sidestep_diff_report report;

    ASSERT_OK(sidestep_diff(a_path, b_path, NULL, &report, &err));
    return report;
}

TEST(equal_hashes_are_not_read)
{
    save_world(a_path, 1);
    save_world(b_path, 1);
    struct sidestep_diff_report report = compare();
    assert_true(report.is_same && report.difference_count == 0 && report.read_bytes == 0);
    assert_true(report.same_by_hash >= 10 && report.same_count > report.same_by_hash);
    sidestep_diff_report_release(&report);
    sidestep_diff_report_release(&report); /* releasing it again is allowed */
}

struct saving {
    const char *path;
    uint64_t seed;
    enum world_layout layout;
};

static int save_on_ranks(struct sidestep_comm *comm, void *context)
{
    const struct saving *saving = context;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *mine = NULL;
    struct world part;

    options.comm = comm;
    if (sidestep_engine_open(&mine, &options, NULL) != SIDESTEP_OK)
        return 1;
    world_make(&part, comm->rank, comm->size, saving->layout, 1, false);
    world_fill(&part, saving->seed);
    enum sidestep_status status = sidestep_save(mine, saving->path, part.state, NULL, NULL, NULL);
    if (sidestep_engine_close(&mine, NULL) != SIDESTEP_OK)
        status = SIDESTEP_EIO;
    world_free(&part);
    return status != SIDESTEP_OK;
}

TEST(sharding_does_not_matter)
{
    struct saving rows = {a_path, 1, WORLD_BY_ROWS}, columns = {b_path, 1, WORLD_BY_COLUMNS};

    assert_int_equal(comm_threads_run(3, save_on_ranks, &rows), 0);
    assert_int_equal(comm_threads_run(2, save_on_ranks, &columns), 0);
    struct sidestep_diff_report report = compare();
    assert_true(report.is_same && report.read_bytes > 0);
    sidestep_diff_report_release(&report);
    columns.seed = 2;
    assert_int_equal(comm_threads_run(2, save_on_ranks, &columns), 0);
    report = compare();
    assert_false(report.is_same);
    for (size_t i = 0; i < report.difference_count; i++) {
        const struct sidestep_difference *d = sidestep_diff_report_difference(&report, i);
        bool is_object = strcmp(d->kind, "value") == 0;
        assert_true(is_object || strcmp(d->kind, "data") == 0);
        assert_true(is_object || (d->element_count > 0 && d->first != NULL));
        if (i != 0)
            assert_true(strcmp(sidestep_diff_report_difference(&report, i - 1)->name, d->name) < 0);
    }
    assert_null(sidestep_diff_report_difference(&report, report.difference_count));
    sidestep_diff_report_release(&report);
}

/* ---- states for these tests */

static struct sidestep_state_dict *new_state(void)
{
    struct sidestep_state_dict *dict = NULL;

    ASSERT_OK(sidestep_state_dict_new(&dict, &err));
    return dict;
}

static void add(struct sidestep_state_dict *dict, const char *name, enum sidestep_dtype dtype,
                uint32_t ndim, const int64_t *shape, void *data)
{
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

    tensor.name = name;
    tensor.dtype = dtype;
    tensor.ndim = ndim;
    tensor.shape = shape;
    tensor.data = data;
    ASSERT_OK(sidestep_state_dict_add_tensor(dict, &tensor, &err));
}

static void save_and_free(const char *path, struct sidestep_state_dict *dict)
{
    ASSERT_OK(sidestep_save(engine, path, dict, NULL, NULL, &err));
    sidestep_state_dict_free(&dict);
}

static void expect(const struct sidestep_difference *d, const char *name, const char *kind,
                   const char *message)
{
    assert_string_equal(d->name, name);
    assert_string_equal(d->kind, kind);
    assert_string_equal(d->message, message);
}

TEST(every_kind_of_difference_is_reported)
{
    static float numbers[6];
    static const int64_t flat[] = {6}, two[] = {2, 3}, other[] = {3, 2};
    struct sidestep_state_dict *a = new_state(), *b = new_state();

    add(a, "dtype", SIDESTEP_FLOAT32, 1, flat, numbers);
    add(b, "dtype", SIDESTEP_INT32, 1, flat, numbers);
    add(a, "first", SIDESTEP_FLOAT32, 2, two, numbers);
    add(b, "second", SIDESTEP_FLOAT32, 2, two, numbers);
    add(a, "shape", SIDESTEP_FLOAT32, 2, two, numbers);
    add(b, "shape", SIDESTEP_FLOAT32, 2, other, numbers);
    add(a, "thing", SIDESTEP_FLOAT32, 1, flat, numbers);
    ASSERT_OK(sidestep_state_dict_add_value(b, "thing", NULL, 0, sidestep_value_int(1), &err));
    ASSERT_OK(sidestep_state_dict_add_value(a, "value", NULL, 0, sidestep_value_int(1), &err));
    ASSERT_OK(sidestep_state_dict_add_value(b, "value", NULL, 0, sidestep_value_int(2), &err));
    save_and_free(a_path, a);
    save_and_free(b_path, b);
    struct sidestep_diff_report report = compare();
    assert_int_equal(report.difference_count, 6);
    expect(sidestep_diff_report_difference(&report, 0), "dtype", "dtype",
           "float32 [6], and int32 [6]");
    expect(sidestep_diff_report_difference(&report, 1), "first", "only_a",
           "float32 [2,3], in the first only");
    expect(sidestep_diff_report_difference(&report, 2), "second", "only_b",
           "float32 [2,3], in the second only");
    expect(sidestep_diff_report_difference(&report, 3), "shape", "shape",
           "float32 [2,3], and float32 [3,2]");
    expect(sidestep_diff_report_difference(&report, 4), "thing", "kind",
           "float32 [6], and an object");
    expect(sidestep_diff_report_difference(&report, 5), "value", "value", "the values differ");
    sidestep_diff_report_release(&report);
}

/* Many stretches in one tensor, which do not end where rows end. */
TEST(large_tensors_go_by_pieces)
{
    const int64_t shape[] = {3, 1 << 20, 9};
    const uint64_t count = (uint64_t)3 * (1 << 20) * 9;
    float *numbers = calloc(count, sizeof(*numbers));
    struct sidestep_state_dict *a = new_state(), *b = new_state();

    assert_non_null(numbers);
    add(a, "w", SIDESTEP_FLOAT32, 3, shape, numbers);
    add(b, "w", SIDESTEP_FLOAT32, 3, shape, numbers);
    save_and_free(a_path, a);
    numbers[((uint64_t)1 * (1 << 20) + 5) * 9 + 7] = 0.5f;
    numbers[count - 1] = -2;
    save_and_free(b_path, b);
    struct sidestep_diff_report report = compare();
    assert_int_equal(report.difference_count, 1);
    const struct sidestep_difference *d = sidestep_diff_report_difference(&report, 0);
    expect(d, "w", "data", "float32 [3,1048576,9]: 2 elements differ");
    assert_true(d->element_count == 2 && d->max_abs == 2 && d->max_rel == 1);
    assert_true(d->ndim == 3 && d->first[0] == 1 && d->first[1] == 5 && d->first[2] == 7);
    assert_int_equal(report.read_bytes, count * sizeof(*numbers));
    sidestep_diff_report_release(&report);
    free(numbers);
}

/* Wrong paths, and a damaged checkpoint. */
TEST(incomparable_checkpoints_are_an_error)
{
    struct sidestep_diff_report report;
    struct sidestep_diff_options options = SIDESTEP_DIFF_OPTIONS_INIT;
    char path[256];

    save_world(a_path, 1);
    save_world(b_path, 2);
    assert_int_equal(sidestep_diff(a_path, NULL, NULL, &report, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_diff(a_path, scratch.path, NULL, &report, &err),
                     SIDESTEP_EUNCOMMITTED);
    options.flags = 1;
    assert_int_equal(sidestep_diff(a_path, b_path, &options, &report, &err), SIDESTEP_EUNSUPPORTED);
    options.flags = 0;
    bool cancel = true;
    options.cancel = &cancel;
    assert_int_equal(sidestep_diff(a_path, b_path, &options, &report, &err), SIDESTEP_ECANCELLED);
    assert_null(report.owner);
    snprintf(path, sizeof(path), "%s/__0_0.distcp", b_path);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 1500, SEEK_SET), 0);
    assert_int_not_equal(fputc('x', file), EOF);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sidestep_diff(a_path, b_path, NULL, &report, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, b_path));
}

static void count_progress(void *context, uint64_t done, uint64_t total)
{
    uint64_t *seen = context;

    assert_true(done <= total && done >= *seen);
    *seen = done;
}

TEST(progress_is_reported)
{
    struct sidestep_diff_options options = SIDESTEP_DIFF_OPTIONS_INIT;
    struct sidestep_diff_report report;
    uint64_t seen = 0;

    save_world(a_path, 1);
    save_world(b_path, 2);
    options.on_progress = count_progress;
    options.context = &seen;
    options.threads = 1;
    ASSERT_OK(sidestep_diff(a_path, b_path, &options, &report, &err));
    assert_true(seen > 0 && seen == report.read_bytes);
    sidestep_diff_report_release(&report);
}

TEST(every_allocation_may_fail)
{
    bool fired = true;
    unsigned failed = 0;

    save_world(a_path, 1);
    save_world(b_path, 2);
    for (unsigned long nth = 1; fired; nth++) {
        struct sidestep_diff_report report;
        fault_arm("memory", nth, false, 12);
        enum sidestep_status status = sidestep_diff(a_path, b_path, NULL, &report, &err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (status != SIDESTEP_OK) {
            assert_true(fired && status == SIDESTEP_ENOMEM && report.owner == NULL);
            failed++;
        } else { /* the allocation was not necessary */
            assert_true(report.difference_count > 10);
        }
        sidestep_diff_report_release(&report);
        assert_true(nth < 5000);
    }
    assert_true(failed > 50);
}

EACH_TEST(setup, one_rank_teardown);
