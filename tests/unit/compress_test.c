/* SPDX-License-Identifier: BSD-3-Clause */
/* compress_test.c -- saves that compress items, and loads and verification of them. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "support/comm_threads.h"
#include "support/one_scratch.h"
#include "support/prng.h"

#define TENSORS 8u

/* ---- a state that can be compressed */

static const struct shape {
    const char *name;
    enum sidestep_dtype dtype;
    int64_t rows, columns;
    bool random; /* cannot be compressed */
} shapes[TENSORS] = {
    {"weight", SIDESTEP_BFLOAT16, 1536, 2048, false}, /* 6 MiB: at least two windows */
    {"large", SIDESTEP_FLOAT32, 1500, 1111, false},   /* 6.7 MB, not a multiple of anything */
    {"noise", SIDESTEP_UINT8, 1024, 5500, true},      /* large, too */
    {"half", SIDESTEP_FLOAT16, 300, 77, false},
    {"double", SIDESTEP_FLOAT64, 64, 100, false},
    {"tokens", SIDESTEP_INT64, 100, 100, false},
    {"bias", SIDESTEP_FLOAT32, 1, 10, false}, /* too small to be compressed */
    {"empty", SIDESTEP_FLOAT32, 0, 10, false},
};

struct model {
    struct sidestep_state_dict *state;
    uint8_t *data[TENSORS];
    size_t bytes[TENSORS];
};

/* Like a weight: normally distributed, with a small scale. */
static float weight(struct prng *prng)
{
    float sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (float)(prng_next(prng) >> 40) / (float)(1 << 24) - 0.5f;
    return sum * 0.05f;
}

static void fill(const struct shape *shape, struct prng *prng, uint8_t *to, size_t count)
{
    size_t size = sidestep_dtype_size(shape->dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t word = prng_next(prng);
        float f = weight(prng);
        double d = (double)f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        if (shape->dtype == SIDESTEP_FLOAT32)
            word = bits;
        else if (shape->dtype == SIDESTEP_BFLOAT16)
            word = bits >> 16;
        else if (shape->dtype == SIDESTEP_FLOAT64)
            memcpy(&word, &d, sizeof(word));
        else if (shape->dtype == SIDESTEP_FLOAT16)
            word = 0x2000 | (word & 0x83ff);
        else if (!shape->random)
            word %= 50000;
        memcpy(to + i * size, &word, size);
    }
}

/* Make rows [rank's, next rank's) of each tensor; ${seed} 0: zeroes, to load into. */
static void model_make(struct model *model, int rank, int size, uint64_t seed)
{
    struct sidestep_error err = {0};
    struct sidestep_value *value = NULL;
    struct prng prng;

    assert_int_equal(sidestep_state_dict_new(&model->state, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct shape *s = &shapes[i];
        int64_t first = s->rows * rank / size, last = s->rows * (rank + 1) / size;
        int64_t dims[2] = {s->rows, s->columns}, offsets[2] = {first, 0},
                lengths[2] = {last - first, s->columns};
        size_t row = (size_t)s->columns * sidestep_dtype_size(s->dtype);
        uint8_t *whole = calloc((size_t)s->rows * row + 1, 1);
        prng = prng_new(seed * 100 + i);
        if (seed != 0)
            fill(s, &prng, whole, (size_t)(s->rows * s->columns));
        model->bytes[i] = (size_t)(last - first) * row;
        model->data[i] = malloc(model->bytes[i] + 1);
        memcpy(model->data[i], whole + (size_t)first * row, model->bytes[i]);
        free(whole);
        struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                         .name = s->name,
                                         .dtype = s->dtype,
                                         .ndim = 2,
                                         .shape = dims,
                                         .offsets = offsets,
                                         .lengths = lengths,
                                         .data = model->data[i]};
        ASSERT_OK(sidestep_state_dict_add_tensor(model->state, &tensor, &err), err);
    }
    if (seed == 0) {
        ASSERT_OK(sidestep_state_dict_add_value(model->state, "object", NULL, 0, NULL, &err), err);
        return;
    }
    char *text = malloc(20001);
    memset(text, 'x', 20000);
    text[20000] = '\0';
    value = sidestep_value_str(text);
    assert_non_null(value);
    ASSERT_OK(sidestep_state_dict_add_value(model->state, "object", NULL, 0, value, &err), err);
    free(text);
}

static void model_free(struct model *model)
{
    sidestep_state_dict_free(&model->state);
    for (size_t i = 0; i < TENSORS; i++)
        free(model->data[i]);
}

