/* SPDX-License-Identifier: BSD-3-Clause */
/* device_load_test.c -- loads into tensors on devices. */
#include <dirent.h>
#include <errno.h>

#include "support/on_device.h"

/* Save epoch 1 of the tensors, which stay. */
static void make_checkpoint(void)
{
    fill(1);
    expect_ok(start());
    expect_ok(finish());
}

static void overwrite(size_t i)
{
    size_t bytes = bytes_of(&job.tensors[i]);
    void *junk = malloc(bytes);

    assert_non_null(junk);
    memset(junk, 0x5a, bytes);
    cuda->write(job.tensors[i].words, junk, bytes);
    free(junk);
}

static enum sidestep_status load_state(struct sidestep_state_dict *state)
{
    struct sidestep_load_options options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_stream streams[STANDIN_DEVICES];

    options.streams = streams;
    options.stream_count = all_streams(streams);
    return sidestep_load(job.engine, job.path, state, &options, NULL, &job.err);
}

static enum sidestep_status load(void)
{
    struct sidestep_state_dict *state = new_state(job.tensors);
    enum sidestep_status status = load_state(state);

    sidestep_state_dict_free(&state);
    return status;
}

/* Also check that only the tensor's elements were written. */
static void expect_loaded(uint64_t epoch)
{
    for (size_t i = 0; i < job.count; i++) {
        const struct on_device *t = &job.tensors[i];
        uint64_t *words = malloc(bytes_of(t));
        assert_non_null(words);
        if (t->device >= 0)
            cuda->read(t->words, words, bytes_of(t));
        else
            memcpy(words, t->words, bytes_of(t));
        for (int64_t r = 0; r < t->rows; r++)
            for (int64_t c = 0; c < t->pitch; c++) {
                uint64_t wanted = c < t->columns ? word_of(i, (uint64_t)(r * t->columns + c), epoch)
                                                 : 0x5a5a5a5a5a5a5a5a;
                if (words[r * t->pitch + c] != wanted)
                    print_message("# tensor %zu, row %lld, column %lld\n", i, (long long)r,
                                  (long long)c);
                assert_true(words[r * t->pitch + c] == wanted);
            }
        free(words);
    }
}

static void fill_tensors(enum sidestep_compress compress)
{
    begin_with(NULL, 2);
    job.compress = compress;
    add(0, 5 * MIB + 8, 0);
    add(1, 9 * MIB, 0);
    add(-1, 3 * MIB, 0);
    add_rows(1, 1000, 300, 311, 0);
    add_rows(0, 3000, 1, 5, 0);
    add(0, 8, 0);
    make_checkpoint();
    for (size_t i = 0; i < job.count; i++)
        if (job.tensors[i].device >= 0)
            overwrite(i);
    cuda->slow(300);
    expect_ok(load());
    expect_loaded(1);
    end();
}

TEST(tensors_on_devices_are_filled)
{
    fill_tensors(SIDESTEP_COMPRESS_NONE);
    fill_tensors(SIDESTEP_COMPRESS_ZSTD);
    fill_tensors(SIDESTEP_COMPRESS_PLANES);
}

/* A load has few buffers, and slow streams still copy from them when the next bytes are read. */
TEST(buffers_are_read_to_again_only_when_they_are_copied)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.threads = 1;
    begin_with(&options, 2);
    for (int i = 0; i < 8; i++)
        add(i % 2, 4 * MIB, 0);
    make_checkpoint();
    for (size_t i = 0; i < job.count; i++)
        overwrite(i);
    cuda->slow(3000);
    expect_ok(load());
    expect_loaded(1);
    end();
}

/* Work that the program submitted before is done first, on every stream. */
TEST(loads_wait_for_the_programs_streams)
{
    begin();
    add(0, 3 * MIB, 0);
    make_checkpoint();
    cuda->slow(20000);
    for (uint64_t epoch = 2; epoch < 6; epoch++)
        fill(epoch);
    expect_ok(load());
    expect_loaded(1);
    cuda->synchronize(0, job.streams[0]);
    expect_loaded(1);
    end();
}

