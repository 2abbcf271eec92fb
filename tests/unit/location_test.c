/* SPDX-License-Identifier: BSD-3-Clause */
/* location_test.c -- tells URLs from paths; each public function with a path refuses a URL. */
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "store/location.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define URL "gs://bucket/x"

static const struct {
    const char *path;
    size_t scheme; /* bytes; 0: a path */
} shapes[] = {
    {"s3://bucket/x", 2}, {"S3://bucket/x", 2},
    {"gs://", 2},         {"file:///x", 4},
    {"a+b-c.2://x", 7},   {"hdfs://host:9000/x/../y", 4},
    {"a:b", 0},           {"c:/x", 0},
    {"s3:", 0},           {"s3", 0},
    {"./s3:/x", 0},       {"s3b:/x", 0},
    {"://x", 0},          {"3s://x", 0},
    {"+s://x", 0},        {"s_3://x", 0},
    {"s 3://x", 0},       {"\xc3\xa4://x", 0},
    {"./s3://x", 0},      {"/s3://x", 0},
    {"x/s3://x", 0},      {"", 0},
};

TEST(a_url_has_a_scheme)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const char *path = shapes[i].path;
        bool is_known = shapes[i].scheme == 0 || strncmp(path, "s3://", 5) == 0;
        enum sidestep_status want = !is_known         ? SIDESTEP_EUNSUPPORTED
                                    : path[0] == '\0' ? SIDESTEP_EINVAL
                                                      : SIDESTEP_OK;
        if (location_scheme(path) != shapes[i].scheme)
            fail_msg("'%s': %zu", path, location_scheme(path));
        assert_int_equal(sidestep_check_path(path, &err), want);
    }
    assert_int_equal(sidestep_check_path(NULL, &err), SIDESTEP_EINVAL);
}

TEST(the_refusal_says_what_to_give)
{
    assert_int_equal(sidestep_check_path(URL, &err), SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "'" URL "' is a URL"));
    assert_non_null(strstr(err.message, "mount other storage"));
    assert_non_null(strstr(err.message, "'./" URL "'"));
    assert_int_equal(sidestep_check_path("file:///x", &err), SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "without 'file://'"));
    assert_int_equal(location_scheme("s3:/x"), 0);
    assert_int_equal(sidestep_check_path("s3:/x", &err), SIDESTEP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "lost a slash"));
}

/* Runs in an empty working directory, in which nothing may appear. */
static void refused(enum sidestep_status status, const char *function)
{
    if (status != SIDESTEP_EUNSUPPORTED || strstr(err.message, "is a URL") == NULL)
        fail_msg("%s: %s", function, status != SIDESTEP_OK ? err.message : "it took the URL");
    if (access("gs:", F_OK) == 0)
        fail_msg("%s: it has made the directory 'gs:'", function);
    err = (struct sidestep_error){0};
}
#define REFUSED(call) refused(call, #call)

static void of_an_engine(void)
{
    struct sidestep_save *save = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_engine *other = NULL;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    options.event_path = URL;
    REFUSED(sidestep_engine_open(&other, &options, &err));
    REFUSED(sidestep_save(engine, URL, world.state, NULL, NULL, &err));
    REFUSED(sidestep_save_async(engine, URL, world.state, NULL, &save, &err));
    REFUSED(sidestep_load(engine, URL, world.state, NULL, NULL, &err));
    REFUSED(sidestep_series_open(engine, URL, NULL, &series, &err));
}

static void of_who_looks(void)
{
    struct sidestep_list list;
    struct sidestep_saving_list saving;
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_verify_report verified;
    struct sidestep_diff_report differences;
    struct sidestep_doctor_report doctor;
    char *latest = NULL;

    REFUSED(sidestep_list_root(URL, &list, &err));
    REFUSED(sidestep_list_saving(URL, &saving, &err));
    REFUSED(find_newest(URL, SIDESTEP_VERIFY_STRUCTURE, &latest, &err));
    REFUSED(sidestep_checkpoint_open(URL, &checkpoint, &err));
    REFUSED(sidestep_verify(URL, NULL, &verified, &err));
    REFUSED(sidestep_diff(URL, "good", NULL, &differences, &err));
    REFUSED(sidestep_diff("good", URL, NULL, &differences, &err));
    REFUSED(sidestep_doctor(URL, &doctor, &err));
}

static void of_who_changes(void)
{
    struct sidestep_retention keep = SIDESTEP_RETENTION_INIT;
    struct sidestep_convert_options options = SIDESTEP_CONVERT_OPTIONS_INIT;
    struct sidestep_convert_report converted = {0};
    struct sidestep_gc_report report;

    options.objects = SIDESTEP_OBJECTS_SKIP;
    keep.keep_last = 1;
    REFUSED(sidestep_gc(URL, 0, &report, &err));
    REFUSED(sidestep_prune(URL, &keep, 0, &report, &err));
    REFUSED(sidestep_pin(URL, true, &err));
    REFUSED(sidestep_tag(URL, "best", true, &err));
    REFUSED(sidestep_rebuild(URL, &err));
    REFUSED(sidestep_delete(URL, &err));
    REFUSED(sidestep_convert(URL, "out", &options, &converted, &err));
    REFUSED(sidestep_convert("good", URL, &options, &converted, &err));
    REFUSED(sidestep_convert("good", URL ".npz", &options, &converted, &err));
    options.mapping = URL;
    REFUSED(sidestep_convert("good", "out", &options, &converted, &err));
}

static char before[4096]; /* the working directory */

static int setup(void **state)
{
    return getcwd(before, sizeof(before)) != NULL && one_rank_setup(state) == 0
               ? chdir(scratch.path)
               : -1;
}

static int teardown(void **state)
{
    return chdir(before) == 0 ? one_rank_teardown(state) : -1;
}

TEST_WITH(every_function_refuses_one, setup, teardown)
{
    ASSERT_OK(sidestep_save(engine, "good", world.state, NULL, NULL, &err));
    of_an_engine();
    of_who_looks();
    of_who_changes();
    /* The control: a path with the same name is accepted. */
    ASSERT_OK(sidestep_pin("./good", true, &err));
    assert_int_equal(sidestep_pin("./" URL, true, &err), SIDESTEP_ENOTFOUND);
}
