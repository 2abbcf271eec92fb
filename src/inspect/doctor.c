/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c -- what this machine allows: the list of findings, and the public call. */
#include "inspect/doctor.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "base/trace.h"

void doctor_add_finding(struct doctor *doctor, const char *name, enum sidestep_allowed state,
                        const char *fix, const char *format, ...)
{
    static const char *const state_names[] = {
        [SIDESTEP_ALLOWED_NO] = "no",
        [SIDESTEP_ALLOWED_PARTLY] = "partly",
        [SIDESTEP_ALLOWED_YES] = "yes",
        [SIDESTEP_ALLOWED_FACT] = "fact",
    };
    char text[512];
    va_list arguments;

    assert(doctor->count < DOCTOR_MAX_FINDINGS);
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct sidestep_finding finding = {
        .name = name,
        .state_name = state_names[state],
        .state = state,
        .text = arena_strndup(&doctor->arena, text, strlen(text)),
        .fix = fix,
    };
    doctor->no_memory = doctor->no_memory || finding.text == NULL;
    doctor->findings[doctor->count++] = finding;
}

void doctor_read_line(const char *path, char *text, size_t room)
{
    OWNED_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, room - 1) : 0;

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
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
    enum sidestep_status status = doctor_check_storage(doctor, directory, err);
    if (status == SIDESTEP_OK && doctor->no_memory)
        status = FAIL_NOMEM(err, sizeof(*doctor));
    report->count = doctor->count;
    if (status != SIDESTEP_OK) {
        sidestep_doctor_report_release(report);
        error_wrap(err, "look at what '%s' allows", directory);
    }
    return status;
}
