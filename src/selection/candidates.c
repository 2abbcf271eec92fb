/* SPDX-License-Identifier: BSD-3-Clause */
/* candidates.c -- see candidates.h. */
#include "selection/candidates.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const struct retention_reason is_foreign = {
    "not-ours", "sidestep did not write it, and deletes only what it wrote ('sidestep convert "
                "--to=dcp' makes a checkpoint of sidestep's of it)"};
static const struct retention_reason is_link = {
    "not-ours", "it is a symbolic link, and nothing is deleted through one"};
static const struct retention_reason is_renamed = {
    "not-ours", "it was saved under another name, and copied or renamed (a run that resumes from "
                "it by its step adopts it)"};
static const struct retention_reason is_of_another_run = {
    "not-ours", "another run wrote it (a run that resumes from it by its step adopts it)"};
static const struct retention_reason is_of_another_program = {"not-ours",
                                                              "another program wrote it"};
static const struct retention_reason has_no_step = {"no-step", "its step is not known"};
static const struct retention_reason has_another_name = {
    "no-step", "its name is not one of the series of this run"};
static const struct retention_reason is_damaged = {"damaged", "it is damaged"};
static const struct retention_reason may_be_whole = {
    "part", "it is a part, and whether all other parts are there is not known yet"};
static const struct retention_reason is_part = {
    "part", "it is a part, and only the run that saved it knows whether it may go"};

/* Does retention decide about ${entry}? Sets its step from the name, as a series does. */
static bool is_in_scope(const struct prune *p, struct sidestep_listed *entry)
{
    uint64_t step;

    if (p->naming != NULL)
        entry->step = name_template_parse_name(p->naming, entry->name, &step) ? (int64_t)step : -1;
    return (entry->state == SIDESTEP_COMMITTED ||
            (entry->state == SIDESTEP_PART && p->is_whole != NULL)) &&
           !list_is_unreadable(entry) && entry->step >= 0 &&
           (p->is_settled == NULL || p->is_settled(p->context, entry));
}

/* Why it is not ours to delete, and how it could become ours; NULL: it is ours. */
static const struct retention_reason *find_not_ours(const struct prune *p,
                                                    const struct annotations *annotations,
                                                    const struct sidestep_listed *entry)
{
    if (entry->save_id == NULL)
        return &is_foreign;
    if (entry->is_link)
        return &is_link;
    if (annotations_find(annotations, ANNOTATION_ADOPTED, entry->name, entry->save_id) != NULL)
        return NULL;
    if (entry->is_renamed)
        return &is_renamed;
    if (p->run_id != NULL && (entry->run_id == NULL || strcmp(entry->run_id, p->run_id) != 0))
        return &is_of_another_run;
    return NULL;
}

static struct retention_item make_item(const struct prune *p, const struct sidestep_list *list,
                                       const struct sidestep_listed *entry)
{
    struct retention_item item = {.step = entry->step,
                                  .not_ours = find_not_ours(p, list_annotations(list), entry),
                                  .is_pinned = entry->is_pinned,
                                  .is_abandoned = entry->is_abandoned,
                                  .save_id = entry->save_id};

    item.origins = list_origins(list, entry->save_id, &item.origin_count);
    for (uint32_t i = 0; i < entry->metric_count; i++)
        if (strcmp(entry->metrics[i].name, p->retention->metric) == 0) {
            item.has_metric = true;
            item.metric = entry->metrics[i].value;
        }
    return item;
}

/* A part of a save that is not whole does not count.  It goes if a newer step is whole. */
static void judge_parts(const struct prune *p, struct candidates *c)
{
    bool has_newer = false;

    for (size_t i = c->count; i-- > 0;) {
        bool is_whole =
            c->entries[i].state != SIDESTEP_PART || p->is_whole(p->context, &c->entries[i]);
        if (!is_whole && has_newer)
            c->items[i].is_abandoned = true;
        else if (!is_whole)
            c->items[i].flaw = &may_be_whole;
        has_newer |= is_whole && !c->items[i].is_abandoned && c->items[i].not_ours == NULL;
    }
}

enum sidestep_status candidates_find(const struct prune *p, const struct sidestep_list *list,
                                     struct candidates *c, struct sidestep_error *err)
{
    *c = (struct candidates){
        .entries = memory_new(list->count + 1, sizeof(*c->entries)),
        .items = memory_new(list->count + 1, sizeof(*c->items)),
        .others = memory_new(list->count + 1, sizeof(*c->others)),
    };
    if (c->entries == NULL || c->items == NULL || c->others == NULL)
        return FAIL_NOMEM(err, list->count * sizeof(*c->entries));
    for (size_t i = 0; i < list->count; i++) {
        struct sidestep_listed entry = *sidestep_list_entry(list, i);
        if (is_in_scope(p, &entry))
            c->entries[c->count++] = entry;
        else
            c->others[c->other_count++] = sidestep_list_entry(list, i);
    }
    list_sort(c->entries, c->count);
    for (size_t i = 0; i < c->count; i++)
        c->items[i] = make_item(p, list, &c->entries[i]);
    if (p->is_whole != NULL)
        judge_parts(p, c);
    return SIDESTEP_OK;
}

void candidates_release(struct candidates *c)
{
    free(c->entries);
    free(c->items);
    free(c->others);
    *c = (struct candidates){0};
}

const struct retention_reason *candidates_why_other(const struct prune *p,
                                                    const struct sidestep_listed *entry)
{
    switch (entry->state) {
    case SIDESTEP_COMMITTED:
        return list_is_unreadable(entry) ? &RETENTION_UNREADABLE
               : p->naming != NULL       ? &has_another_name
                                         : &has_no_step;
    case SIDESTEP_COMPLETE:
    case SIDESTEP_INCOMPLETE:
        return &is_of_another_program;
    case SIDESTEP_DAMAGED:
    case SIDESTEP_BAD:
        return &is_damaged;
    case SIDESTEP_UNREADABLE:
        return &RETENTION_UNREADABLE;
    case SIDESTEP_PART:
        return &is_part;
    default:
        return NULL;
    }
}
