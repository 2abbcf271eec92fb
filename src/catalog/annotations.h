/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * annotations.h -- what is known of the checkpoints of a series beside them: small durable files in
 * ROOT/.sidestep, one per fact, so that a command that pins does not meet a trainer that notes a
 * metric.  A mark carries the save id of what it is about: a checkpoint of another save under the
 * same name is not meant.
 *
 *   pin.NAME         stays, whatever the retention says
 *   tag.TAG.NAME     a word of the user's
 *   metrics.NAME     lines "<name> <value>"
 *   abandoned.NAME   newer than a step that was resumed from: of a line that ended; of what could
 *                    not be read then, "incarnation <n>": the one that left it
 *   restarts.NAME    how many runs began here and came to nothing
 *   adopted.NAME     of another run, or saved under another name, but resumed from: "step <n>", as
 *                    which it was
 */
#ifndef CATALOG_ANNOTATIONS_H
#define CATALOG_ANNOTATIONS_H

#include "base/memory.h"
#include "store/store.h"

enum marks_kind {
    MARKS_PIN,
    MARKS_TAG,
    MARKS_METRICS,
    MARKS_ABANDONED,
    MARKS_RESTARTS,
    MARKS_ADOPTED,
};

#define MARKS_MAX_WORD 64u    /* of a tag or the name of a metric */
#define MARKS_MAX_TEXT 16384u /* of a mark */

struct mark {
    enum marks_kind kind;
    const char *name;    /* of the checkpoint */
    const char *tag;     /* MARKS_TAG; else NULL */
    const char *save_id; /* "-": of a checkpoint without one; NULL: the mark cannot be read */
    const char *text;
};
struct marks {
    struct arena arena;
    struct mark *marks; /* by name, then by kind */
    size_t count;
};

/* A word that can be a tag or the name of a metric: letters, digits, '_' and '-', 1 to 64 of them.
 */
bool marks_is_word(const char *word);

/* All that are in ${dir} (ROOT/.sidestep); NULL: none.  One that cannot be read is noted. */
enum sidestep_status marks_read(struct store_dir *dir, struct marks *marks,
                                struct sidestep_error *err);
void marks_release(struct marks *marks);
#define OWNED_MARKS __attribute__((cleanup(marks_release))) struct marks

/* The marks of ${name}: the first, and how many. */
const struct mark *marks_of(const struct marks *marks, const char *name, size_t *count);
/* The mark of this kind on the checkpoint ${name} of save ${save_id} (NULL: it has none), or NULL.
 * A pin that cannot be read holds. */
const struct mark *marks_find(const struct marks *marks, enum marks_kind kind, const char *name,
                              const char *save_id);
/* Does it speak of this save? */
bool marks_applies(const struct mark *mark, const char *save_id);

/* MARKS_ADOPTED: as which step; -1: it does not say. */
int64_t marks_step_of(const struct mark *mark);
/* MARKS_ABANDONED on what could not be read: which incarnation left it; else 0. */
uint64_t marks_incarnation_of(const struct mark *mark);

/* Make or replace one: durable when it returns OK.  ${tag} for MARKS_TAG, ${text} may be NULL. */
enum sidestep_status marks_set(struct store_dir *dir, enum marks_kind kind, const char *tag,
                               const char *name, const char *save_id, const char *text,
                               struct sidestep_error *err);
/* Remove one, durably; OK if it is not there. */
enum sidestep_status marks_unset(struct store_dir *dir, enum marks_kind kind, const char *tag,
                                 const char *name, struct sidestep_error *err);
/* Is there one of this kind, whatever it says?  Also when that cannot be told. */
bool marks_may_have(struct store_dir *dir, enum marks_kind kind, const char *name);
/* All of ${name}, after it was deleted. */
void marks_forget(struct store_dir *dir, const struct marks *marks, const char *name);

#endif
