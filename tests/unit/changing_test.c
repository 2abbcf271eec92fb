/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * changing_test.c -- a source that is overwritten while it is converted or loaded, with the same
 * size and in the same second. Without hashes, only its times show that.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "support/comm_hook.h"
#include "support/comm_threads.h"
#include "support/flip.h"
#include "support/one_scratch.h"

static void write_whole(const char *path)
{
    static const char header[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
    uint8_t length[8] = {sizeof(header) - 1};
    float values[4] = {1, 2, 3, 4};
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, length[0], file), length[0]);
    assert_int_equal(fwrite(values, 1, sizeof(values), file), sizeof(values));
    assert_int_equal(fclose(file), 0);
    usleep(50000); /* the clock of the file system has advanced */
}

/* How a source changes in the same second: the size stays, and with ${stamp} also the time, which
 * its owner can set. */
struct change {
    const char *path;
    bool stamp;
    unsigned after, seen;
};

static void change_it(void *context, size_t bytes)
{
    struct change *change = context;
    struct stat before;

    (void)bytes;
    if (change->seen++ != change->after)
        return;
    assert_int_equal(stat(change->path, &before), 0);
    flip(change->path, before.st_size - 1);
    if (change->stamp) {
        struct timespec times[2] = {before.st_atim, before.st_mtim};
        assert_int_equal(utimensat(AT_FDCWD, change->path, times, 0), 0);
    }
}

static void change_while_converted(void *context, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    change_it(context, 0);
}

TEST(a_source_that_changes_is_refused)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct change change = {.path = scratch_path(&scratch, "source.safetensors")};
    struct sidestep_convert_report report;
    struct sidestep_error err = {0};

    for (unsigned i = 0; i < 2; i++) {
        write_whole(change.path);
        change.stamp = i == 1;
        change.seen = 0;
        options.on_progress = change_while_converted;
        options.context = &change;
        assert_int_equal(sidestep_convert(change.path, scratch_path(&scratch, "torn.pt"), &options,
                                          &report, &err),
                         SIDESTEP_ECORRUPT);
        sidestep_convert_report_release(&report);
        assert_non_null(strstr(err.message, "was changed while it was being read"));
        assert_int_equal(remove(change.path), 0);
        assert_int_equal(rmdir(scratch.path), 0); /* nothing is left */
        assert_int_equal(mkdir(scratch.path, 0777), 0);
    }
}

/* Calls of the communicator: options, opened, the same one, planned, read. */
#define CALL_PLANNED 3u

static int load_what_changes(struct sidestep_comm *comm, void *context)
{
    const struct change *wanted = context;
    struct change change = {.path = wanted->path, .stamp = wanted->stamp, .after = UINT32_MAX};
    struct comm_hook hook = {.inner = *comm, .before = change_it, .context = &change};
    struct sidestep_comm hooked = comm_hook_over(&hook);
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_state_dict *dict = NULL;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    float values[4] = {0};
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "w",
                                     .dtype = SIDESTEP_FLOAT32,
                                     .ndim = 1,
                                     .shape = (const int64_t[]){4},
                                     .data = values};
    int bad = 0;

    options.comm = &hooked;
    options.threads = 1;
    bad |= sidestep_engine_open(&engine, &options, NULL) != SIDESTEP_OK;
    change.seen = 0;
    change.after = comm->rank == 0 ? wanted->after : UINT32_MAX;
    bad |= sidestep_state_dict_new(&dict, NULL) != SIDESTEP_OK;
    bad |= sidestep_state_dict_add_tensor(dict, &tensor, NULL) != SIDESTEP_OK;
    enum sidestep_status status = sidestep_load(engine, change.path, dict, NULL, NULL, &err);
    if (wanted->after == 0) /* before it is opened */
        bad |= status != SIDESTEP_OK;
    else
        bad |= status != SIDESTEP_ECORRUPT || strstr(err.message, "was changed while") == NULL;
    sidestep_state_dict_free(&dict);
    bad |= sidestep_engine_close(&engine, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(a_source_that_changes_is_not_loaded)
{
    struct change change = {.path = scratch_path(&scratch, "source.safetensors")};

    for (unsigned i = 0; i < 3; i++) {
        write_whole(change.path);
        change.stamp = i == 1;
        change.after = i == 2 ? 0 : CALL_PLANNED;
        assert_int_equal(comm_threads_run(2, load_what_changes, &change), 0);
    }
}

/* The source is read after it was opened: once unchanged, once changed since. */
TEST(a_source_that_changes_is_not_read)
{
    struct change change = {.path = scratch_path(&scratch, "source.safetensors")};
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_error err = {0};
    float values[4];

    for (unsigned i = 0; i < 2; i++) {
        write_whole(change.path);
        change.stamp = i == 1;
        change.seen = 0;
        assert_int_equal(sidestep_checkpoint_open(change.path, &checkpoint, &err), SIDESTEP_OK);
        assert_int_equal(sidestep_checkpoint_read_tensor(checkpoint, "w", NULL, NULL, values,
                                                         sizeof(values), &err),
                         SIDESTEP_OK);
        change_it(&change, 0);
        assert_int_equal(sidestep_checkpoint_read_tensor(checkpoint, "w", NULL, NULL, values,
                                                         sizeof(values), &err),
                         SIDESTEP_ECORRUPT);
        assert_non_null(strstr(err.message, "was changed while it was being read"));
        sidestep_checkpoint_close(&checkpoint);
    }
}

EACH_TEST(scratch_setup, scratch_teardown);