static void assert_same(const struct model *a, const struct model *b)
{
    for (size_t i = 0; i < TENSORS; i++) {
        assert_int_equal(a->bytes[i], b->bytes[i]);
        if (memcmp(a->data[i], b->data[i], a->bytes[i]) != 0)
            fail_msg("tensor '%s' is not what was saved", shapes[i].name);
    }
    const struct sidestep_value *object = sidestep_state_dict_value(b->state, "object");
    assert_non_null(object);
}

static void assert_verifies(const char *path, bool expected)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};

    ASSERT_OK(sidestep_verify(path, NULL, &report, &err), err);
    for (size_t i = 0; i < report.problem_count && expected; i++)
        print_message("# %s: %s\n", sidestep_verify_report_problem(&report, i)->name,
                      sidestep_verify_report_problem(&report, i)->message);
    assert_int_equal(report.is_ok, expected);
    sidestep_verify_report_release(&report);
}

/* The transform of the first chunk, or NULL. */
static const char *transform_of(struct sidestep_checkpoint *checkpoint, const char *name)
{
    const struct sidestep_entry *entry = sidestep_checkpoint_find(checkpoint, name);

    assert_non_null(entry);
    return entry->chunks[0].transform;
}

static void load_and_compare(struct sidestep_engine *engine, const char *path, int rank, int size,
                             uint64_t seed)
{
    struct sidestep_error err = {0};
    struct model expected, loaded;

    model_make(&expected, rank, size, seed);
    model_make(&loaded, rank, size, 0);
    ASSERT_OK(sidestep_load(engine, path, loaded.state, NULL, NULL, &err), err);
    assert_same(&expected, &loaded);
    model_free(&expected);
    model_free(&loaded);
}

static struct sidestep_engine *open_engine(uint64_t pool_bytes, const struct sidestep_comm *comm,
                                           enum sidestep_io io)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_error err = {0};

    options.pool_bytes = pool_bytes;
    options.comm = comm;
    options.io = io;
    ASSERT_OK(sidestep_engine_open(&engine, &options, &err), err);
    return engine;
}

static void close_engine(struct sidestep_engine *engine)
{
    struct sidestep_error err = {0};

    ASSERT_OK(sidestep_engine_close(&engine, &err), err);
}

static void save_at_level(struct sidestep_engine *engine, const char *path,
                          const struct model *model, enum sidestep_compress compress,
                          uint32_t level, bool async, struct sidestep_save_info *info)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct sidestep_save *handle = NULL;

    options.compress = compress;
    options.compress_level = level;
    *info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    if (!async) {
        ASSERT_OK(sidestep_save(engine, path, model->state, &options, info, &err), err);
        return;
    }
    ASSERT_OK(sidestep_save_async(engine, path, model->state, &options, &handle, &err), err);
    ASSERT_OK(sidestep_save_finish(&handle, info, &err), err);
}

static void save(struct sidestep_engine *engine, const char *path, const struct model *model,
                 enum sidestep_compress compress, bool async, struct sidestep_save_info *info)
{
    save_at_level(engine, path, model, compress, 0, async, info);
}

static uint64_t size_of(const char *directory, const char *name)
{
    char path[512];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

/* ---- the tests */

static void check_transforms(const char *path, const char *transform)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_error err = {0};

    ASSERT_OK(sidestep_checkpoint_open(path, &checkpoint, &err), err);
    assert_string_equal(transform_of(checkpoint, "weight"), transform);
    assert_string_equal(transform_of(checkpoint, "large"), transform);
    assert_string_equal(transform_of(checkpoint, "tokens"), transform);
    assert_string_equal(transform_of(checkpoint, "object"), transform);
    assert_null(transform_of(checkpoint, "noise"));
    assert_null(transform_of(checkpoint, "bias"));
    assert_null(transform_of(checkpoint, "empty"));
    sidestep_checkpoint_close(&checkpoint);
}

