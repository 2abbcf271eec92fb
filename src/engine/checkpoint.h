/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.h -- struct sidestep_checkpoint from the inside. */
#ifndef ENGINE_CHECKPOINT_H
#define ENGINE_CHECKPOINT_H

#include "base/workers.h"
#include "commit/reader.h"

struct sidestep_checkpoint {
    struct reader *reader;
    struct workers *workers; /* NULL until something is read */
    struct arena arena;
    struct sidestep_entry *entries; /* sorted by name */
    size_t count;
    const char *damage; /* of its files: see struct sidestep_checkpoint_info */
    size_t damaged_count;
};

#endif
