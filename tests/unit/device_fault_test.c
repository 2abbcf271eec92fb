/* SPDX-License-Identifier: BSD-3-Clause */
/* device_fault_test.c -- drivers and devices that fail, and missing memory: the checkpoint is
 * right, or there is a clear error, and the program goes on. */
#include <errno.h>
#include <sys/wait.h>

#include "sidestep/sidestep_tools.h"
#include "support/on_device.h"
#include "support/reader.h"

/* Save once, fence, and overwrite; a committed checkpoint has epoch 1. */
static enum sidestep_status save_once(void)
{
    fill(1);
    enum sidestep_status status = start();
    if (status != SIDESTEP_OK)
        return status;
    /* If a fence cannot be set, the program must wait. */
    if (fence(0) != SIDESTEP_OK &&
        sidestep_save_wait(job.save, SIDESTEP_SAVE_STAGED, -1, NULL) != SIDESTEP_OK)
        return finish();
    fill(2);
    return finish();
}

/* Work of a failed save that could not be waited for goes on. */
static void wait_for_leftovers(void)
{
    while (cuda->left().pending != 0)
        (void)usleep(100);
}

static void add_some(size_t large_bytes)
{
    add(0, large_bytes, SIDESTEP_TENSOR_FENCED);
    add(0, 70000, 0);
    add_rows(0, 100, 30, 31, 0);
    add(-1, 4096, 0);
}

/* The n-th call of the driver fails, for all n; then it works again. */
static unsigned long fail_each_call(uint64_t pool_bytes, bool sticky, unsigned long step)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    unsigned long failures = 0;
    bool fired = true;

    options.pool_bytes = pool_bytes;
    for (unsigned long nth = 1; fired; nth += step) {
        begin_with(&options, 1);
        add_some(pool_bytes != 0 ? 18 * MIB : MIB);
        cuda->fail_calls("cu", nth, nth % 3 == 0 ? 2 : 719, sticky);
        enum sidestep_status status = save_once();
        fired = cuda->failed_calls() != 0;
        cuda->fail_calls("", 0, 0, false);
        if (status != SIDESTEP_OK) {
            if (!fired || (status != SIDESTEP_EDEVICE && status != SIDESTEP_ENOMEM))
                print_message("# call %lu: %s\n", nth, job.err.message);
            assert_true(fired);
            assert_true(status == SIDESTEP_EDEVICE || status == SIDESTEP_ENOMEM);
            failures++;
        } else {
            expect_epoch(1);
        }
        wait_for_leftovers();
        expect_ok(save_once());
        expect_epoch(1);
        end();
    }
    return failures;
}

TEST(every_call_of_the_driver_may_fail)
{
    assert_true(fail_each_call(0, false, 1) > 15);
}

TEST(the_driver_may_fail_from_any_call_on)
{
    assert_true(fail_each_call(0, true, 1) > 15);
}

TEST(every_call_may_fail_in_a_small_pool)
{
    /* It takes long, and submits the same as above. */
    unsigned long step = getenv("SIDESTEP_LONG") != NULL ? 1 : 7;
    assert_true(fail_each_call(16 * MIB + 8192, false, step) > 5);
}

/* From some operation on nothing is done any more, and every call reports it. */
TEST(a_device_may_be_lost)
{
    for (unsigned long nth = 1; nth < 12; nth++) {
        begin();
        add_some(MIB);
        cuda->lose(nth);
        enum sidestep_status status = save_once();
        if (status != SIDESTEP_OK) {
            assert_int_equal(status, SIDESTEP_EDEVICE);
            assert_non_null(strstr(job.err.message, "unspecified launch failure"));
        }
        assert_true(status != SIDESTEP_OK || nth > 3);
        /* The context is lost for good: all later saves report it at once. */
        cuda->lose(1);
        fill(1);
        cuda->synchronize(0, job.streams[0]);
        expect_status(save_once(), SIDESTEP_EDEVICE);
        (void)sidestep_engine_close(&job.engine, NULL);
        cuda->lose(0);
        cuda->free_stream(job.streams[0]);
        for (size_t i = 0; i < job.count; i++)
            job.tensors[i].device < 0 ? free(job.tensors[i].words)
                                      : cuda->free(job.tensors[i].words);
        expect_no_problem();
        cuda->reset(0);
    }
}

