/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_findings.h -- collects the findings that sidestep_doctor() reports. */
#ifndef ROOT_DOCTOR_FINDINGS_H
#define ROOT_DOCTOR_FINDINGS_H

#include "base/base.h"
#include "sidestep/sidestep_tools.h"

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
/* Add a number of bytes as a fact, with a unit that fits; ${what} follows it. */
void doctor_add_bytes(struct doctor *doctor, const char *name, uint64_t bytes, const char *what);
/* Read the beginning of a small kernel file, without the newline; "" if it cannot be read. */
void doctor_read_line(const char *path, char *text, size_t room);

/* Add the finding "writable". ${status} and ${why} are of the attempt to make something; ${can} is
 * the text if it succeeded. */
void doctor_add_writable(struct doctor *doctor, enum sidestep_status status, const char *can,
                         const struct sidestep_error *why);

#endif
