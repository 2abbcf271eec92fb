/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.h -- sidestep_doctor() from the inside: who looks at what adds findings to one list. */
#ifndef INSPECT_DOCTOR_H
#define INSPECT_DOCTOR_H

#include "base/memory.h"

#define DOCTOR_MAX_FINDINGS 32u

struct doctor {
    struct arena arena;
    struct sidestep_finding findings[DOCTOR_MAX_FINDINGS];
    size_t count;
    bool no_memory;
};

/* ${name} and ${fix} are constants; ${fix} may be NULL. */
void doctor_add_finding(struct doctor *doctor, const char *name, enum sidestep_allowed state,
                        const char *fix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The beginning of a small file of the kernel's, without the newline; "" if it cannot be read. */
void doctor_read_line(const char *path, char *text, size_t room);

/* doctor_kernel.c: system calls, memory and processors. */
void doctor_check_kernel(struct doctor *doctor);
/* doctor_storage.c: files in ${directory}. */
enum sidestep_status doctor_check_storage(struct doctor *doctor, const char *directory,
                                          struct sidestep_error *err);

#endif
