/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * partial_test.c -- a checkpoint with one damaged file: what is in the others can be read, by name
 * and by a conversion; what is not is refused or left out, with its name, the file and the reason.
 * Whatever is read is what was saved.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define TENSORS 8
#define FLOATS 40000
#define OWNED_BY(release) __attribute__((cleanup(release)))
#define OWNED_CHECKPOINT OWNED_BY(sidestep_checkpoint_close) struct sidestep_checkpoint

static float values[TENSORS][FLOATS];
static char names[TENSORS][8];
static char whole[300], damaged[300], shard[400], target[300];

static int setup(void **state)
{
    (void)state;
    for (size_t t = 0; t < TENSORS; t++) {
        snprintf(names[t], sizeof(names[t]), "w%zu", t);
        for (size_t i = 0; i < FLOATS; i++)
            values[t][i] = (float)(t + 1) / (float)(i + 1);
    }
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(whole, sizeof(whole), "%s/whole", scratch.path);
    snprintf(damaged, sizeof(damaged), "%s/damaged", scratch.path);
    snprintf(shard, sizeof(shard), "%s/__1_0.distcp", damaged);
    snprintf(target, sizeof(target), "%s/target", scratch.path);
    return 0;
}

/* ---------------------------------------------------------------- checkpoints of two files */

/* Save ${values} as two ranks would: whole tensors, half of them each. */
static void save_two(const char *path, const char *compress)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_state_dict *state = NULL;
    char one[400];

    snprintf(one, sizeof(one), "rm -rf %s", path);
    assert_int_equal(system(one), 0); /* saved in place, its files would have other names */
    snprintf(one, sizeof(one), "%s/one", scratch.path);
    ASSERT_OK(sidestep_state_dict_new(&state, &err));
    for (size_t t = 0; t < TENSORS; t++) {
        const int64_t shape[] = {FLOATS};
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = names[t],
                                         .dtype = SIDESTEP_FLOAT32,
                                         .ndim = 1,
                                         .shape = shape,
                                         .data = values[t]};
        ASSERT_OK(sidestep_state_dict_add_tensor(state, &tensor, &err));
    }
    ASSERT_OK(sidestep_state_dict_add_value(state, "epoch", NULL, 0, sidestep_value_int(3), &err));
    ASSERT_OK(sidestep_save(engine, one, state, NULL, NULL, &err));
    options.to = SIDESTEP_FORMAT_DCP;
    options.ranks = 2;
    options.compress = compress;
    options.flags = SIDESTEP_CONVERT_REPLACE;
    ASSERT_OK(sidestep_convert(one, path, &options, NULL, &err));
    sidestep_state_dict_free(&state);
}

static void copy_checkpoint(void)
{
    char command[1000];

    snprintf(command, sizeof(command), "rm -rf %s && cp -r %s %s", damaged, whole, damaged);
    assert_int_equal(system(command), 0);
}

/* ---------------------------------------------------------------- damage */

static off_t size_of_shard(void)
{
    struct stat st;

    assert_int_equal(stat(shard, &st), 0);
    return st.st_size;
}

static void remove_it(void)
{
    assert_int_equal(unlink(shard), 0);
}

static void cut_it(void)
{
    assert_int_equal(truncate(shard, size_of_shard() / 2), 0);
}

static void replace_by_pipe(void)
{
    remove_it();
    assert_int_equal(mkfifo(shard, 0600), 0);
}

/* Replace the file by that of another save: of the same size, then of another one. */
static void replace_by_others(void)
{
    char other[300], command[1000];

    snprintf(other, sizeof(other), "%s/other", scratch.path);
    values[0][0] += 1;
    save_two(other, NULL);
    values[0][0] -= 1;
    snprintf(command, sizeof(command), "cp %s/__1_0.distcp %s", other, shard);
    assert_int_equal(system(command), 0);
}

static void replace_by_longer(void)
{
    replace_by_others();
    off_t size = size_of_shard();
    /* Its trailer is at its end, as if more preceded it. */
    FILE *file = fopen(shard, "r+b");
    uint8_t trailer[4096];
    assert_non_null(file);
    assert_int_equal(fseek(file, size - (off_t)sizeof(trailer), SEEK_SET), 0);
    assert_int_equal(fread(trailer, 1, sizeof(trailer), file), sizeof(trailer));
    assert_int_equal(fseek(file, size, SEEK_SET), 0);
    assert_int_equal(fwrite(trailer, 1, sizeof(trailer), file), sizeof(trailer));
    assert_int_equal(fclose(file), 0);
}

/* Replace it by a file in which all is right except its length. */
static void replace_by_other_ranks(void)
{
    char command[1000];

    snprintf(command, sizeof(command), "cp %s/__0_0.distcp %s", damaged, shard);
    off_t size = size_of_shard();
    assert_int_equal(system(command), 0);
    assert_int_not_equal(size_of_shard(), size);
}

