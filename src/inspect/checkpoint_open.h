/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint_open.h -- the contents of struct sidestep_checkpoint. */
#ifndef INSPECT_CHECKPOINT_OPEN_H
#define INSPECT_CHECKPOINT_OPEN_H

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "sidestep/sidestep_tools.h"

struct sidestep_checkpoint {
    struct store *store; /* owned, see object/object_path.h */
    struct reader *reader;
    struct workers *workers; /* NULL until something is read */
    struct arena arena;
    struct sidestep_entry *entries; /* sorted by name */
    size_t count;
    struct sidestep_file *files; /* the extra files, as the manifest lists them */
    /* See struct sidestep_checkpoint_info. */
    const char *damage, *unread;
    size_t damaged_count, unread_count;
    enum sidestep_status unread_status;
    uint64_t unread_bytes; /* of these files, according to the manifest */
};

#endif
