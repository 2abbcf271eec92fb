/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_test.c -- the doctor finds and reports what a machine refuses; fault points make it
 * refuse. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/priority.h"
#include "root/doctor_findings.h"
#include "sidestep/sidestep.h"
#include "support/one_scratch.h"

static const struct sidestep_finding *find(const struct sidestep_doctor_report *report,
                                           const char *name)
{
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(sidestep_doctor_report_finding(report, i)->name, name) == 0)
            return sidestep_doctor_report_finding(report, i);
    return NULL;
}

/* With all calls at ${point} failing, ${name} is "no", and its text contains ${word}. */
static void expect_no(const char *point, int sys_errno, const char *name, const char *word)
{
    struct sidestep_doctor_report report = {0};
    struct sidestep_error err = {0};

    fault_arm(point, 1, true, sys_errno);
    assert_int_equal(sidestep_doctor(scratch.path, &report, &err), SIDESTEP_OK);
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    const struct sidestep_finding *finding = find(&report, name);
    assert_non_null(finding);
    assert_int_equal(finding->state, SIDESTEP_ALLOWED_NO);
    assert_string_equal(finding->state_name, "no");
    assert_non_null(finding->fix);
    if (strstr(finding->text, word) == NULL)
        fail_msg("'%s' is not in '%s'", word, finding->text);
    assert_null(sidestep_doctor_report_finding(&report, report.count));
    sidestep_doctor_report_release(&report);
    assert_true(report.owner == NULL && sidestep_doctor_report_finding(&report, 0) == NULL);
}

TEST(refusals_are_findings)
{
    expect_no("uffd.open", EPERM, "userfaultfd", "Operation not permitted");
    expect_no("uffd.open", ENOSYS, "userfaultfd", "not offered here (old kernel, or a filter)");
    expect_no("ring.setup", ENOSYS, "io_uring", "not offered here (old kernel, or a filter)");
    expect_no("ring.setup", EPERM, "io_uring", "refused (Operation not permitted)");
    expect_no("doctor.cachestat", ENOSYS, "cachestat", "not offered here (old kernel");
    expect_no("doctor.cachestat", EPERM, "cachestat", "refused (Operation not permitted)");
    expect_no("priority.policy", EPERM, "cpu_priority", "may not be lowered");
    expect_no("priority.io", EPERM, "io_priority", "may not be lowered");
    expect_no("posix.direct", EINVAL, "direct_io", "page cache");
    expect_no("bypass.status", EACCES, "pinned_memory", "unknown, so saves copy the state");
}

TEST(object_stores_need_libcurl)
{
    struct sidestep_doctor_report report = {0};

    fault_arm("libcurl", 1, true, 0);
    assert_int_equal(sidestep_doctor(scratch.path, &report, NULL), SIDESTEP_OK);
    fault_arm("", 0, false, 0);
    const struct sidestep_finding *finding = find(&report, "object_stores");
    assert_non_null(finding);
    assert_int_equal(finding->state, SIDESTEP_ALLOWED_NO);
    assert_non_null(finding->fix);
    assert_non_null(strstr(finding->text, "libcurl")); /* also in a build without object stores */
    sidestep_doctor_report_release(&report);
}

/* Who could delete or rename checkpoints. */
TEST(rights_of_a_root_are_looked_at)
{
    static const struct {
        mode_t mode;
        enum sidestep_allowed state;
        const char *word;
    } cases[] = {
        {0755, SIDESTEP_ALLOWED_YES, "mode 0755"},
        {0775, SIDESTEP_ALLOWED_YES, "mode 0775"},
        {0777, SIDESTEP_ALLOWED_PARTLY, "mode 0777: "},
        {02707, SIDESTEP_ALLOWED_PARTLY, "delete"},
        {01777, SIDESTEP_ALLOWED_FACT, "only what is theirs"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sidestep_doctor_report report = {0};
        assert_int_equal(chmod(scratch.path, cases[i].mode), 0);
        assert_int_equal(sidestep_doctor(scratch.path, &report, NULL), SIDESTEP_OK);
        const struct sidestep_finding *finding = find(&report, "rights");
        assert_non_null(finding);
        assert_int_equal(finding->state, cases[i].state);
        assert_non_null(strstr(finding->text, cases[i].word));
        assert_int_equal(finding->fix != NULL, finding->state == SIDESTEP_ALLOWED_PARTLY);
        sidestep_doctor_report_release(&report);
    }
    assert_int_equal(chmod(scratch.path, 0700), 0);
}

TEST(memory_may_be_short)
{
    unsigned long nth = 1;

    for (;; nth++) {
        struct sidestep_doctor_report report = {0};
        struct sidestep_error err = {0};
        fault_arm("memory", nth, false, ENOMEM);
        enum sidestep_status status = sidestep_doctor(scratch.path, &report, &err);
        const char *fired = fault_fired();
        fault_arm("", 0, false, 0);
        if (fired == NULL) {
            assert_int_equal(status, SIDESTEP_OK);
            sidestep_doctor_report_release(&report);
            break;
        }
        assert_int_equal(status, SIDESTEP_ENOMEM);
        assert_null(report.owner);
        assert_int_equal(err.status, SIDESTEP_ENOMEM);
    }
    assert_true(nth > 3);
}

TEST(arguments_are_checked)
{
    struct sidestep_doctor_report report = {0};

    assert_int_equal(sidestep_doctor(NULL, &report, NULL), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_doctor(scratch.path, NULL, NULL), SIDESTEP_EINVAL);
    assert_int_equal(sidestep_doctor("build/none", &report, NULL), SIDESTEP_ENOTFOUND);
}

/* A thread that could not be raised again is not lowered to the idle class. */
TEST(priorities_follow_rights)
{
    struct priority_rights none = {0};

    fault_arm("priority.policy", 2, true, EPERM);
    struct priority_rights rights = priority_probe();
    fault_arm("", 0, false, 0);
    assert_true(rights.idle);
    assert_false(rights.raise);
    fault_arm("thread.start", 1, true, EAGAIN);
    rights = priority_probe();
    fault_arm("", 0, false, 0);
    assert_memory_equal(&rights, &none, sizeof(none));
}

/* As in a container that was started without its GPUs. */
TEST(a_driver_that_is_hidden)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);

    if (driver != NULL) {
        dlclose(driver);
        print_message("skipped: this machine shows its driver\n");
        skip();
    }
    expect_no("cuda.module", 0, "cuda", "libcuda.so.1 is not found here");
}

TEST(sizes_have_a_unit_that_fits)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B free"},           {1023, "1023 B free"},        {1024, "1.0 KiB free"},
        {4194304, "4.0 MiB free"}, {1073741823, "1.0 GiB free"}, {UINT64_MAX, "16.0 EiB free"}};
    struct doctor doctor = {0};

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        doctor_add_bytes(&doctor, "free_space", cases[i].bytes, " free");
        assert_string_equal(doctor.findings[i].text, cases[i].text);
    }
    arena_release(&doctor.arena);
}

ALL_TESTS(scratch_setup, scratch_teardown);
