/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c -- sidestep_doctor(): reports what this machine allows. */
#include "inspect/doctor.h"

#include <stdlib.h>

#include "base/base.h"
#include "object/object.h"

static enum sidestep_status check_storage(struct doctor *doctor, const char *directory,
                                          struct sidestep_error *err)
{
    OWNED_STORE *store = NULL;

    TRY(object_path_open(directory, &store, err));
    return root_probe(doctor, store, directory, err);
}

static void check_object_stores(struct doctor *doctor)
{
    struct sidestep_error why = {0};

    if (object_stores_probe(&why) == SIDESTEP_OK)
        doctor_add_finding(doctor, "object_stores", SIDESTEP_ALLOWED_YES, NULL,
                           "libcurl is there: checkpoints can be in s3://");
    else
        doctor_add_finding(doctor, "object_stores", SIDESTEP_ALLOWED_NO,
                           "Nothing, if no checkpoint is in s3://.", "%s", why.message);
}

const struct sidestep_finding *
sidestep_doctor_report_finding(const struct sidestep_doctor_report *report, size_t i)
{
    const struct sidestep_finding *entries = report->findings;

    return i < report->count ? &entries[i] : NULL;
}

void sidestep_doctor_report_release(struct sidestep_doctor_report *report)
{
    struct doctor *doctor = report->owner;

    if (doctor != NULL)
        arena_release(&doctor->arena);
    free(doctor);
    *report = (struct sidestep_doctor_report){0};
}

enum sidestep_status sidestep_doctor(const char *directory, struct sidestep_doctor_report *report,
                                     struct sidestep_error *err)
{
    if (directory == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "%s is NULL", report == NULL ? "report" : "directory");
    *report = (struct sidestep_doctor_report){0};
    trace_init();
    struct doctor *doctor = memory_new(1, sizeof(*doctor));
    if (doctor == NULL)
        return FAIL_NOMEM(err, sizeof(*doctor));
    *report = (struct sidestep_doctor_report){.findings = doctor->findings, .owner = doctor};
    doctor_check_kernel(doctor);
    check_object_stores(doctor);
    enum sidestep_status status = check_storage(doctor, directory, err);
    if (status == SIDESTEP_OK && doctor->no_memory)
        status = FAIL_NOMEM(err, sizeof(*doctor));
    report->count = doctor->count;
    if (status != SIDESTEP_OK) {
        sidestep_doctor_report_release(report);
        error_wrap(err, "check '%s'", directory);
    }
    return status;
}
