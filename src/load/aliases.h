/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aliases.h -- tensors of a state that share memory, as tied weights do.  A load writes there what
 * was saved of each, and what comes last stays: that is right only if all of them are the same.
 */
#ifndef LOAD_ALIASES_H
#define LOAD_ALIASES_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

/* After ${plan} was fetched: does each tensor in host memory have what was saved of it?  Where
 * hashes do not tell, what was saved is read once more.  EMISMATCH: it does not. */
enum sidestep_status aliases_check(struct reader *reader, const struct load_plan *plan,
                                   struct workers *workers, struct sidestep_error *err);

#endif
