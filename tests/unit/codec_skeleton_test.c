/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_skeleton_test.c -- a codec of a program: saves and loads use it; if it is missing or wrong,
 * the error says so. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "sidestep/sidestep_tools.h"
#include "skeletons.h"
#include "support/scratch.h"
#include "support/unit.h"

#define ELEMENTS ((int64_t)3 << 20) /* 12 MiB: parts in several windows */
#define MAX_FAULTS 2000

static struct scratch scratch;
static char path[256];
static float *values, *loaded;

static int setup(void **state)
{
    (void)state;
    values = calloc((size_t)ELEMENTS, sizeof(*values));
    loaded = malloc((size_t)ELEMENTS * sizeof(*loaded));
    if (!scratch_make(&scratch, NULL) || values == NULL || loaded == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/checkpoint", scratch.path);
    for (int64_t i = 0; i < ELEMENTS; i += 1 + i * 7919 % 101)
        values[i] = (float)i;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(values);
    free(loaded);
    scratch_remove(&scratch);
    return 0;
}

static struct sidestep_state_dict *state_of(float *data)
{
    struct sidestep_state_dict *dict = NULL;
    int64_t shape[] = {ELEMENTS};
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "mask",
                                     .dtype = SIDESTEP_FLOAT32,
                                     .ndim = 1,
                                     .shape = shape,
                                     .data = data};

    assert_int_equal(sidestep_state_dict_new(&dict, NULL), SIDESTEP_OK);
    assert_int_equal(sidestep_state_dict_add_tensor(dict, &tensor, NULL), SIDESTEP_OK);
    return dict;
}

static unsigned long failing_allocation; /* of the save; 0: none */

static enum sidestep_status save(const char *codec, struct sidestep_save_info *info,
                                 struct sidestep_error *err)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_state_dict *dict = state_of(values);
    struct sidestep_engine *engine = NULL;

    options.codec = codec;
    *info = (struct sidestep_save_info)SIDESTEP_SAVE_INFO_INIT;
    if (failing_allocation != 0)
        fault_arm("memory", failing_allocation, false, ENOMEM);
    enum sidestep_status status = sidestep_engine_open(&engine, NULL, err);
    if (status == SIDESTEP_OK)
        status = sidestep_save(engine, path, dict, &options, info, err);
    (void)!sidestep_engine_close(&engine, NULL);
    sidestep_state_dict_free(&dict);
    return status;
}

static enum sidestep_status load(struct sidestep_error *err)
{
    struct sidestep_state_dict *dict = state_of(loaded);
    struct sidestep_engine *engine = NULL;

    memset(loaded, 0xff, (size_t)ELEMENTS * sizeof(*loaded));
    enum sidestep_status status = sidestep_engine_open(&engine, NULL, err);
    if (status == SIDESTEP_OK)
        status = sidestep_load(engine, path, dict, NULL, NULL, err);
    (void)!sidestep_engine_close(&engine, NULL);
    sidestep_state_dict_free(&dict);
    return status;
}

static void assert_loads(void)
{
    struct sidestep_error err = {0};

    if (load(&err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    assert_memory_equal(loaded, values, (size_t)ELEMENTS * sizeof(*loaded));
}

/* In a child process that has the codec; this process does not have it yet. */
static void save_elsewhere(void)
{
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    int ended;

    pid_t child = fork();
    if (child == 0) {
        bool saved = sidestep_codec_register(&codec_skeleton, &err) == SIDESTEP_OK &&
                     save("skeleton.zeroes/1", &info, &err) == SIDESTEP_OK &&
                     info.stored_bytes < info.raw_bytes / 2;
        if (!saved)
            fprintf(stderr, "# %s\n", err.message);
        _exit(!saved);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

TEST(a_codec_that_is_missing_is_named)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_save_info info;
    struct sidestep_error err = {0};

    save_elsewhere();
    assert_int_equal(load(&err), SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "skeleton.zeroes/1"));
    assert_non_null(strstr(err.message, "mask"));
    assert_int_equal(save("skeleton.zeroes/1", &info, &err), SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "skeleton.zeroes/1"));
    assert_int_equal(sidestep_codec_register(&codec_skeleton, &err), SIDESTEP_OK);
    assert_loads();
    assert_int_equal(sidestep_verify(path, NULL, &report, &err), SIDESTEP_OK);
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
}

TEST(an_invalid_codec_is_refused)
{
    static const char *const wrong[] = {NULL, "", "name", "/1", "name/", "a b/1", "a/1/2", "a,b/1"};
    struct sidestep_codec codec = codec_skeleton;
    struct sidestep_error err = {0};
    char longest[66];

    assert_int_equal(sidestep_codec_register(NULL, &err), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_codec_register(&codec, &err), SIDESTEP_EEXISTS);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        codec.descriptor = wrong[i];
        assert_int_equal(sidestep_codec_register(&codec, &err), SIDESTEP_EINVAL);
    }
    memset(longest, 'x', sizeof(longest));
    memcpy(longest + 62, "/1\0", 3); /* 64 bytes: one too many */
    codec.descriptor = longest;
    assert_int_equal(sidestep_codec_register(&codec, &err), SIDESTEP_EINVAL);
    codec.descriptor = "stream.zstd/1";
    assert_int_equal(sidestep_codec_register(&codec, &err), SIDESTEP_EEXISTS);
    codec.descriptor = "test.nothing/1";
    codec.decode = NULL;
    assert_int_equal(sidestep_codec_register(&codec, &err), SIDESTEP_EINVAL);
}

