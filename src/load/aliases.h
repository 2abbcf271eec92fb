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

/* The tensors of a plan in host memory. */
struct aliases {
    struct loaded_target *loaded; /* owned; by address */
    size_t count;
};
void aliases_release(struct aliases *aliases);

/* Before ${plan} is fetched: set shares_memory of its targets.  What is read straight into memory
 * is hashed there, so it must not be memory that another target writes to. */
enum sidestep_status aliases_find(const struct reader *reader, const struct load_plan *plan,
                                  struct aliases *aliases, struct sidestep_error *err);

/* After the plan was fetched: check that each tensor has the data that was saved for it.  If the
 * hashes cannot show that, the data is read again.  EMISMATCH: a tensor has other data. */
enum sidestep_status aliases_check(struct reader *reader, const struct aliases *aliases,
                                   struct workers *workers, struct sidestep_error *err);

#endif
