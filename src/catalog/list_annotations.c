/* SPDX-License-Identifier: BSD-3-Clause */
/* list_annotations.c -- adds annotations to a listing: pins, tags, metrics, and what a resume
 * skips. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "root/root.h"
#include "catalog/lineage.h"
#include "catalog/listing.h"
#include "checkpoint/checkpoint.h"

/* Parse lines "<name> <bits of the value>"; returns how many. Bits, because the decimal point
 * depends on the locale. */
static uint32_t parse_metrics(struct listing *l, const char *text, struct sidestep_metric *metrics)
{
    char name[ANNOTATIONS_MAX_WORD + 1];
    uint32_t count = 0;
    unsigned long long bits;
    int used = 0;

    while (sscanf(text, "%64s %16llx\n%n", name, &bits, &used) == 2 && used > 0) {
        uint64_t value = bits;
        metrics[count].name = arena_strndup(&l->arena, name, strlen(name));
        memcpy(&metrics[count].value, &value, sizeof(value));
        count += metrics[count].name != NULL;
        text += used;
        used = 0;
    }
    return count;
}

static enum sidestep_status set_metrics(struct listing *l, const struct annotation *annotation,
                                        struct sidestep_listed *entry, struct sidestep_error *err)
{
    size_t lines = 0;

    for (const char *at = annotation->text; *at != '\0'; at++)
        lines += *at == '\n';
    struct sidestep_metric *metrics = arena_new(&l->arena, lines + 1, sizeof(*metrics));
    if (metrics == NULL)
        return FAIL_NOMEM(err, lines * sizeof(*metrics));
    entry->metric_count = parse_metrics(l, annotation->text, metrics);
    entry->metrics = metrics;
    return SIDESTEP_OK;
}

/* Was this checkpoint abandoned while it could not be read? False for a later save under the same
 * name, and for a copy of another checkpoint. */
static bool was_abandoned_unreadable(const struct listing *l, const struct annotation *annotation,
                                     const struct sidestep_listed *entry)
{
    return annotation->kind == ANNOTATION_ABANDONED && entry->run_id != NULL &&
           strcmp(entry->run_id, l->run_id) == 0 &&
           entry->incarnation < annotations_abandoned_by(annotation);
}

enum sidestep_status listing_add_annotations(struct listing *l, struct sidestep_listed *entry,
                                             struct sidestep_error *err)
{
    size_t count;
    const struct annotation *annotations =
        annotations_of_checkpoint(&l->annotations, entry->name, &count);

    if (count == 0)
        return SIDESTEP_OK;
    const char **tags = arena_new(&l->arena, count, sizeof(*tags));
    if (tags == NULL)
        return FAIL_NOMEM(err, count * sizeof(*tags));
    entry->tags = tags;
    for (size_t i = 0; i < count; i++) {
        if (!annotations_applies_to(&annotations[i], entry->save_id) &&
            !was_abandoned_unreadable(l, &annotations[i], entry))
            continue;
        if (annotations[i].kind == ANNOTATION_TAG)
            tags[entry->tag_count++] = annotations[i].tag;
        else if (annotations[i].kind == ANNOTATION_METRICS)
            TRY(set_metrics(l, &annotations[i], entry, err));
        else if (annotations[i].kind == ANNOTATION_ADOPTED &&
                 annotations_adopted_step(&annotations[i]) >= 0)
            entry->step = annotations_adopted_step(&annotations[i]);
        entry->is_pinned |= annotations[i].kind == ANNOTATION_PIN;
        entry->is_abandoned |= annotations[i].kind == ANNOTATION_ABANDONED;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_run(struct listing *l, struct store_dir *dir,
                                     struct sidestep_error *err)
{
    struct lease_state state;

    TRY(lease_state_read(dir, &state, err));
    memcpy(l->run_id, state.run_id, sizeof(l->run_id));
    memcpy(l->record, state.keeps, sizeof(l->record));
    l->incarnation = state.incarnation;
    return SIDESTEP_OK;
}

enum sidestep_status listing_read_annotations(struct listing *l, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status =
        store_dir_open(l->store, l->root_dir, FILE_NAME_SERIES_DIR, &dir, &why);

    l->run_id[0] = l->record[0] = '\0';
    if (status == SIDESTEP_OK)
        status = read_run(l, dir, &why);
    if (status == SIDESTEP_OK ||
        reader_status_is_damage(status)) /* there is no series, or its state was lost */
        status = annotations_read(dir, &l->annotations, &why);
    if (status != SIDESTEP_OK) { /* otherwise pins and abandoned checkpoints would be unknown */
        error_copy(err, &why);
        error_wrap(err, "'%s'", FILE_NAME_SERIES_DIR);
    }
    return status;
}

/* Without a series, a renamed checkpoint is not skipped. */
enum sidestep_status listing_mark_skipped(struct listing *l, struct sidestep_error *err)
{
    struct lineage_filter rule = {.run_id = l->incarnation > 1 ? l->run_id : NULL,
                                  .any_name = l->run_id[0] == '\0'};
    char why[LINEAGE_REASON_BYTES];

    lineage_mark_abandoned(l->entries, l->count, &l->annotations);
    for (size_t i = 0; i < l->count; i++) {
        struct sidestep_listed *entry = &l->entries[i];
        if (entry->state != SIDESTEP_COMMITTED ||
            !lineage_should_skip(&rule, &l->annotations, entry, why))
            continue;
        TRY(arena_copy_text(&l->arena, why, &entry->reason, err));
    }
    return SIDESTEP_OK;
}
