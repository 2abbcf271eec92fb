/* SPDX-License-Identifier: BSD-3-Clause */
/* writers.h -- the ranks of a save that is under way, as another process sees them. */
#ifndef ROOT_WRITERS_H
#define ROOT_WRITERS_H

#include "commit/commit.h"

enum writer_state { WRITER_WRITING, WRITER_SEALED, WRITER_DONE, WRITER_FAILED };

/* What has been seen of a rank. */
struct writer {
    uint32_t rank;
    enum writer_state state;
    uint64_t bytes;
    uint64_t written;
};

struct writers {
    struct writer *seen;
    size_t count, capacity;
};

/* The save whose ranks are looked for. */
struct writers_of {
    struct store_dir *dir;         /* its directory, or the checkpoint that it replaces in place */
    const char *path;              /* of ${dir} */
    const struct name_list *names; /* in ${dir} */
    const char *save_id;
    bool in_place;
};

void writers_release(struct writers *writers);
/* Note that ${rank} has come at least to ${state}. ${*out} is valid until the next call; NULL: it
 * is not wanted. */
enum sidestep_status writers_note(struct writers *writers, uint32_t rank, enum writer_state state,
                                  struct writer **out, struct sidestep_error *err);

#endif