TEST(loads_wait_for_the_default_stream_if_none_is_named)
{
    begin();
    cuda->free_stream(job.streams[0]);
    job.streams[0] = NULL;
    add(0, 3 * MIB, 0);
    make_checkpoint();
    cuda->slow(20000);
    fill(2);
    fill(3);
    expect_ok(load());
    cuda->synchronize(0, NULL);
    expect_loaded(1);
    end();
}

/* Only verified bytes are copied to a device. */
TEST(damage_is_found_before_it_reaches_the_device)
{
    char path[256];

    begin();
    add(0, 3 * MIB, 0);
    make_checkpoint();
    DIR *dir = opendir(job.path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".distcp") != NULL)
            snprintf(path, sizeof(path), "%s/%s", job.path, entry->d_name);
    closedir(dir);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 2 * MIB, SEEK_SET), 0);
    assert_int_equal(fputc(0xee, file), 0xee);
    fclose(file);
    expect_status(load(), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(job.err.message, "unspecified state"));
    end();
}

/* Load while a save of the same memory is copied and written. */
TEST(a_load_beside_a_save)
{
    begin();
    add(0, 20 * MIB, SIDESTEP_TENSOR_FENCED);
    make_checkpoint();
    char first[128];
    memcpy(first, job.path, sizeof(first));
    fill(2);
    snprintf(job.path, sizeof(job.path), "%s/other", scratch.path);
    cuda->slow(2000);
    expect_ok(start());
    expect_ok(fence(0));
    struct sidestep_save *save = job.save;
    memcpy(job.path, first, sizeof(first));
    expect_ok(load());
    expect_loaded(1);
    job.save = save;
    expect_ok(finish());
    snprintf(job.path, sizeof(job.path), "%s/other", scratch.path);
    expect_epoch(2);
    end();
}

static void fail_each_call(enum sidestep_compress compress)
{
    unsigned long failures = 0, worked = 0;

    for (unsigned long nth = 1; worked == 0; nth++) {
        begin();
        job.compress = compress;
        add(0, 2 * MIB, 0);
        add_rows(0, 10, 30, 31, 0);
        make_checkpoint();
        cuda->fail_calls("cu", nth, nth % 2 == 0 ? 719 : 2, false);
        enum sidestep_status status = load();
        bool failed = cuda->failed_calls() != 0;
        cuda->fail_calls("", 0, 0, false);
        worked = !failed;
        failures += status != SIDESTEP_OK;
        if (status != SIDESTEP_OK) {
            if (status != SIDESTEP_EDEVICE && status != SIDESTEP_ENOMEM)
                print_message("# %lu: %s\n", nth, job.err.message);
            assert_true(failed);
            assert_true(status == SIDESTEP_EDEVICE || status == SIDESTEP_ENOMEM);
            assert_non_null(strstr(job.err.message, "cu"));
        }
        expect_ok(load());
        overwrite(1);
        expect_ok(load());
        expect_loaded(1);
        end();
    }
    assert_true(failures > 5);
}

TEST(every_failure_of_a_load_is_reported)
{
    fail_each_call(SIDESTEP_COMPRESS_NONE);
}

TEST(every_failure_of_a_compressed_load_is_reported)
{
    fail_each_call(SIDESTEP_COMPRESS_ZSTD);
}

TEST(memory_may_be_short_in_a_load)
{
    begin();
    add(0, 2 * MIB, 0);
    make_checkpoint();
    struct sidestep_state_dict *dict = new_state(job.tensors);
    for (unsigned long nth = 1;; nth++) {
        fault_arm("memory", nth, false, ENOMEM);
        enum sidestep_status status = load_state(dict);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (!fired) {
            expect_ok(status);
            break;
        }
        if (status != SIDESTEP_OK)
            assert_int_equal(status, SIDESTEP_ENOMEM);
    }
    sidestep_state_dict_free(&dict);
    expect_loaded(1);
    end();
}

ALL_TESTS(setup, teardown);
