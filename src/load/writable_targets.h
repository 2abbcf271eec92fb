/* SPDX-License-Identifier: BSD-3-Clause */
/* writable_targets.h -- may the tensors of a load be written?  Asked before anything is read:
 * writing to memory that may not be written would end the program. */
#ifndef LOAD_WRITABLE_TARGETS_H
#define LOAD_WRITABLE_TARGETS_H

#include "plan/plan.h"

/* EINVAL names a tensor of ${plan}, in host memory, of which a page may not be written.  Where the
 * kernel does not say, all may. */
enum sidestep_status targets_check_writable(const struct load_plan *plan,
                                            struct sidestep_error *err);

#endif
