/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert_test.c -- conversions of a training state, there and back, compared bit for bit; loads
 * of other formats; and a failure of every call: then there is nothing at the destination, and the
 * source is unchanged.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_scratch.h"
#include "support/world.h"

#define SEED 5u

static char source[128];

static int set_up(void **test)
{
    struct sidestep_engine *engine = NULL;
    struct world world;

    (void)test;
    if (!scratch_make(&scratch, NULL))
        return -1;
    snprintf(source, sizeof(source), "%s/source", scratch.path);
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, SEED);
    assert_int_equal(sidestep_engine_open(&engine, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_save(engine, source, world.state, NULL, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    world_free(&world);
    return 0;
}

/* Is the whole state at ${path}? After torch.save(), the one object that is a dict is flattened, as
 * by torch's own saves of dicts: ${apart}. */
static void expect_state(const char *path, bool apart)
{
    struct sidestep_load_options options = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, true);
    assert_int_equal(sidestep_engine_open(&engine, NULL, NULL), SIDESTEP_OK);
    options.flags = apart ? SIDESTEP_LOAD_PARTIAL : 0;
    if (sidestep_load(engine, path, world.state, &options, NULL, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(world_check(&world, SEED), apart ? 1 + (int)world.count : 0);
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    world_free(&world);
}

static enum sidestep_status convert(const char *from, const char *to,
                                    const struct sidestep_convert_options *options,
                                    struct sidestep_error *err)
{
    struct sidestep_convert_report report;
    enum sidestep_status status = sidestep_convert(from, to, options, &report, err);

    sidestep_convert_report_release(&report);
    return status;
}

static void expect_convert(const char *from, const char *to,
                           const struct sidestep_convert_options *options)
{
    struct sidestep_error err = {0};

    if (convert(from, to, options, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
}

static unsigned entries_of(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (dir != NULL)
        closedir(dir);
    return count;
}

TEST(there_and_back_by_torch)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;

    expect_convert(source, scratch_path(&scratch, "a.pt"), NULL);
    expect_state(scratch_path(&scratch, "a.pt"),
                 true); /* a load of a file that is not a checkpoint */
    expect_convert(scratch_path(&scratch, "a.pt"), scratch_path(&scratch, "back"), NULL);
    expect_state(scratch_path(&scratch, "back"), true);
    options.ranks = 3;
    options.to = SIDESTEP_FORMAT_DCP;
    expect_convert(source, scratch_path(&scratch, "three"), &options);
    expect_state(scratch_path(&scratch, "three"), false);
    options.ranks = 1;
    expect_convert(scratch_path(&scratch, "three"), scratch_path(&scratch, "one"), &options);
    expect_state(scratch_path(&scratch, "one"), false);
}

/* Has any tensor of ${path} the codec ${transform}? */
static bool is_encoded(const char *path, const char *transform)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    bool found = false;

    assert_int_equal(sidestep_checkpoint_open(path, &checkpoint, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < sidestep_checkpoint_count(checkpoint); i++) {
        const struct sidestep_entry *entry = sidestep_checkpoint_entry(checkpoint, i);
        for (size_t k = 0; k < entry->chunk_count; k++)
            found |= entry->chunks[k].transform != NULL &&
                     strcmp(entry->chunks[k].transform, transform) == 0;
    }
    sidestep_checkpoint_close(&checkpoint);
    return found;
}

#define SMOOTH 100000

/* A state with a tensor that can be compressed: to save or to load. */
static struct sidestep_state_dict *smooth_state(float *values)
{
    struct sidestep_state_dict *dict = NULL;
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "smooth",
                                     .dtype = SIDESTEP_FLOAT32,
                                     .ndim = 1,
                                     .shape = (const int64_t[]){SMOOTH},
                                     .data = values};

    assert_int_equal(sidestep_state_dict_new(&dict, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_tensor(dict, &tensor, NULL), SIDESTEP_OK);
    return dict;
}

static void save_smooth(const char *path, float *values)
{
    struct sidestep_engine *engine = NULL;

    for (int i = 0; i < SMOOTH; i++)
        values[i] = 1 + (float)(i % 9973) / 9973;
    struct sidestep_state_dict *dict = smooth_state(values);
    assert_int_equal(sidestep_engine_open(&engine, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_save(engine, path, dict, NULL, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    sidestep_state_dict_free(&dict);
}

static void expect_smooth(const char *path, const float *values)
{
    static float loaded[SMOOTH];
    struct sidestep_state_dict *dict = smooth_state(loaded);
    struct sidestep_engine *engine = NULL;

    memset(loaded, 0, sizeof(loaded));
    assert_int_equal(sidestep_engine_open(&engine, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_load(engine, path, dict, NULL, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    assert_memory_equal(loaded, values, sizeof(loaded));
    sidestep_state_dict_free(&dict);
}

TEST(tensors_are_compressed)
{
    static const struct {
        const char *compress, *transform;
        uint32_t ranks;
    } ways[] = {{"zstd", "stream.zstd/1", 1},
                {"zstd:3", "stream.zstd/1", 2},
                {"planes", "sidestep.planes/1", 3},
                {"auto", "sidestep.planes/1", 1}};
    static float values[SMOOTH];
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;

    save_smooth(scratch_path(&scratch, "smooth"), values);
    options.to = SIDESTEP_FORMAT_DCP;
    options.flags = SIDESTEP_CONVERT_REPLACE;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        options.compress = ways[i].compress;
        options.ranks = ways[i].ranks;
        expect_convert(scratch_path(&scratch, "smooth"), scratch_path(&scratch, "pressed"),
                       &options);
        assert_true(is_encoded(scratch_path(&scratch, "pressed"), ways[i].transform));
        expect_smooth(scratch_path(&scratch, "pressed"), values);
    }
    options.compress = "none";
    expect_convert(scratch_path(&scratch, "pressed"), scratch_path(&scratch, "plain"), &options);
    assert_false(is_encoded(scratch_path(&scratch, "plain"), "sidestep.planes/1"));
    expect_smooth(scratch_path(&scratch, "plain"), values);
}

TEST(destinations_are_not_replaced)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;

    expect_convert(source, scratch_path(&scratch, "b.pt"), NULL);
    assert_int_equal(convert(source, scratch_path(&scratch, "b.pt"), NULL, NULL), SIDESTEP_EEXISTS);
    options.flags = SIDESTEP_CONVERT_REPLACE;
    expect_convert(source, scratch_path(&scratch, "b.pt"), &options);
    options.to = SIDESTEP_FORMAT_SAFETENSORS;
    assert_int_equal(convert(source, source, &options, NULL), SIDESTEP_EUNSUPPORTED);
    options.objects = SIDESTEP_OBJECTS_SKIP;
    options.include = (const char *[]){"*"};
    options.include_count = 1;
    options.dtype = SIDESTEP_FLOAT32;
    assert_int_not_equal(convert(source, source, &options, NULL), SIDESTEP_OK);
    expect_state(source, false);
}

static void expect_refused(const struct sidestep_convert_options *options)
{
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_convert(scratch_path(&scratch, "smooth"),
                                      scratch_path(&scratch, "files"), options, NULL, &err),
                     SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "'b.safetensors', which no conversion makes"));
}

/* A name that conversions make may be that of something else. */
TEST(only_files_are_replaced)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    static float values[SMOOTH];
    char path[128], inner[144];

    save_smooth(scratch_path(&scratch, "smooth"), values);
    options.to = SIDESTEP_FORMAT_SAFETENSORS;
    options.flags = SIDESTEP_CONVERT_REPLACE;
    expect_convert(scratch_path(&scratch, "smooth"), scratch_path(&scratch, "files"), &options);
    snprintf(path, sizeof(path), "%s", scratch_path(&scratch, "files/b.safetensors"));
    snprintf(inner, sizeof(inner), "%s/precious", path);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(mkdir(inner, 0777), 0);
    expect_refused(&options);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    expect_refused(&options);
    assert_int_equal(unlink(path), 0);
    expect_convert(scratch_path(&scratch, "smooth"), scratch_path(&scratch, "files"), &options);
}

/* Another process saves to the destination during the conversion. */
static void save_meanwhile(void *context, uint64_t done, uint64_t total)
{
    float values[SMOOTH];
    bool *saved = context;

    (void)done;
    (void)total;
    if (!*saved)
        save_smooth(scratch_path(&scratch, "shared"), values);
    *saved = true;
}

TEST(a_checkpoint_that_came_meanwhile_stays)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    static float values[SMOOTH];
    struct sidestep_error err = {0};
    bool saved = false;

    save_smooth(scratch_path(&scratch, "smooth"), values);
    options.to = SIDESTEP_FORMAT_SAFETENSORS;
    options.flags = SIDESTEP_CONVERT_REPLACE;
    expect_convert(scratch_path(&scratch, "smooth"), scratch_path(&scratch, "shared"), &options);
    unsigned before = entries_of(scratch.path);
    options.on_progress = save_meanwhile;
    options.context = &saved;
    assert_int_equal(sidestep_convert(scratch_path(&scratch, "smooth"),
                                      scratch_path(&scratch, "shared"), &options, NULL, &err),
                     SIDESTEP_EEXISTS);
    assert_true(saved);
    assert_non_null(strstr(err.message, "is not replaced"));
    expect_smooth(scratch_path(&scratch, "shared"), values);
    assert_int_equal(entries_of(scratch.path), before);
}

TEST(options_are_checked)
{
    static const char *const bad[] = {"", "s", "s/a", "s/a/b", "s/(/b/", "x/a/b/", "s/a/b/q"};
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        options.rename = &bad[i];
        options.rename_count = 1;
        assert_int_equal(convert(source, scratch_path(&scratch, "c.pt"), &options, NULL),
                         SIDESTEP_EINVAL);
    }
    options = (struct sidestep_convert_options)SIDESTEP_CONVERT_OPTIONS_INIT;
    options.flags = 1u << 20;
    assert_int_equal(convert(source, scratch_path(&scratch, "c.pt"), &options, NULL),
                     SIDESTEP_EUNSUPPORTED);
    options.flags = 0, options.ranks = 65;
    assert_int_equal(convert(source, scratch_path(&scratch, "c.pt"), &options, NULL),
                     SIDESTEP_EINVAL);
    options.ranks = 2;
    assert_int_equal(convert(source, scratch_path(&scratch, "c.pt"), &options, NULL),
                     SIDESTEP_EINVAL);
    options.ranks = 0;
    static const char *const unknown[] = {"magic",    "zstd:",           "zstd:0",
                                          "zstd:20",  "zstd:-1",         "zstd:3x",
                                          "planes:3", "zstd:4294967299", "zstd :3"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        options.compress = unknown[i];
        assert_int_equal(convert(source, scratch_path(&scratch, "c"), &options, NULL),
                         SIDESTEP_EUNSUPPORTED);
    }
    options.compress = NULL, options.dtype = SIDESTEP_INT8;
    assert_int_equal(convert(source, scratch_path(&scratch, "c"), &options, NULL),
                     SIDESTEP_EUNSUPPORTED);
    assert_int_equal(convert(NULL, scratch_path(&scratch, "c"), NULL, NULL), SIDESTEP_EINVAL);
    assert_int_equal(
        convert(scratch_path(&scratch, "none"), scratch_path(&scratch, "c"), NULL, NULL),
        SIDESTEP_ENOTFOUND);
    assert_int_equal(access(scratch_path(&scratch, "c.pt"), F_OK), -1);
}

TEST(names_are_chosen_and_changed)
{
    static const char *const include[] = {"*"}, *const rename[] = {"s/^(.)/new.\\1/", "s/a/A/g"};
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_checkpoint *before = NULL, *after = NULL;

    options.include = include, options.include_count = 1;
    options.exclude = (const char *[]){"config"}, options.exclude_count = 1;
    options.rename = rename, options.rename_count = 2;
    expect_convert(source, scratch_path(&scratch, "named.pt"), &options);
    assert_int_equal(sidestep_checkpoint_open(source, &before, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_checkpoint_open(scratch_path(&scratch, "named.pt"), &after, NULL),
                     SIDESTEP_OK);
    assert_int_equal(sidestep_checkpoint_count(before), sidestep_checkpoint_count(after) + 1);
    for (size_t i = 0; i < sidestep_checkpoint_count(before); i++) {
        char name[256];

        if (strcmp(sidestep_checkpoint_entry(before, i)->name, "config") == 0)
            continue;
        snprintf(name, sizeof(name), "new.%s", sidestep_checkpoint_entry(before, i)->name);
        for (char *c = name; *c != '\0'; c++)
            *c = *c == 'a' ? 'A' : *c;
        assert_non_null(sidestep_checkpoint_find(after, name));
    }
    sidestep_checkpoint_close(&before);
    sidestep_checkpoint_close(&after);
    const char *many[257];
    for (size_t i = 0; i < 257; i++)
        many[i] = "s/w/W/";
    options.rename = many, options.rename_count = 257;
    assert_int_equal(convert(source, scratch_path(&scratch, "d.pt"), &options, NULL),
                     SIDESTEP_EINVAL);
    options.rename = (const char *[]){"s/.*/same/"}, options.rename_count = 1;
    assert_int_equal(convert(source, scratch_path(&scratch, "d.pt"), &options, NULL),
                     SIDESTEP_EMISMATCH);
    options.include = (const char *[]){"nobody"};
    assert_int_equal(convert(source, scratch_path(&scratch, "d.pt"), &options, NULL),
                     SIDESTEP_EMISMATCH);
}

static bool cancelled;

static void cancel_it(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    assert_true(done <= total);
    cancelled = true;
}

TEST(it_can_be_cancelled)
{
    static const char *const names[] = {"cancelled.pt", "cancelled"};
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    unsigned before = entries_of(scratch.path);

    for (unsigned i = 0; i < 2; i++) {
        cancelled = true;
        options.cancel = &cancelled;
        options.on_progress = cancel_it;
        options.to = i == 0 ? SIDESTEP_FORMAT_TORCH : SIDESTEP_FORMAT_DCP;
        assert_int_equal(convert(source, scratch_path(&scratch, names[i]), &options, NULL),
                         SIDESTEP_ECANCELLED);
    }
    assert_int_equal(entries_of(scratch.path), before);
}

TEST(a_full_disk_error_says_how_much_is_missing)
{
    static const enum sidestep_format to[] = {SIDESTEP_FORMAT_TORCH, SIDESTEP_FORMAT_DCP};
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        struct sidestep_error err = {0};
        double needed = 0, left = 0;
        options.to = to[i];
        fault_arm("posix.fallocate", 1, false, ENOSPC);
        assert_int_equal(convert(source, scratch_path(&scratch, "full"), &options, &err),
                         SIDESTEP_ENOSPC);
        fault_arm("", 0, false, 0);
        const char *words = strstr(err.message, "the storage is full: the files");
        assert_non_null(words);
        words = strstr(words, "take ");
        assert_int_equal(sscanf(words, "take %lf %*s and %lf %*s were free", &needed, &left), 2);
        assert_true(needed != 0 && left != 0);
    }
}

/* Each call fails once. If the conversion succeeds nevertheless, its result is right. */
static void fail_each(const char *from, const char *name, enum sidestep_format to, uint32_t ranks)
{
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_gc_report report;
    unsigned long nth = 1, failures = 0;
    unsigned step = 1;

    options.to = to;
    options.threads = 1;
    options.ranks = ranks;
    options.compress = ranks > 1 ? "planes" : NULL;
    for (bool fired = true; fired; nth += step) {
        const char *path = scratch_path(&scratch, name);

        fault_arm("", nth, false, ENOSPC);
        struct sidestep_error err = {0};
        enum sidestep_status status = convert(from, path, &options, &err);
        const char *point = fault_fired();
        fired = point != NULL;
        fault_arm("", 0, false, 0);
        /* EUNKNOWN: everything is there, but the name may not be durable, or it could not be
         * checked. */
        if (status == SIDESTEP_OK || status == SIDESTEP_EUNKNOWN) {
            expect_state(path, true);
            struct scratch made;
            snprintf(made.path, sizeof(made.path), "%s", path);
            scratch_remove(&made);
        } else {
            if (!fired)
                fail_msg("hit %lu: %s", nth, err.message);
            if (access(path, F_OK) == 0)
                fail_msg("it is there, though hit %lu (%s) failed: %s", nth, point, err.message);
            failures++;
        }
        step = nth < 200 ? 1 : 61; /* every call of the beginning, and enough of the others */
    }
    assert_true(failures > 60);
    assert_int_equal(sidestep_gc(scratch.path, 0, &report, NULL), SIDESTEP_OK);
    sidestep_gc_report_release(&report);
    expect_state(from, from != source);
}

/* Write a file with rows [first, first + 2) of "w", as torch's HuggingFaceStorageWriter does. */
static void write_rows(const char *name, int first)
{
    char header[256], path[256];
    uint8_t length[8] = {0};
    float rows[8];

    for (int i = 0; i < 8; i++)
        rows[i] = (float)(first * 4 + i);
    length[0] = (uint8_t)snprintf(
        header, sizeof(header),
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[%d,0]}}\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}",
        first);
    snprintf(path, sizeof(path), "%s/%s", scratch_path(&scratch, "pieces"), name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, length[0], file), length[0]);
    assert_int_equal(fwrite(rows, 1, sizeof(rows), file), sizeof(rows));
    assert_int_equal(fclose(file), 0);
}

