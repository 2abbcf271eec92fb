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

#include "base/base.h"
#include "store/store.h"

enum annotation_kind {
    ANNOTATION_PIN,
    ANNOTATION_TAG,
    ANNOTATION_METRICS,
    ANNOTATION_ABANDONED,
    ANNOTATION_RESTARTS,
    ANNOTATION_ADOPTED,
};

#define ANNOTATIONS_MAX_WORD 64u    /* of a tag or the name of a metric */
#define ANNOTATIONS_MAX_TEXT 16384u /* of a mark */

struct annotation {
    enum annotation_kind kind;
    const char *name;    /* of the checkpoint */
    const char *tag;     /* ANNOTATION_TAG; else NULL */
    const char *save_id; /* "-": of a checkpoint without one; NULL: the mark cannot be read */
    const char *text;
};
struct annotations {
    struct arena arena;
    struct annotation *marks; /* by name, then by kind */
    size_t count;
};

/* A word that can be a tag or the name of a metric: letters, digits, '_' and '-', 1 to 64 of them.
 */
bool annotations_is_valid_word(const char *word);

/* All that are in ${dir} (ROOT/.sidestep); NULL: none.  One that cannot be read is noted. */
enum sidestep_status annotations_read(struct store_dir *dir, struct annotations *marks,
                                      struct sidestep_error *err);
void annotations_release(struct annotations *marks);
#define OWNED_ANNOTATIONS __attribute__((cleanup(annotations_release))) struct annotations

/* The marks of ${name}: the first, and how many. */
const struct annotation *annotations_of_checkpoint(const struct annotations *marks,
                                                   const char *name, size_t *count);
/* The mark of this kind on the checkpoint ${name} of save ${save_id} (NULL: it has none), or NULL.
 * A pin that cannot be read holds. */
const struct annotation *annotations_find(const struct annotations *marks,
                                          enum annotation_kind kind, const char *name,
                                          const char *save_id);
/* Does it speak of this save? */
bool annotations_applies_to(const struct annotation *mark, const char *save_id);

/* ANNOTATION_ADOPTED: as which step; -1: it does not say. */
int64_t annotations_adopted_step(const struct annotation *mark);
/* ANNOTATION_ABANDONED on what could not be read: which incarnation left it; else 0. */
uint64_t annotations_abandoned_by(const struct annotation *mark);

/* Make or replace one: durable when it returns OK.  ${tag} for ANNOTATION_TAG, ${text} may be NULL.
 */
enum sidestep_status annotations_set(struct store_dir *dir, enum annotation_kind kind,
                                     const char *tag, const char *name, const char *save_id,
                                     const char *text, struct sidestep_error *err);
/* Remove one, durably; OK if it is not there. */
enum sidestep_status annotations_remove(struct store_dir *dir, enum annotation_kind kind,
                                        const char *tag, const char *name,
                                        struct sidestep_error *err);
/* Is there one of this kind, whatever it says?  Also when that cannot be told. */
bool annotations_may_exist(struct store_dir *dir, enum annotation_kind kind, const char *name);
/* All of ${name}, after it was deleted. */
void annotations_remove_checkpoint(struct store_dir *dir, const struct annotations *marks,
                                   const char *name);

#endif