TEST(compressed_tensors_load_bit_for_bit)
{
    static const struct {
        enum sidestep_compress compress;
        uint32_t level;
        const char *transform;
        double bf16; /* at least this fraction is saved */
    } cases[] = {{SIDESTEP_COMPRESS_ZSTD, 0, "stream.zstd/1", 0.15},
                 {SIDESTEP_COMPRESS_PLANES, 0, "sidestep.planes/1", 0.25},
                 {SIDESTEP_COMPRESS_ZSTD, 3, "stream.zstd/1", 0.15}};
    static const enum sidestep_io ios[] = {SIDESTEP_IO_AUTO, SIDESTEP_IO_THREADS,
                                           SIDESTEP_IO_BUFFERED};
    struct sidestep_save_info info;
    struct model model;
    char path[256];

    model_make(&model, 0, 1, 7);
    for (size_t i = 0; i < 9; i++) {
        /* With a slot for each window, and with two slots for all of them. */
        struct sidestep_engine *engine =
            open_engine(i % 2 != 0 ? (uint64_t)16 << 20 : 0, NULL, ios[i % 3]);
        save_at_level(engine, at(path, "ckpt"), &model, cases[i / 3].compress, cases[i / 3].level,
                      i != 0, &info);
        assert_int_equal(info.state, SIDESTEP_SAVE_COMMITTED);
        assert_int_equal(info.bytes_total, info.bytes_written);
        assert_true(info.stored_bytes < info.raw_bytes && info.encode_ns != 0);
        const struct sidestep_gain *gain = &info.gains[SIDESTEP_BFLOAT16];
        assert_true((double)gain->stored_bytes < (double)gain->raw_bytes * (1 - cases[i / 3].bf16));
        gain = &info.gains[SIDESTEP_UINT8];
        assert_int_equal(gain->stored_bytes, gain->raw_bytes);
        check_transforms(path, cases[i / 3].transform);
        assert_verifies(path, true);
        load_and_compare(engine, path, 0, 1, 7);
        close_engine(engine);
    }
    model_free(&model);
}

TEST(incompressible_tensors_make_the_same_file)
{
    struct sidestep_engine *engine = open_engine(0, NULL, SIDESTEP_IO_AUTO);
    struct sidestep_state_dict *noise = NULL;
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    size_t bytes = (size_t)5 << 20;
    uint8_t *data = malloc(bytes);
    char a[256], b[256];
    struct prng prng;

    prng = prng_new(3);
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t word = prng_next(&prng);
        memcpy(data + 8 * i, &word, 8);
    }
    ASSERT_OK(sidestep_state_dict_new(&noise, &err), err);
    ASSERT_OK(sidestep_state_dict_add_tensor(
                  noise,
                  &(struct sidestep_tensor){.struct_size = sizeof(struct sidestep_tensor),
                                            .name = "noise",
                                            .dtype = SIDESTEP_UINT8,
                                            .ndim = 1,
                                            .shape = (int64_t[]){(int64_t)bytes},
                                            .data = data},
                  &err),
              err);
    struct model model = {.state = noise};
    save(engine, at(a, "plain"), &model, SIDESTEP_COMPRESS_NONE, false, &info);
    assert_int_equal(info.raw_bytes, 0);
    save(engine, at(b, "pressed"), &model, SIDESTEP_COMPRESS_PLANES, false, &info);
    assert_int_equal(size_of(a, "__0_0.distcp"), size_of(b, "__0_0.distcp"));
    assert_int_equal(info.raw_bytes, info.stored_bytes);
    assert_verifies(b, true);
    sidestep_state_dict_free(&noise);
    free(data);
    close_engine(engine);
}

struct ranks {
    const char *path;
    enum sidestep_compress compress;
};

static int save_rank(struct sidestep_comm *comm, void *context)
{
    const struct ranks *ranks = context;
    struct sidestep_engine *engine = open_engine(0, comm, SIDESTEP_IO_AUTO);
    struct sidestep_save_info info;
    struct model model;

    model_make(&model, comm->rank, comm->size, 5);
    save(engine, ranks->path, &model, ranks->compress, true, &info);
    model_free(&model);
    close_engine(engine);
    return 0;
}

static int load_rank(struct sidestep_comm *comm, void *context)
{
    const struct ranks *ranks = context;
    struct sidestep_engine *engine = open_engine(0, comm, SIDESTEP_IO_AUTO);

    load_and_compare(engine, ranks->path, comm->rank, comm->size, 5);
    close_engine(engine);
    return 0;
}

TEST(ranks_load_what_others_compressed)
{
    char path[256];
    struct ranks ranks = {.path = at(path, "ranks")};

    for (int i = 0; i < 2; i++) {
        ranks.compress = i == 0 ? SIDESTEP_COMPRESS_ZSTD : SIDESTEP_COMPRESS_PLANES;
        assert_int_equal(comm_threads_run(3, save_rank, &ranks), 0);
        assert_verifies(path, true);
        assert_int_equal(comm_threads_run(2, load_rank, &ranks), 0);
    }
}

/* A rebuilt .metadata records the transforms. */
TEST(rebuild_knows_transforms)
{
    struct sidestep_engine *engine = open_engine(0, NULL, SIDESTEP_IO_AUTO);
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    struct model model;
    char path[256], metadata[512];

    model_make(&model, 0, 1, 9);
    save(engine, at(path, "lost"), &model, SIDESTEP_COMPRESS_PLANES, false, &info);
    snprintf(metadata, sizeof(metadata), "%s/.metadata", path);
    assert_int_equal(unlink(metadata), 0);
    ASSERT_OK(sidestep_rebuild(path, &err), err);
    check_transforms(path, "sidestep.planes/1");
    load_and_compare(engine, path, 0, 1, 9);
    model_free(&model);
    close_engine(engine);
}