TEST(pieces_of_tensors_are_joined)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    bool fired = true;

    assert_int_equal(mkdir(scratch_path(&scratch, "pieces"), 0777), 0);
    write_rows("a.safetensors", 0);
    write_rows("b.safetensors", 2);
    for (unsigned long nth = 1; fired; nth++) {
        fault_arm("memory", nth, false, ENOMEM);
        enum sidestep_status status =
            sidestep_checkpoint_open(scratch_path(&scratch, "pieces"), &checkpoint, NULL);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        /* It is opened also where the lock of a .metadata, which is not there, cannot be taken. */
        assert_true(status == SIDESTEP_OK || (fired && status == SIDESTEP_ENOMEM));
        if (fired)
            sidestep_checkpoint_close(&checkpoint);
    }
    const struct sidestep_entry *entry = sidestep_checkpoint_find(checkpoint, "w");
    float values[16];
    assert_int_equal(sidestep_checkpoint_count(checkpoint), 1);
    assert_int_equal(entry->chunk_count, 2);
    assert_true(entry->shape[0] == 4 && entry->shape[1] == 4);
    assert_int_equal(
        sidestep_checkpoint_read_tensor(checkpoint, "w", NULL, NULL, values, sizeof(values), NULL),
        SIDESTEP_OK);
    for (int i = 0; i < 16; i++)
        assert_true(values[i] == (float)i);
    sidestep_checkpoint_close(&checkpoint);
}

