/* SPDX-License-Identifier: BSD-3-Clause */
/* writers.h -- finds how far the ranks of a save are, as another process sees them. */
#ifndef ROOT_WRITERS_H
#define ROOT_WRITERS_H

#include "commit/commit.h"

enum writer_state { WRITER_WRITING, WRITER_SEALED, WRITER_DONE, WRITER_FAILED };

/* The files and votes of a rank that were found. */
struct writer {
    uint32_t rank;
    enum writer_state state;
    uint64_t bytes;   /* of its files */
    uint64_t written; /* of them, without holes */
};

struct writers {
    struct writer *seen;
    size_t count, capacity;
};

/* A save, whose ranks are to be found. */
struct writers_save {
    struct store_dir *dir;         /* its directory, or the checkpoint that it replaces in place */
    const char *path;              /* of ${dir} */
    const struct name_list *names; /* in ${dir} */
    const char *save_id;
    bool in_place;
};

void writers_release(struct writers *writers);
/* Note that ${rank} has reached ${state}. Sets ${*out}, unless ${out} is NULL, to the rank; it is
 * valid until the next call. */
enum sidestep_status writers_note(struct writers *writers, uint32_t rank, enum writer_state state,
                                  struct writer **out, struct sidestep_error *err);

#endif
