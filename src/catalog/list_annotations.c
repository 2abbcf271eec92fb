/* SPDX-License-Identifier: BSD-3-Clause */
/* list_annotations.c -- what is noted beside the checkpoints of a root: pins, tags, metrics, and
 * what no resume takes. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "catalog/lease.h"
#include "catalog/lineage.h"
#include "catalog/listing.h"
#include "checkpoint/checkpoint.h"

/* "<name> <bits of the value>" per line (a decimal point is the locale's): how many. */
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

static enum sidestep_status take_metrics(struct listing *l, const struct annotation *mark,
                                         struct sidestep_listed *entry, struct sidestep_error *err)
{
    size_t lines = 0;

    for (const char *at = mark->text; *at != '\0'; at++)
        lines += *at == '\n';
    struct sidestep_metric *metrics = arena_new(&l->arena, lines + 1, sizeof(*metrics));
    if (metrics == NULL)
        return FAIL_NOMEM(err, lines * sizeof(*metrics));
    entry->metric_count = parse_metrics(l, mark->text, metrics);
    entry->metrics = metrics;
    return SIDESTEP_OK;
}

/* Was it left behind when nobody could read which save it is of?  What has been saved under its
 * name since then, or was copied there, is not meant. */
static bool was_left_unread(const struct listing *l, const struct annotation *mark,
                            const struct sidestep_listed *entry)
{
    return mark->kind == ANNOTATION_ABANDONED && entry->run_id != NULL &&
           strcmp(entry->run_id, l->run_id) == 0 &&
           entry->incarnation < annotations_abandoned_by(mark);
}

/* What lies beside it: pins, tags, metrics. */
enum sidestep_status listing_add_annotations(struct listing *l, struct sidestep_listed *entry,
                                             struct sidestep_error *err)
{
    size_t count;
    const struct annotation *marks = annotations_of_checkpoint(&l->marks, entry->name, &count);

    if (count == 0)
        return SIDESTEP_OK;
    const char **tags = arena_new(&l->arena, count, sizeof(*tags));
    if (tags == NULL)
        return FAIL_NOMEM(err, count * sizeof(*tags));
    entry->tags = tags;
    for (size_t i = 0; i < count; i++) {
        if (!annotations_applies_to(&marks[i], entry->save_id) &&
            !was_left_unread(l, &marks[i], entry))
            continue;
        if (marks[i].kind == ANNOTATION_TAG)
            tags[entry->tag_count++] = marks[i].tag;
        else if (marks[i].kind == ANNOTATION_METRICS)
            TRY(take_metrics(l, &marks[i], entry, err));
        else if (marks[i].kind == ANNOTATION_ADOPTED && annotations_adopted_step(&marks[i]) >= 0)
            entry->step = annotations_adopted_step(&marks[i]); /* as which it was resumed */
        entry->is_pinned |= marks[i].kind == ANNOTATION_PIN;
        entry->is_abandoned |= marks[i].kind == ANNOTATION_ABANDONED;
    }
    return SIDESTEP_OK;
}

/* The marks, and whose series it is. */
enum sidestep_status listing_read_annotations(struct listing *l, struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status =
        store_dir_open(l->store, l->root_dir, FILE_NAME_SERIES_DIR, &dir, &why);

    if (status == SIDESTEP_OK)
        status = lease_read(dir, l->run_id, &l->incarnation, &why);
    if (status != SIDESTEP_OK)
        l->run_id[0] = '\0';
    if (status == SIDESTEP_OK ||
        reader_status_is_damage(status)) /* no series, or whose it is was lost */
        status = annotations_read(dir, &l->marks, &why);
    if (status != SIDESTEP_OK) { /* nobody could tell what is pinned, and what was left behind */
        error_copy(err, &why);
        error_wrap(err, "'%s'", FILE_NAME_SERIES_DIR);
    }
    return status;
}

/* What its series would not resume from.  Under a root without one, names mean less. */
enum sidestep_status listing_mark_skipped(struct listing *l, struct sidestep_error *err)
{
    struct lineage_filter rule = {.run_id = l->incarnation > 1 ? l->run_id : NULL,
                                  .any_name = l->run_id[0] == '\0'};
    char why[LINEAGE_REASON_BYTES];

    lineage_mark_abandoned(l->entries, l->count, &l->marks);
    for (size_t i = 0; i < l->count; i++) {
        struct sidestep_listed *entry = &l->entries[i];
        if (entry->state != SIDESTEP_COMMITTED ||
            !lineage_should_skip(&rule, &l->marks, entry, why))
            continue;
        entry->reason = arena_strndup(&l->arena, why, strlen(why));
        if (entry->reason == NULL)
            return FAIL_NOMEM(err, strlen(why));
    }
    return SIDESTEP_OK;
}
