/* SPDX-License-Identifier: BSD-3-Clause */
/* random.h -- gets random bytes from getrandom(2). */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include "base/error.h"

enum sidestep_status random_bytes(void *to, size_t bytes, struct sidestep_error *err);

#endif