TEST(memory_may_be_short)
{
    unsigned long failures = 0;

    for (unsigned long nth = 1;; nth++) {
        begin();
        add(0, 2 * MIB, SIDESTEP_TENSOR_FENCED);
        add(-1, 4096, 0);
        fill(1);
        struct sidestep_state_dict *dict = new_state(job.tensors);
        fault_arm("memory", nth, false, ENOMEM);
        enum sidestep_status status = start_state(dict);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        sidestep_state_dict_free(&dict);
        if (status == SIDESTEP_OK)
            status = finish();
        failures += status != SIDESTEP_OK;
        if (status != SIDESTEP_OK)
            assert_int_equal(status, SIDESTEP_ENOMEM);
        expect_ok(save_once());
        expect_epoch(1);
        end();
        if (!fired)
            break;
    }
    assert_true(failures > 10);
}

static void expect_fault(const char *point, unsigned long nth, enum sidestep_status wanted)
{
    begin();
    add_some(MIB);
    fault_arm(point, nth, false, ENOMEM);
    expect_status(save_once(), wanted);
    assert_non_null(fault_fired());
    if (wanted != SIDESTEP_OK)
        assert_non_null(strstr(job.err.message, "copy tensor 't"));
    fault_arm("", 0, false, 0);
    expect_ok(save_once());
    expect_epoch(1);
    end();
}

TEST(what_a_driver_refuses_is_reported)
{
    expect_fault("device.copy", 1, SIDESTEP_EDEVICE);
    expect_fault("device.copy", 3, SIDESTEP_EDEVICE);
    expect_fault("device.await", 1, SIDESTEP_EDEVICE);
    expect_fault("device.pin", 1, SIDESTEP_OK);
}

/* ---- missing memory */

