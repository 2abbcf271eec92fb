/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_findings.c -- see doctor_findings.h. */
#include "root/doctor_findings.h"

#include <assert.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "model/model.h"

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

void doctor_add_bytes(struct doctor *doctor, const char *name, uint64_t bytes, const char *what)
{
    doctor_add_finding(doctor, name, SIDESTEP_ALLOWED_FACT, NULL, "%s%s", display_bytes(bytes).text,
                       what);
}

void doctor_read_line(const char *path, char *text, size_t room)
{
    OWNED_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, room - 1) : 0;

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

void doctor_add_writable(struct doctor *doctor, enum sidestep_status status, const char *can,
                         const struct sidestep_error *why)
{
    bool is_writable = status == SIDESTEP_OK;

    doctor_add_finding(doctor, "writable", is_writable ? SIDESTEP_ALLOWED_YES : SIDESTEP_ALLOWED_NO,
                       is_writable ? NULL : "Save somewhere else, or change the rights.", "%s",
                       is_writable ? can : why->message);
}
