/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * annotations.h -- annotations of the checkpoints of a series: pins, tags, metrics and lineage.
 *
 * Each annotation is a small durable file in ROOT/.sidestep. Every fact has a file of its own, so
 * that a command that pins does not conflict with a trainer that adds a metric. An annotation
 * contains the save id of its checkpoint, so it does not apply to a checkpoint of another save with
 * the same name.
 *
 *   pin.NAME         keep the checkpoint, whatever the retention says
 *   tag.TAG.NAME     a word that the user chose
 *   metrics.NAME     lines "<name> <value>"
 *   abandoned.NAME   a run that resumed from an older checkpoint left this one behind. If it could
 *                    not be read at that time: "incarnation <n>", which left it behind
 *   restarts.NAME    how many runs started here and failed
 *   adopted.NAME     a run resumed from it, although it is of another run or was saved under
 * another name: "step <n>", the step that it was resumed as
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

#define ANNOTATIONS_MAX_WORD 64u    /* of a tag or a metric name, in bytes */
#define ANNOTATIONS_MAX_TEXT 16384u /* of an annotation, in bytes */

struct annotation {
    enum annotation_kind kind;
    const char *name;    /* of the checkpoint */
    const char *tag;     /* ANNOTATION_TAG; otherwise NULL */
    const char *save_id; /* "-": the checkpoint has none; NULL: the annotation cannot be read */
    const char *text;
};
struct annotations {
    struct arena arena;
    struct annotation *items; /* sorted by name, kind and tag */
    size_t count;
};

/* Is ${file} the name of an annotation? */
bool annotations_is_file(const char *file);
/* Is ${word} valid as a tag or a metric name: 1 to 64 letters, digits, '_' and '-'? */
bool annotations_is_valid_word(const char *word);

/* Read all annotations in ${dir} (ROOT/.sidestep; NULL: there are none). One that cannot be read is
 * added without a save id. */
enum sidestep_status annotations_read(struct store_dir *dir, struct annotations *annotations,
                                      struct sidestep_error *err);
void annotations_release(struct annotations *annotations);
#define OWNED_ANNOTATIONS __attribute__((cleanup(annotations_release))) struct annotations

/* Get the annotations of checkpoint ${name}: returns the first one, and sets ${*count}. */
const struct annotation *annotations_of_checkpoint(const struct annotations *annotations,
                                                   const char *name, size_t *count);
/* Find the annotation of this kind on checkpoint ${name} of save ${save_id} (NULL: it has none), or
 * NULL. A pin that cannot be read applies. */
const struct annotation *annotations_find(const struct annotations *annotations,
                                          enum annotation_kind kind, const char *name,
                                          const char *save_id);
/* Does the annotation apply to this save? */
bool annotations_applies_to(const struct annotation *annotation, const char *save_id);

/* ANNOTATION_ADOPTED: the step that it was resumed as; -1: not given. */
int64_t annotations_adopted_step(const struct annotation *annotation);
/* ANNOTATION_ABANDONED on an unreadable checkpoint: the incarnation that abandoned it; otherwise
 * 0. */
uint64_t annotations_abandoned_by(const struct annotation *annotation);

/* Make or replace an annotation. It is durable on return with OK. ${tag} is for ANNOTATION_TAG.
 * ${text} may be NULL. */
enum sidestep_status annotations_set(struct store_dir *dir, enum annotation_kind kind,
                                     const char *tag, const char *name, const char *save_id,
                                     const char *text, struct sidestep_error *err);
/* Remove an annotation durably. OK if it does not exist. */
enum sidestep_status annotations_remove(struct store_dir *dir, enum annotation_kind kind,
                                        const char *tag, const char *name,
                                        struct sidestep_error *err);
/* Does ${name} have an annotation of this kind, whatever its content? Also true if storage does not
 * answer. */
bool annotations_may_exist(struct store_dir *dir, enum annotation_kind kind, const char *name);
/* Remove all annotations of ${name}, after it was deleted. Best effort. */
void annotations_remove_checkpoint(struct store_dir *dir, const struct annotations *annotations,
                                   const char *name);

#endif