static void expect_refused(uint64_t *words, int64_t count, const char *word)
{
    struct sidestep_state_dict *dict = NULL;
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

    tensor.name = "gone";
    tensor.dtype = SIDESTEP_UINT64;
    tensor.ndim = 1;
    tensor.shape = &count;
    tensor.data = words;
    assert_int_equal(sidestep_state_dict_new(&dict, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_tensor(dict, &tensor, NULL), SIDESTEP_OK);
    enum sidestep_status status =
        sidestep_save_async(job.engine, job.path, dict, NULL, &job.save, &job.err);
    expect_status(status,
                  strcmp(word, "primary context") == 0 ? SIDESTEP_EUNSUPPORTED : SIDESTEP_EINVAL);
    assert_non_null(strstr(job.err.message, "tensor 'gone'"));
    assert_non_null(strstr(job.err.message, word));
    sidestep_state_dict_free(&dict);
}

TEST(memory_that_is_too_small_is_refused)
{
    begin();
    uint64_t *words = cuda->allocate(0, 65536);
    expect_refused(words, 65536 / 8 + 1, "freed, or resized");
    expect_refused(words + 1, 65536 / 8, "freed, or resized");
    cuda->free(words);
    words =
        cuda->reserve(0, 1 << 20, 1 << 19); /* of these addresses only the first half has memory */
    expect_refused(words, (1 << 20) / 8, "freed, or resized");
    cuda->free(words);
    add(0, 65536, 0);
    expect_ok(save_once());
    expect_epoch(1);
    end();
}

/* Where a process may not ask whether its memory can be read, such an address is read, and kills.
 */
TEST(memory_that_is_nobodys_is_refused)
{
    need_reader();
    begin();
    uint64_t *words = cuda->reserve(0, 1 << 20, 0);
    expect_refused(words, 1, "neither the host's nor a device's");
    cuda->free(words);
    add(0, 65536, 0);
    expect_ok(save_once());
    expect_epoch(1);
    end();
}

/* For memory that another process has exported, a driver gives the same answers as for any other:
 * the device, and the mapping here. The other process writes to it, and ends. */
TEST(memory_of_another_process_is_copied_too)
{
    int status;

    begin();
    for (int i = 0; i < 2; i++)
        add(0, 3 * MIB, i == 0 ? SIDESTEP_TENSOR_FENCED : 0);
    for (uint64_t epoch = 5; epoch < 7; epoch++) {
        uint64_t *views[] = {cuda->view(job.tensors[0].words), cuda->view(job.tensors[1].words)};
        pid_t other = fork();
        assert_true(other >= 0);
        if (other == 0) {
            for (size_t i = 0; i < 2; i++)
                fill_words(views[i], &job.tensors[i], i, epoch);
            _exit(0);
        }
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_int_equal(status, 0);
        expect_ok(start());
        expect_ok(fence(0));
        fill(9);
        expect_ok(finish());
        expect_epoch(epoch);
        cuda->synchronize(0, job.streams[0]);
    }
    end();
}

TEST(a_context_is_never_made)
{
    begin();
    uint64_t *words = cuda->allocate(0, 65536);
    cuda->set_active(0, false);
    expect_refused(words, 65536 / 8, "primary context");
    cuda->set_active(0, true);
    cuda->free(words);
    end();
}

TEST(bad_streams_are_refused)
{
    struct sidestep_stream streams[65] = {{0}};
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    begin();
    add(0, 65536, 0);
    fill(1);
    struct sidestep_state_dict *dict = new_state(job.tensors);
    options.streams = streams;
    options.stream_count = 65;
    expect_status(sidestep_save_async(job.engine, job.path, dict, &options, &job.save, &job.err),
                  SIDESTEP_EINVAL);
    streams[0].stream = &options; /* not a stream */
    options.stream_count = 1;
    expect_status(sidestep_save_async(job.engine, job.path, dict, &options, &job.save, &job.err),
                  SIDESTEP_EINVAL);
    options.streams = NULL;
    expect_status(sidestep_save_async(job.engine, job.path, dict, &options, &job.save, &job.err),
                  SIDESTEP_EINVAL);
    options.stream_count = 0;
    expect_ok(sidestep_save_async(job.engine, job.path, dict, &options, &job.save, &job.err));
    sidestep_state_dict_free(&dict);
    expect_ok(finish());
    end();
}

/* Its pages move; a copy by the driver gets the present contents. */
TEST(managed_memory_is_that_of_a_device)
{
    begin();
    add(0, MIB, SIDESTEP_TENSOR_FENCED);
    cuda->free(job.tensors[0].words);
    job.tensors[0].words = cuda->allocate_managed(0, MIB);
    expect_ok(save_once());
    assert_int_equal(job.info.device_bytes, MIB);
    expect_epoch(1);
    end();
}

/* Exit handlers of the driver run before ours: then it answers nothing. */
TEST(a_driver_may_end_before_the_engine)
{
    begin();
    add_some(MIB);
    expect_ok(save_once());
    cuda->fail_calls("cu", 1, 4, true); /* CUDA_ERROR_DEINITIALIZED, from now on */
    fill(1);
    enum sidestep_status status = start();
    expect_status(status, SIDESTEP_EDEVICE);
    assert_non_null(strstr(job.err.message, "tensor 't0'"));
    expect_ok(sidestep_engine_close(&job.engine, &job.err));
    cuda->fail_calls("", 0, 0, false);
    assert_int_equal(sidestep_engine_open(&job.engine, NULL, &job.err), SIDESTEP_OK);
    expect_epoch(1); /* of the save before */
    expect_ok(sidestep_engine_close(&job.engine, &job.err));
    for (size_t i = 0; i < job.count; i++)
        job.tensors[i].device < 0 ? free(job.tensors[i].words) : cuda->free(job.tensors[i].words);
    expect_no_problem();
    cuda->reset(0);
}

/* ---- processes */

/* In a child: use handles of the parent, and an engine of its own. 0, or which step failed. */
static int work_in_child(void)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_state_dict *dict;
    size_t count = job.count;

    if (fence(0) != SIDESTEP_EFORKED ||
        sidestep_engine_close(&job.engine, NULL) != SIDESTEP_EFORKED)
        return 1;
    if (sidestep_engine_open(&own, NULL, NULL) != SIDESTEP_OK)
        return 2;
    strcat(job.path, "-child");
    dict = new_state(job.tensors);
    enum sidestep_status status = sidestep_save(own, job.path, dict, NULL, NULL, &job.err);
    if (status != SIDESTEP_EUNSUPPORTED || strstr(job.err.message, "tensor 't0'") == NULL ||
        strstr(job.err.message, "fork()") == NULL)
        return 3;
    sidestep_state_dict_free(&dict);
    job.count = 1;
    dict = new_state(&job.tensors[count - 1]); /* a tensor in host memory */
    if (sidestep_save(own, job.path, dict, NULL, NULL, &job.err) != SIDESTEP_OK)
        return 4;
    sidestep_state_dict_free(&dict);
    if (sidestep_engine_close(&own, NULL) != SIDESTEP_OK)
        return 5;
    return cuda->forked_calls() == 0 ? 0 : 6;
}

