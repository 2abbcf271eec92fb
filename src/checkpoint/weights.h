/* SPDX-License-Identifier: BSD-3-Clause */
/* weights.h -- finds out which files of a set of weights are missing, by their names:
 * "model-00001-of-00002.safetensors" is one of two. */
#ifndef CHECKPOINT_WEIGHTS_H
#define CHECKPOINT_WEIGHTS_H

#include "commit/commit.h"

/* Names for a message: the first few, and a count. Zeroed: none. */
struct weights_missing {
    size_t count;
    char text[512];
};

void weights_add_missing(struct weights_missing *missing, const char *name);
#define WEIGHTS_TEXT_BYTES 600u
/* "A is missing"; "A, B, C and 5 more are missing". */
void weights_say_missing(const struct weights_missing *missing, char text[WEIGHTS_TEXT_BYTES]);
/* Fail with EUNCOMMITTED, and name what is missing; OK if nothing is. */
enum sidestep_status weights_check_missing(const struct weights_missing *missing,
                                           struct sidestep_error *err);
/* Look at all names in a directory that end in ${suffix}. */
void weights_find_missing(const struct name_list *names, const char *suffix,
                          struct weights_missing *missing);

#endif
