/* SPDX-License-Identifier: BSD-3-Clause */
/* lineage.c -- finds checkpoints of abandoned lineages; see lineage.h. */
#include "catalog/lineage.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static size_t prefix_length(const char *name)
{
    size_t length = strlen(name);

    while (length > 0 && isdigit((unsigned char)name[length - 1]))
        length--;
    return length;
}

/* Is it a checkpoint of a series that still has its original name? */
static bool has_lineage(const struct sidestep_listed *entry)
{
    return (entry->state == SIDESTEP_COMMITTED || entry->state == SIDESTEP_PART) &&
           entry->run_id != NULL && !entry->is_renamed;
}

static bool is_same_naming(const struct sidestep_listed *a, const struct sidestep_listed *b)
{
    size_t length = prefix_length(a->name);

    if (a->naming != NULL || b->naming != NULL)
        return a->naming != NULL && b->naming != NULL && strcmp(a->naming, b->naming) == 0;
    return length == prefix_length(b->name) && memcmp(a->name, b->name, length) == 0;
}

/* Are both of the same lineage? Two namings under one root are two series that take turns. */
static bool is_same_lineage(const struct sidestep_listed *a, const struct sidestep_listed *b)
{
    return has_lineage(a) && strcmp(a->run_id, b->run_id) == 0 && is_same_naming(a, b);
}

/* Mark the abandoned checkpoints in the lineage whose first one is ${entries}[first]. */
static void mark_abandoned(struct sidestep_listed *entries, size_t count, size_t first,
                           const struct annotations *annotations)
{
    uint64_t latest = 0;

    for (size_t i = first; i < count; i++) {
        struct sidestep_listed *entry = &entries[i];
        if (!is_same_lineage(entry, &entries[first]) || entry->is_abandoned)
            continue;
        if (entry->incarnation >= latest)
            latest = entry->incarnation;
        else if (annotations_find(annotations, ANNOTATION_ADOPTED, entry->name, entry->save_id) ==
                 NULL)
            entry->is_abandoned = true;
    }
}

void lineage_mark_abandoned(struct sidestep_listed *entries, size_t count,
                            const struct annotations *annotations)
{
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        if (!has_lineage(&entries[i]))
            continue;
        while (!is_same_lineage(&entries[first], &entries[i])) /* fast, because lineages are few */
            first++;
        if (first == i)
            mark_abandoned(entries, count, i, annotations);
    }
}

bool lineage_should_skip(const struct lineage_filter *rule, const struct annotations *annotations,
                         const struct sidestep_listed *entry, char why[LINEAGE_REASON_BYTES])
{
    bool is_adopted =
        annotations_find(annotations, ANNOTATION_ADOPTED, entry->name, entry->save_id) != NULL;
    bool is_of_another =
        entry->run_id != NULL && rule->run_id != NULL && strcmp(entry->run_id, rule->run_id) != 0;

    if (entry->is_abandoned)
        snprintf(why, LINEAGE_REASON_BYTES, "was left behind by a resume from an older checkpoint");
    else if (is_of_another && !is_adopted)
        snprintf(why, LINEAGE_REASON_BYTES, "is of another run (%s)", entry->run_id);
    else if (entry->is_renamed && !rule->any_name && !is_adopted)
        snprintf(why, LINEAGE_REASON_BYTES, "was saved under another name, and copied or renamed");
    else
        return false;
    return true;
}
