/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aliases.h -- checks tensors of a state that share memory, as tied weights do.
 *
 * A load writes the saved data of each to the same memory, and the last data stays.  That is
 * correct only if all of them have equal data.
 */
#ifndef LOAD_ALIASES_H
#define LOAD_ALIASES_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

/* After ${plan} was fetched: check that each tensor in host memory has the data that was saved for
 * it.  If the hashes cannot show that, the data is read again.  EMISMATCH: a tensor has
 * other data. */
enum sidestep_status aliases_check(struct reader *reader, const struct load_plan *plan,
                                   struct workers *workers, struct sidestep_error *err);

#endif
