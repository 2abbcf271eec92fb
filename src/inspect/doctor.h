/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.h -- the checks that sidestep_doctor() runs; each adds findings to one list. */
#ifndef INSPECT_DOCTOR_H
#define INSPECT_DOCTOR_H

#include "inspect/doctor_findings.h"

/* doctor_kernel.c: system calls, memory and processors. */
void doctor_check_kernel(struct doctor *doctor);
/* doctor_storage.c: files in ${directory}. */
enum sidestep_status doctor_check_storage(struct doctor *doctor, const char *directory,
                                          struct sidestep_error *err);

#endif
