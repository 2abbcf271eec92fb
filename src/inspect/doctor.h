/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.h -- the checks of sidestep_doctor(); each adds findings to one list. */
#ifndef INSPECT_DOCTOR_H
#define INSPECT_DOCTOR_H

#include "root/root.h"

/* doctor_kernel.c: checks system calls, memory and processors. */
void doctor_check_kernel(struct doctor *doctor);

#endif