TEST(a_child_of_fork_leaves_devices_alone)
{
#ifdef __SANITIZE_THREAD__
    print_message("ThreadSanitizer cannot follow threads that a forked child starts\n");
    skip();
#endif
    need_reader();
    int status;

    begin();
    add_some(MIB);
    cuda->slow(5000);
    fill(1);
    expect_ok(start());
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(work_in_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_ok(fence(0));
    fill(2);
    expect_ok(finish());
    expect_epoch(1);
    end();
}

/* ---- the report */

TEST(addresses_are_told_apart)
{
    int here = 0;

    cuda->reset(2);
    void *there = cuda->allocate(1, 4096);
    assert_int_equal(sidestep_device_of(there), 1);
    assert_int_equal(sidestep_device_of((char *)there + 4095), 1);
    assert_int_equal(sidestep_device_of(&here), -1);
    assert_int_equal(sidestep_device_of(NULL), -1);
    setenv("SIDESTEP_CUDA", "0", 1);
    assert_int_equal(sidestep_device_of(there), -1);
    unsetenv("SIDESTEP_CUDA");
    cuda->free(there);
    expect_nothing_left();
}

static const struct sidestep_finding *find_cuda(struct sidestep_doctor_report *report)
{
    assert_int_equal(sidestep_doctor(scratch.path, report, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(sidestep_doctor_report_finding(report, i)->name, "cuda") == 0)
            return sidestep_doctor_report_finding(report, i);
    return NULL;
}

static void expect_doctor(enum sidestep_allowed state, const char *text)
{
    struct sidestep_doctor_report report;
    const struct sidestep_finding *found = find_cuda(&report);

    assert_non_null(found);
    if (found->state != state || strstr(found->text, text) == NULL)
        print_message("# %s: %s\n", found->state_name, found->text);
    assert_int_equal(found->state, state);
    assert_non_null(strstr(found->text, text));
    assert_true((found->fix != NULL) == (state == SIDESTEP_ALLOWED_NO));
    sidestep_doctor_report_release(&report);
}

TEST(doctor_reports_devices)
{
    cuda->reset(2);
    expect_doctor(SIDESTEP_ALLOWED_YES, "driver of CUDA 13.0, 2 devices, the first is Stand-in 0");
    cuda->describe(12040, "A100 MIG 1g.5gb");
    expect_doctor(SIDESTEP_ALLOWED_YES, "the first is A100 MIG 1g.5gb 0 (a part of one");
    cuda->describe(9020, "K80");
    expect_doctor(SIDESTEP_ALLOWED_NO, "the driver is of CUDA 9.2, 10.1 is needed");
    cuda->reset(0);
    expect_doctor(SIDESTEP_ALLOWED_FACT, "no device");
    cuda->fail_calls("cuInit", 1, 100, true);
    expect_doctor(SIDESTEP_ALLOWED_FACT, "no device");
    cuda->fail_calls("cuInit", 1, 802, true);
    expect_doctor(SIDESTEP_ALLOWED_NO, "CUDA_ERROR_802");
    cuda->fail_calls("cuDriverGetVersion", 1, 999, true);
    expect_doctor(SIDESTEP_ALLOWED_NO, "CUDA_ERROR_999");
    cuda->fail_calls("", 0, 0, false);
    setenv("SIDESTEP_CUDA", "0", 1);
    expect_doctor(SIDESTEP_ALLOWED_NO, "SIDESTEP_CUDA=0");
    unsetenv("SIDESTEP_CUDA");
    expect_nothing_left();
}

ALL_TESTS(setup, teardown);
