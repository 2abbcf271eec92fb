/* SPDX-License-Identifier: BSD-3-Clause */
/* writable_targets.h -- checks that the tensors of a load are writable, before anything is read:
 * writing to read-only memory would crash the program. */
#ifndef LOAD_WRITABLE_TARGETS_H
#define LOAD_WRITABLE_TARGETS_H

#include "plan/plan.h"

/* EINVAL: a tensor of ${plan} in host memory, which the message names, has a page that is not
 * writable. If the kernel does not report access rights, all pages count as writable. */
enum sidestep_status targets_check_writable(const struct load_plan *plan,
                                            struct sidestep_error *err);

#endif
