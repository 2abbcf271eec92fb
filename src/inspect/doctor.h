/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.h -- the checks of sidestep_doctor(); each adds findings to one list. */
#ifndef INSPECT_DOCTOR_H
#define INSPECT_DOCTOR_H

#include "inspect/doctor_findings.h"
#include "store/store.h"

/* doctor_kernel.c: checks system calls, memory and processors. */
void doctor_check_kernel(struct doctor *doctor);
/* doctor_storage.c: checks files in ${directory}. */
enum sidestep_status doctor_check_storage(struct doctor *doctor, const char *directory,
                                          struct sidestep_error *err);
/* doctor_objects.c: objects below ${url}, which is in ${store}. */
enum sidestep_status doctor_check_objects(struct doctor *doctor, struct store *store,
                                          const char *url, struct sidestep_error *err);

#endif
