/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_copy.h -- makes the copy of a checkpoint exist on an object store: whole, or not at all.
 *
 * A copy is a save (object_form.h) whose files are known beforehand, under their own names, and
 * whose save id is that of the original. So it has a marker, a lease, and the same conditional put
 * of .metadata as a commit. It differs in three ways:
 *
 *  - Two copies of one checkpoint to one name write the same bytes to the same keys. So both may
 *    succeed. They have one marker, too. Only the one that made it takes it back, by its tag, and
 *    only as long as the other one has not put its own over it.
 *  - A copy that fails or is killed deletes nothing: another one of the same checkpoint may just
 *    publish the same objects. The next one goes on from there, and a sweep deletes what is left
 *    when it is dead.
 *  - A file that was saved on a file system may have a name without a save id. Other checkpoints
 *    have files of this name, too (O2 does not hold). So such a copy is refused if another one is
 * at work (it checks that after it has put its marker, so that one of two notices), and if the
 *    checkpoint that it would replace has a file of the same name.
 */
#ifndef COMMIT_OBJECT_COPY_H
#define COMMIT_OBJECT_COPY_H

#include "commit/commit.h"

/* What is copied. Constant, and outlives the commit. */
struct object_copied {
    const char *const *names; /* of the data files */
    const uint64_t *sizes;
    size_t count;
    const struct buffer *metadata; /* the content of .metadata */
    const struct buffer *manifest; /* empty: there is none */
    const struct buffer *index;    /* of chunks; empty: there is none */
    const char *replaces;          /* the save id of what alone is replaced; NULL: any */
    bool replace;
};

/* Begin a copy to ${url}. ${id}: the save id of the original, or another one that only copies of it
 * have. EEXISTS: NAME holds another checkpoint, which must not or cannot be replaced. ELOCKED:
 * another process writes there. The files go to commit->dir. Call object_copy_end() in any case. */
enum sidestep_status object_copy_begin(struct commit *commit, const char *url,
                                       const uint8_t id[SAVE_ID_BYTES],
                                       const struct object_copied *copied,
                                       struct sidestep_error *err);
/* Check that all files are there, put the index and the manifest, and commit. */
enum sidestep_status object_copy_publish(struct commit *commit, const struct object_copied *copied,
                                         struct sidestep_error *err);
/* End the copy. What was not published stays. */
void object_copy_end(struct commit *commit);

#endif
