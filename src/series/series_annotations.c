/* SPDX-License-Identifier: BSD-3-Clause */
/* series_annotations.c -- keeps metrics and tags until their save starts, and writes them before
 * its commit. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "catalog/catalog.h"
#include "series/series.h"

static enum sidestep_status check_words(const struct sidestep_metric *metrics, size_t metric_count,
                                        const char *const *tags, size_t tag_count,
                                        struct sidestep_error *err)
{
    for (size_t i = 0; i < metric_count + tag_count; i++) {
        const char *word = i < metric_count ? metrics[i].name : tags[i - metric_count];
        if (!annotations_is_valid_word(word))
            return FAIL(err, SIDESTEP_EINVAL,
                        "%s '%s': it must be 1 to %u letters, digits, '_' or '-'",
                        i < metric_count ? "metric" : "tag", word != NULL ? word : "",
                        ANNOTATIONS_MAX_WORD);
    }
    return SIDESTEP_OK;
}

static bool has_metric(const struct sidestep_metric *metrics, size_t count, const char *name,
                       size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(metrics[i].name) == length && memcmp(metrics[i].name, name, length) == 0)
            return true;
    return false;
}

/* Format ${metrics}, and those of ${before} (NULL: none) with other names.  If there are no
 * ${metrics}, ${*text} is NULL. */
static enum sidestep_status format_metrics(const struct sidestep_metric *metrics, size_t count,
                                           const char *before, char **text,
                                           struct sidestep_error *err)
{
    OWNED_BUFFER buffer = {0};

    *text = NULL;
    while (before != NULL && *before != '\0') {
        size_t line = strcspn(before, "\n"), end = line + (before[line] == '\n');
        if (!has_metric(metrics, count, before, strcspn(before, " \n")))
            buffer_printf(&buffer, "%.*s\n", (int)line, before);
        before += end;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &metrics[i].value, sizeof(bits));
        buffer_printf(&buffer, "%s %016llx\n", metrics[i].name, (unsigned long long)bits);
    }
    if (count == 0)
        return SIDESTEP_OK;
    buffer_put_u8(&buffer, 0);
    TRY(buffer_check(&buffer, err));
    *text = memory_strdup((const char *)buffer.bytes);
    return *text != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, buffer.length);
}

static void free_annotations(struct series_annotations *notes)
{
    free(notes->metrics);
    name_list_release(&notes->tags);
    *notes = (struct series_annotations){0};
}

/* Keep the annotations until the save of ${name} starts. */
static enum sidestep_status keep_for_save(struct sidestep_series *series, const char *name,
                                          const struct sidestep_metric *metrics,
                                          size_t metric_count, const char *const *tags,
                                          size_t tag_count, struct sidestep_error *err)
{
    struct series_annotations *notes = &series->next_notes;
    OWNED char *text = NULL;

    if (strcmp(notes->name, name) != 0)
        free_annotations(notes);
    snprintf(notes->name, sizeof(notes->name), "%s", name);
    for (size_t i = 0; i < tag_count; i++)
        TRY(name_list_add(&notes->tags, tags[i], err));
    TRY(format_metrics(metrics, metric_count, notes->metrics, &text, err));
    if (text != NULL) {
        free(notes->metrics);
        notes->metrics = TAKE(text);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status write_annotations(struct store_dir *dir, const char *name,
                                              const char *save_id, const char *metrics,
                                              const char *const *tags, size_t tag_count,
                                              struct sidestep_error *err)
{
    if (metrics != NULL)
        TRY(annotations_set(dir, ANNOTATION_METRICS, NULL, name, save_id, metrics, err));
    for (size_t i = 0; i < tag_count; i++)
        TRY(annotations_set(dir, ANNOTATION_TAG, tags[i], name, save_id, NULL, err));
    return SIDESTEP_OK;
}

/* Find the save id of a checkpoint that exists, and write its annotations. */
static enum sidestep_status annotate_committed(struct sidestep_series *series, const char *name,
                                               const struct sidestep_metric *metrics,
                                               size_t metric_count, const char *const *tags,
                                               size_t tag_count, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    OWNED char *before = NULL;
    OWNED char *text = NULL;

    if (series_find_in_flight(series, name) != NULL)
        return FAIL(err, SIDESTEP_EBUSY, "the save of '%s' is under way", name);
    TRY(list_root(series->store, series->root, 0, &list, err));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        if (strcmp(entry->name, name) != 0)
            continue;
        TRY(list_check_readable(entry, err));
        TRY(format_metrics(entry->metrics, entry->metric_count, NULL, &before, err));
        TRY(format_metrics(metrics, metric_count, before, &text, err));
        return write_annotations(series->lease.dir, name, entry->save_id, text, tags, tag_count,
                                 err);
    }
    return FAIL(err, SIDESTEP_ENOTFOUND, "there is no '%s'", name);
}

static enum sidestep_status annotate(struct sidestep_series *series, const char *name,
                                     const struct sidestep_metric *metrics, size_t metric_count,
                                     const char *const *tags, size_t tag_count,
                                     struct sidestep_error *err)
{
    struct store_stat stat;

    TRY(check_words(metrics, metric_count, tags, tag_count, err));
    bool is_there = store_stat(series->lease.root, name, &stat, NULL) == SIDESTEP_OK;
    if (series_find_in_flight(series, name) != NULL ||
        (is_there && !series_can_replace(series, name)))
        return annotate_committed(series, name, metrics, metric_count, tags, tag_count, err);
    return keep_for_save(series, name, metrics, metric_count, tags, tag_count, err);
}

enum sidestep_status sidestep_series_note(struct sidestep_series *series, uint64_t step,
                                          const struct sidestep_metric *metrics,
                                          size_t metric_count, const char *const *tags,
                                          size_t tag_count, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];

    TRY(series_check(series, err));
    if (!series_leads(series))
        return SIDESTEP_OK;
    name_template_format_name(&series->naming, step, name);
    return WRAP(annotate(series, name, metrics, metric_count, tags, tag_count, err), err,
                "annotate '%s/%s'", series->root, name);
}

