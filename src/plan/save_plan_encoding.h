/* SPDX-License-Identifier: BSD-3-Clause */
/* save_plan_encoding.h -- encodes the plans of the ranks, which save_plan_decode() decodes. */
#ifndef PLAN_SAVE_PLAN_ENCODING_H
#define PLAN_SAVE_PLAN_ENCODING_H

#include "plan/save_plan_table.h"

/* Append each rank's plan to ${out}: its claims that have a part. */
enum sidestep_status save_plan_encode(const struct plan_tables *tables, uint64_t global_digest,
                                      struct buffer *out, size_t *sizes,
                                      struct sidestep_error *err);

#endif
