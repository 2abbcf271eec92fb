/* SPDX-License-Identifier: BSD-3-Clause */
/* model_mutant.c -- the steps of the protocol, each left out once; see model.h. */
#include "model.h"

#include "base/owned.h"

const struct mutant model_mutants[] = {
    {"shard-fsync", MUTANT_FILE_SYNC, PHASE_OTHER, 0, NAMES_PART, -1, "fresh", NULL},
};
const size_t model_mutant_count = ARRAY_LENGTH(model_mutants);