/* The entry of ${name} ("": an unused entry), or NULL. */
static struct series_pending_save *find_pending(struct sidestep_series *series, const char *name)
    REQUIRES(&series->shared.lock)
{
    for (size_t i = 0; i < ARRAY_LENGTH(series->shared.saving); i++)
        if (strcmp(series->shared.saving[i].notes.name, name) == 0)
            return &series->shared.saving[i];
    return NULL;
}

void series_pending_add(struct sidestep_series *series, const char *name)
{
    struct series_annotations next_notes = series->next_notes;

    series->next_notes = (struct series_annotations){0};
    if (strcmp(next_notes.name, name) != 0)
        free_annotations(&next_notes);
    snprintf(next_notes.name, sizeof(next_notes.name), "%s", name);
    lock_acquire(&series->shared.lock);
    while (strcmp(series->shared.deleting, name) == 0)
        lock_wait(&series->shared.lock, &series->shared.changed);
    struct series_pending_save *slot = find_pending(series, name); /* of a save that has ended */
    if (slot == NULL)
        slot = find_pending(series, "");
    assert(slot != NULL); /* there are more entries than saves that may be under way */
    free_annotations(&slot->notes);
    *slot = (struct series_pending_save){.notes = next_notes};
    lock_release(&series->shared.lock);
}

void series_pending_cancel(struct sidestep_series *series, const char *name)
{
    lock_acquire(&series->shared.lock);
    struct series_pending_save *slot = find_pending(series, name);
    assert(slot != NULL && slot->save == NULL); /* it was added, and no save has begun */
    series->next_notes = slot->notes;
    *slot = (struct series_pending_save){0};
    lock_release(&series->shared.lock);
}

void series_pending_attach(struct sidestep_series *series, const char *name,
                           const struct sidestep_save *save)
{
    lock_acquire(&series->shared.lock);
    struct series_pending_save *slot = find_pending(series, name);
    assert(slot != NULL && slot->save == NULL);
    slot->save = save;
    lock_release(&series->shared.lock);
}

void series_pending_remove(struct sidestep_series *series, const struct sidestep_save *save)
{
    lock_acquire(&series->shared.lock);
    for (size_t i = 0; i < ARRAY_LENGTH(series->shared.saving); i++) {
        struct series_pending_save *slot = &series->shared.saving[i];
        if (slot->save != save)
            continue;
        free_annotations(&slot->notes);
        *slot = (struct series_pending_save){0};
    }
    lock_release(&series->shared.lock);
}

bool series_is_pending(const struct sidestep_series *series, const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(series->shared.saving); i++)
        if (strcmp(series->shared.saving[i].notes.name, name) == 0)
            return !series->shared.saving[i].is_settled;
    return false;
}

void series_write_annotations(struct sidestep_series *series, const struct commit *commit)
{
    struct sidestep_error why = {0};
    struct series_annotations notes = {0};

    lock_acquire(&series->shared.lock);
    struct series_pending_save *slot = find_pending(series, commit->name);
    if (slot != NULL) {
        notes = slot->notes; /* the entry keeps its name, because the save is under way */
        slot->notes.metrics = NULL;
        slot->notes.tags = (struct name_list){0};
    }
    lock_release(&series->shared.lock);
    if (write_annotations(series->lease.dir, commit->name, commit->save_id, notes.metrics,
                          (const char *const *)notes.tags.names, notes.tags.count,
                          &why) != SIDESTEP_OK)
        events_emit(&series->engine->events, "note_failed",
                    json_pack("{s:o, s:o}", "name", events_text(commit->name), "message",
                              events_text(why.message)));
    free_annotations(&notes);
}

void series_free_annotations(struct sidestep_series *series)
{
    free_annotations(&series->next_notes);
    for (size_t i = 0; i < ARRAY_LENGTH(series->shared.saving); i++)
        free_annotations(&series->shared.saving[i].notes);
}