/* ---------------------------------------------------------------- reading the rest */

/* Is ${name} in the damaged file? */
static bool is_in_shard(struct sidestep_checkpoint *checkpoint, const char *name)
{
    const struct sidestep_entry *entry = sidestep_checkpoint_find(checkpoint, name);

    assert_non_null(entry);
    assert_int_equal(entry->chunk_count, 1);
    return strcmp(entry->chunks[0].file, "__1_0.distcp") == 0;
}

/* Read ${values[t]} as it was saved, or fail with a message that names it, the file and ${why}. */
static bool reads(struct sidestep_checkpoint *checkpoint, size_t t, const char *why)
{
    static float got[FLOATS];
    char begin[64];

    memset(got, 0xff, sizeof(got));
    enum sidestep_status status =
        sidestep_checkpoint_read_tensor(checkpoint, names[t], NULL, NULL, got, sizeof(got), &err);
    if (status == SIDESTEP_OK) {
        assert_memory_equal(got, values[t], sizeof(got));
        return true;
    }
    snprintf(begin, sizeof(begin), "'%s' in file '__1_0.distcp': ", names[t]);
    assert_int_equal(strncmp(err.message, begin, strlen(begin)), 0);
    if (strstr(err.message, why) == NULL)
        fail_msg("'%s' lacks '%s'", err.message, why);
    return false;
}

/* A conversion gives what can be read; returns how many tensors are left out. */
static size_t expect_conversion(struct sidestep_checkpoint *checkpoint, const char *why)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_convert_report report;
    OWNED_CHECKPOINT *made = NULL;

    options.to = SIDESTEP_FORMAT_DCP;
    options.flags = SIDESTEP_CONVERT_REPLACE;
    assert_int_not_equal(sidestep_convert(damaged, target, &options, NULL, &err), SIDESTEP_OK);
    options.flags |= SIDESTEP_CONVERT_PARTIAL;
    ASSERT_OK(sidestep_convert(damaged, target, &options, &report, &err));
    ASSERT_OK(sidestep_checkpoint_open(target, &made, &err));
    size_t lost = 0;
    for (size_t t = 0; t < TENSORS; t++) {
        bool is_there = sidestep_checkpoint_find(made, names[t]) != NULL;
        assert_int_equal(is_there, reads(checkpoint, t, why));
        if (is_there)
            assert_true(reads(made, t, ""));
        lost += !is_there;
    }
    size_t objects_lost = report.lost_count - lost;
    assert_int_equal(report.tensor_count, TENSORS - lost);
    assert_int_equal(report.object_count + objects_lost, 1);
    for (size_t i = 0; i < report.lost_count; i++) {
        assert_non_null(strstr(report.lost[i], ": __1_0.distcp: "));
        assert_non_null(strstr(report.lost[i], why));
    }
    sidestep_convert_report_release(&report);
    return lost;
}

/* All tensors outside of the damaged file are read, and none inside. */
static void expect_rest(void (*damage)(void), const char *why)
{
    OWNED_CHECKPOINT *checkpoint = NULL;
    struct sidestep_checkpoint_info info = SIDESTEP_CHECKPOINT_INFO_INIT;
    size_t inside = 0, read = 0;

    copy_checkpoint();
    damage();
    ASSERT_OK(sidestep_checkpoint_open(damaged, &checkpoint, &err));
    ASSERT_OK(sidestep_checkpoint_info(checkpoint, &info));
    bool is_bad = damage != replace_by_pipe; /* of a pipe, no bytes are known to be wrong */
    assert_int_equal(is_bad ? info.damaged_count : info.unread_count, 1);
    assert_non_null(strstr(is_bad ? info.damage : info.unread, "file '__1_0.distcp': "));
    for (size_t t = 0; t < TENSORS; t++) {
        bool is_inside = is_in_shard(checkpoint, names[t]), is_read = reads(checkpoint, t, why);
        assert_true(is_inside || is_read);
        inside += is_inside;
        read += is_inside && is_read;
    }
    assert_true(inside >= 2 && inside <= TENSORS - 2);
    assert_int_equal(read, 0);
    assert_int_equal(expect_conversion(checkpoint, why), inside);
}

TEST(tensors_in_whole_files_are_read)
{
    static const char *const compress[] = {NULL, "zstd", "planes"};

    for (size_t i = 0; i < sizeof(compress) / sizeof(compress[0]); i++) {
        save_two(whole, compress[i]);
        expect_rest(remove_it, "it is missing");
        expect_rest(replace_by_pipe, "not a regular file");
        expect_rest(replace_by_others, "it belongs to save");
        expect_rest(replace_by_longer, "it belongs to save");
        expect_rest(replace_by_other_ranks, "it is another file of that save");
    }
}

/* The rest of a file that was cut short has the CRC32s that stock torch checks, but nothing that
 * tells it from another save's. So it is read only on request. */