TEST(every_call_may_fail)
{
    char from[128];
    unsigned before;

    snprintf(from, sizeof(from), "%s", scratch_path(&scratch, "f.pt"));
    expect_convert(source, from, NULL);
    before = entries_of(scratch.path);
    fail_each(source, "made.pt", SIDESTEP_FORMAT_TORCH, 1);
    fail_each(from, "made", SIDESTEP_FORMAT_DCP, 1);
    fail_each(from, "made", SIDESTEP_FORMAT_DCP, 2);
    assert_int_equal(entries_of(scratch.path), before);
}

TEST(numbers_of_tensors)
{
    static const float values[] = {1, -3, 0.5f, __builtin_nanf(""), __builtin_inff(), 2.5f};
    struct sidestep_tensor_stats stats[2] = {{.name = "w"}, {.name = "none"}};
    struct sidestep_engine *engine = NULL;
    struct sidestep_state_dict *state = NULL;
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_tensor t = SIDESTEP_TENSOR_INIT;

    assert_int_equal(sidestep_engine_open(&engine, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_new(&state, NULL), SIDESTEP_OK);
    t.name = "w", t.dtype = SIDESTEP_FLOAT32, t.ndim = 1, t.shape = (int64_t[]){6};
    t.data = (void *)(uintptr_t)values;
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    t.name = "none", t.shape = (int64_t[]){0};
    assert_int_equal(sidestep_state_dict_add_tensor(state, &t, NULL), SIDESTEP_OK);
    assert_int_equal(
        sidestep_save(engine, scratch_path(&scratch, "stats"), state, NULL, NULL, NULL),
        SIDESTEP_OK);
    sidestep_state_dict_free(&state);
    assert_int_equal(sidestep_engine_close(&engine, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_checkpoint_open(scratch_path(&scratch, "stats"), &checkpoint, NULL),
                     SIDESTEP_OK);
    assert_int_equal(sidestep_checkpoint_stats(checkpoint, stats, 2, NULL, NULL), SIDESTEP_OK);
    assert_int_equal(stats[0].element_count, 6);
    assert_int_equal(stats[0].nan_count, 1);
    assert_int_equal(stats[0].inf_count, 1);
    assert_true(stats[0].has_range && stats[0].has_mean);
    assert_true(stats[0].min == -3 && stats[0].max == __builtin_inf() && stats[0].mean == 0.25);
    assert_int_equal(stats[1].element_count, 0);
    assert_false(stats[1].has_range || stats[1].has_mean);
    stats[0].name = "nobody";
    assert_int_equal(sidestep_checkpoint_stats(checkpoint, stats, 1, NULL, NULL),
                     SIDESTEP_ENOTFOUND);
    sidestep_checkpoint_close(&checkpoint);
}

ALL_TESTS(set_up, scratch_teardown);