static void flip(const char *directory, uint64_t offset)
{
    char path[512];
    unsigned char byte;

    snprintf(path, sizeof(path), "%s/__0_0.distcp", directory);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= 4;
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

TEST(a_flipped_bit_is_found)
{
    struct sidestep_engine *engine = open_engine(0, NULL, SIDESTEP_IO_AUTO);
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    struct model model, loaded;
    char path[256];

    model_make(&model, 0, 1, 11);
    save(engine, at(path, "flipped"), &model, SIDESTEP_COMPRESS_PLANES, false, &info);
    ASSERT_OK(sidestep_checkpoint_open(path, &checkpoint, &err), err);
    const struct sidestep_chunk *chunk = &sidestep_checkpoint_find(checkpoint, "large")->chunks[0];
    uint64_t offset = chunk->file_offset + chunk->file_bytes / 2;
    sidestep_checkpoint_close(&checkpoint);
    flip(path, offset);
    assert_verifies(path, false);
    model_make(&loaded, 0, 1, 0);
    assert_int_equal(sidestep_load(engine, path, loaded.state, NULL, NULL, &err),
                     SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "'large' in file '__0_0.distcp'"));
    flip(path, offset);
    assert_verifies(path, true);
    model_free(&loaded);
    model_free(&model);
    close_engine(engine);
}

/* Every allocation, and every storage call, fails once. The save fails and leaves nothing, or it is
 * whole. */
TEST(every_failure_ends_the_save)
{
    static const char *const points[] = {"memory", "posix."};
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct model model;
    char path[256];
    unsigned failed = 0;

    model_make(&model, 0, 1, 13);
    options.compress = SIDESTEP_COMPRESS_PLANES;
    for (size_t p = 0; p < 2; p++) {
        for (unsigned long n = 1; n < 400; n += 1 + n / 4) {
            struct sidestep_engine *engine = open_engine(0, NULL, SIDESTEP_IO_THREADS);
            at(path, "failing");
            fault_arm(points[p], n, false, p == 0 ? ENOMEM : EIO);
            enum sidestep_status status =
                sidestep_save(engine, path, model.state, &options, NULL, &err);
            bool fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            failed += status != SIDESTEP_OK;
            if (status == SIDESTEP_OK)
                assert_verifies(path, true);
            else
                assert_true(fired);
            close_engine(engine);
            if (!fired)
                break;
        }
    }
    assert_true(failed > 10);
    model_free(&model);
}

/* The choice depends on the measured speed of the disk: here a limit that is slower than encoding
 * on any machine. */
TEST(auto_compresses_where_the_disk_is_slow)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    struct model model;
    char path[256];

    options.write_bytes_per_second = 30000000;
    ASSERT_OK(sidestep_engine_open(&engine, &options, &err), err);
    model_make(&model, 0, 1, 17);
    save(engine, at(path, "auto"), &model, SIDESTEP_COMPRESS_AUTO, false, &info);
    assert_int_equal(info.raw_bytes, 0); /* nothing is known yet */
    save(engine, path, &model, SIDESTEP_COMPRESS_AUTO, false, &info);
    assert_true(info.stored_bytes < info.raw_bytes);
    assert_verifies(path, true);
    load_and_compare(engine, path, 0, 1, 17);
    model_free(&model);
    close_engine(engine);
}

TEST(unknown_words_are_refused)
{
    struct sidestep_engine *engine = open_engine(0, NULL, SIDESTEP_IO_AUTO);
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_error err = {0};
    struct model model;
    char path[256];

    model_make(&model, 0, 1, 0);
    options.compress = (enum sidestep_compress)99;
    assert_int_equal(sidestep_save(engine, at(path, "unknown"), model.state, &options, NULL, &err),
                     SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "unknown compress 99"));
    options.compress = SIDESTEP_COMPRESS_PLANES;
    options.compress_level = 3;
    assert_int_equal(sidestep_save(engine, path, model.state, &options, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "only zstd has levels"));
    options.compress = SIDESTEP_COMPRESS_ZSTD;
    options.compress_level = 20;
    assert_int_equal(sidestep_save(engine, path, model.state, &options, NULL, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "from 1 to 19, not 20"));
    assert_int_equal(access(path, F_OK), -1);
    model_free(&model);
    close_engine(engine);
}

ALL_TESTS(scratch_setup, scratch_teardown);