TEST(the_rest_of_a_cut_file_is_read_on_request)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_convert_report report;
    OWNED_CHECKPOINT *checkpoint = NULL;
    OWNED_CHECKPOINT *made = NULL;
    size_t had = 0;

    save_two(whole, NULL);
    copy_checkpoint();
    cut_it();
    ASSERT_OK(sidestep_checkpoint_open(damaged, &checkpoint, &err));
    options.to = SIDESTEP_FORMAT_DCP;
    options.flags = SIDESTEP_CONVERT_REPLACE | SIDESTEP_CONVERT_PARTIAL;
    ASSERT_OK(sidestep_convert(damaged, target, &options, &report, &err));
    ASSERT_OK(sidestep_checkpoint_open(target, &made, &err));
    for (size_t t = 0; t < TENSORS; t++) {
        bool is_inside = is_in_shard(checkpoint, names[t]);
        assert_int_equal(reads(checkpoint, t, " bytes instead of "), !is_inside);
        if (sidestep_checkpoint_find(made, names[t]) == NULL)
            continue;
        assert_true(reads(made, t, ""));
        had += is_inside;
    }
    assert_true(had != 0);
    assert_int_not_equal(report.lost_count, 0);
    for (size_t i = 0; i < report.lost_count; i++)
        assert_non_null(strstr(report.lost[i], "the end of"));
    sidestep_convert_report_release(&report);
}

TEST(a_flipped_bit_affects_one_tensor)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_convert_report report;

    save_two(whole, NULL);
    copy_checkpoint();
    FILE *file = fopen(shard, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 5000, SEEK_SET), 0); /* in the data of its first tensor */
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 5000, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
    options.to = SIDESTEP_FORMAT_DCP;
    options.flags = SIDESTEP_CONVERT_REPLACE | SIDESTEP_CONVERT_PARTIAL;
    ASSERT_OK(sidestep_convert(damaged, target, &options, &report, &err));
    assert_int_equal(report.tensor_count, TENSORS - 1);
    assert_int_equal(report.lost_count, 1);
    assert_non_null(strstr(report.lost[0], "do not match their hash"));
    sidestep_convert_report_release(&report);
}

/* Any read fails once with EIO: what is converted is right, and the rest is listed; or nothing is
 * converted. */
TEST(reads_that_fail_are_survived)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    unsigned partly = 0, failed = 0;
    bool fired = true;

    save_two(whole, NULL);
    options.to = SIDESTEP_FORMAT_DCP;
    options.flags = SIDESTEP_CONVERT_PARTIAL;
    options.threads = 1;
    for (unsigned n = 1; fired; n++) {
        struct sidestep_convert_report report;
        char path[300];

        assert_true(n < 1000);
        snprintf(path, sizeof(path), "%s/eio-%u", scratch.path, n);
        fault_arm("posix.pread", n, false, EIO);
        enum sidestep_status status = sidestep_convert(whole, path, &options, &report, &err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        failed += status != SIDESTEP_OK;
        if (status != SIDESTEP_OK) {
            assert_int_equal(access(path, F_OK), -1);
            continue;
        }
        OWNED_CHECKPOINT *made = NULL;
        ASSERT_OK(sidestep_checkpoint_open(path, &made, &err));
        size_t there = 0;
        for (size_t t = 0; t < TENSORS; t++)
            if (sidestep_checkpoint_find(made, names[t]) != NULL)
                there += reads(made, t, "");
        assert_int_equal(report.tensor_count, there);
        assert_int_equal(there + report.object_count + report.lost_count, TENSORS + 1);
        partly += report.lost_count != 0;
        assert_true(fired || report.lost_count == 0);
        sidestep_convert_report_release(&report);
    }
    assert_true(partly != 0 && failed != 0);
}

TEST(a_conversion_without_tensors_is_an_error)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    char command[1000], path[300];

    save_two(whole, NULL);
    copy_checkpoint();
    snprintf(command, sizeof(command), "rm %s/*.distcp", damaged);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof(path), "%s/nothing", scratch.path);
    options.flags = SIDESTEP_CONVERT_PARTIAL;
    assert_int_equal(sidestep_convert(damaged, path, &options, NULL, &err), SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "it is missing"));
    assert_int_equal(access(path, F_OK), -1);
    /* Only checkpoints have hashes. */
    snprintf(path, sizeof(path), "%s/whole.safetensors", scratch.path);
    options.objects = SIDESTEP_OBJECTS_SKIP;
    ASSERT_OK(sidestep_convert(whole, path, &options, NULL, &err));
    snprintf(command, sizeof(command), "%s/again", scratch.path);
    assert_int_equal(sidestep_convert(path, command, &options, NULL, &err), SIDESTEP_EUNSUPPORTED);
}

ALL_TESTS(setup, one_rank_teardown);