/* ---- codecs that fail, or return wrong results */

enum trouble {
    NO_ENCODER,
    NO_ENCODE,
    NO_STATUS,
    TOO_MUCH,
    NO_DECODE,
    MORE,
    LESS,
    UNREAD,
    TROUBLES
};

static enum sidestep_status trouble_at(enum trouble wanted, enum trouble here,
                                       struct sidestep_error *err)
{
    if (wanted != here)
        return SIDESTEP_OK;
    snprintf(err->message, sizeof(err->message), "trouble %d", (int)here);
    return SIDESTEP_EIO;
}

static enum sidestep_status encoder_new(void *context, void **encoder, struct sidestep_error *err)
{
    *encoder = context;
    return trouble_at(*(enum trouble *)context, NO_ENCODER, err);
}

static void encoder_free(void *context, void *encoder)
{
    (void)context, (void)encoder;
}

static enum sidestep_status encode(void *context, void *encoder,
                                   const struct sidestep_codec_item *item, const void *bytes,
                                   uint64_t begin, size_t length,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_codec_output *index, struct sidestep_error *err)
{
    enum trouble trouble = *(enum trouble *)context;

    assert_ptr_equal(context, encoder);
    for (int i = 0; trouble == TOO_MUCH && i < 2; i++)
        (void)!sidestep_codec_put(output, bytes, length, err);
    if (trouble == NO_STATUS)
        return (enum sidestep_status)1000;
    if (trouble_at(trouble, NO_ENCODE, err) != SIDESTEP_OK)
        return SIDESTEP_EIO;
    return codec_skeleton.encode(NULL, NULL, item, bytes, begin, length, output, index, err);
}

static enum sidestep_status decode(void *context, struct sidestep_codec_input *input, uint64_t most,
                                   struct sidestep_codec_output *output, struct sidestep_error *err)
{
    enum trouble trouble = *(enum trouble *)context;
    const void *some;
    size_t length;

    if (trouble_at(trouble, NO_DECODE, err) != SIDESTEP_OK)
        return SIDESTEP_EIO;
    if (trouble == LESS) /* it takes everything, and returns nothing */
        while (sidestep_codec_left(input) != 0)
            if (sidestep_codec_take(input, SIZE_MAX, &some, &length, err) != SIDESTEP_OK)
                return SIDESTEP_EIO;
    enum sidestep_status status = SIDESTEP_OK;
    if (trouble != UNREAD)
        status = codec_skeleton.decode(NULL, input, most, output, err);
    for (uint64_t i = 0; trouble == MORE && status == SIDESTEP_OK && i <= most; i += 8)
        status = sidestep_codec_put(output, "too much", 8, err);
    return status;
}

static enum trouble trouble;
static const struct sidestep_codec troubled = {.struct_size = sizeof(troubled),
                                               .descriptor = "test.trouble/1",
                                               .context = &trouble,
                                               .encoder_new = encoder_new,
                                               .encoder_free = encoder_free,
                                               .encode = encode,
                                               .decode = decode};

TEST(a_codec_that_fails_fails_the_call)
{
    struct sidestep_save_info info;
    struct sidestep_error err = {0};

    assert_int_equal(sidestep_codec_register(&troubled, &err), SIDESTEP_OK);
    for (trouble = NO_ENCODER; trouble <= TOO_MUCH; trouble++) {
        enum sidestep_status expected =
            trouble == NO_STATUS || trouble == TOO_MUCH ? SIDESTEP_EINVAL : SIDESTEP_EIO;
        assert_int_equal(save("test.trouble/1", &info, &err), expected);
        assert_non_null(strstr(err.message, "test.trouble/1"));
    }
    trouble = TROUBLES; /* none */
    assert_int_equal(save("test.trouble/1", &info, &err), SIDESTEP_OK);
    assert_loads();
    for (trouble = NO_DECODE; trouble < TROUBLES; trouble++) {
        assert_int_equal(load(&err), trouble == NO_DECODE ? SIDESTEP_EIO : SIDESTEP_ECORRUPT);
        assert_non_null(strstr(err.message, "mask"));
    }
}

TEST(every_allocation_may_fail)
{
    struct sidestep_codec codec = codec_skeleton;
    struct sidestep_save_info info;
    struct sidestep_error err = {0};
    unsigned long n = 1, failed = 0;

    codec.descriptor = "test.memory/1";
    fault_arm("memory", 1, false, ENOMEM);
    assert_int_equal(sidestep_codec_register(&codec, &err), SIDESTEP_ENOMEM);
    fault_arm("", 0, false, 0);
    for (bool fired = true; fired && n < MAX_FAULTS; n += 1 + n / 8) {
        failing_allocation = n;
        enum sidestep_status status = save("skeleton.zeroes/1", &info, &err);
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        if (status != SIDESTEP_OK) {
            assert_true(fired); /* not every allocation is necessary */
            if (status == SIDESTEP_EUNKNOWN)
                assert_loads(); /* it was saved, and only the look at it afterwards failed */
            else
                assert_int_equal(status, SIDESTEP_ENOMEM);
            failed++;
        }
    }
    failing_allocation = 0;
    assert_true(failed > 10 && n < MAX_FAULTS);
    assert_loads();
}

ALL_TESTS(setup, teardown);
