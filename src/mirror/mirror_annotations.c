/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror_annotations.c -- carries annotations of a checkpoint to the mirror; see mirror.h.
 *
 * The near level decides what is left behind. All else is only added: a pin that was set at the
 * mirror holds there, although the near level has none.
 */
#include <string.h>

#include "commit/commit.h"
#include "mirror/mirror.h"

static bool is_carried(enum annotation_kind kind)
{
    return kind != ANNOTATION_ABANDONED && /* see carry_lineage() */
           kind != ANNOTATION_RESTARTS;    /* it counts restarts from the near level */
}

/* ${a} or ${b} without a text cannot be read. */
static bool is_equal(const struct annotation *a, const struct annotation *b)
{
    if (a->kind != b->kind || (a->tag != NULL && strcmp(a->tag, b->tag) != 0))
        return false;
    return a->kind == ANNOTATION_PIN ||
           (a->text != NULL && b->text != NULL && strcmp(a->text, b->text) == 0);
}

static bool has(const struct mirror_look *m, const struct sidestep_listed *entry,
                const struct annotation *wanted)
{
    size_t count;
    const struct annotation *there =
        annotations_of_checkpoint(&m->far.annotations, entry->name, &count);

    for (size_t i = 0; i < count; i++)
        if (annotations_applies_to(&there[i], entry->save_id) && is_equal(&there[i], wanted))
            return true;
    return false;
}

static enum sidestep_status carry(struct mirror_look *m, const struct sidestep_listed *entry,
                                  const struct annotation *annotation, struct sidestep_error *err)
{
    bool is_readable = annotation->text != NULL || annotation->kind == ANNOTATION_PIN;

    if (!is_carried(annotation->kind) || !is_readable ||
        !annotations_applies_to(annotation, entry->save_id) || has(m, entry, annotation))
        return SIDESTEP_OK;
    TRY(mirror_open_to_write(&m->far, err));
    return annotations_set(m->far.annotations_dir, annotation->kind, annotation->tag, entry->name,
                           entry->save_id, annotation->text, err);
}

/* The near level may know without an annotation that it was left behind (catalog/lineage.h). */
static enum sidestep_status carry_lineage(struct mirror_look *m,
                                          const struct sidestep_listed *entry,
                                          struct sidestep_error *err)
{
    bool is_marked = annotations_find(&m->far.annotations, ANNOTATION_ABANDONED, entry->name,
                                      entry->save_id) != NULL;

    if (is_marked == entry->is_abandoned)
        return SIDESTEP_OK;
    if (is_marked)
        return annotations_remove(m->far.annotations_dir, ANNOTATION_ABANDONED, NULL, entry->name,
                                  err);
    TRY(mirror_open_to_write(&m->far, err));
    return annotations_set(m->far.annotations_dir, ANNOTATION_ABANDONED, NULL, entry->name,
                           entry->save_id, NULL, err);
}

enum sidestep_status mirror_annotate(struct mirror_look *m, const struct sidestep_listed *entry,
                                     struct sidestep_error *err)
{
    size_t count;
    const struct annotation *annotations =
        annotations_of_checkpoint(&m->near.annotations, entry->name, &count);

    TRY(carry_lineage(m, entry, err));
    for (size_t i = 0; i < count; i++)
        TRY(carry(m, entry, &annotations[i], err));
    return SIDESTEP_OK;
}
