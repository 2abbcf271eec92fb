/* SPDX-License-Identifier: BSD-3-Clause */
/* lines.c -- see lines.h. */
#include "engine/lines.h"

#include <string.h>

static bool is_of_run(const struct sidestep_listed *entry, const char *run_id)
{
    return entry->state == SIDESTEP_COMMITTED && entry->run_id != NULL &&
           strcmp(entry->run_id, run_id) == 0;
}

/* Those of the run of ${entries}[first], which is its first. */
static void find_ended(struct sidestep_listed *entries, size_t count, size_t first,
                       const struct marks *marks)
{
    uint64_t latest = 0;

    for (size_t i = first; i < count; i++) {
        struct sidestep_listed *entry = &entries[i];
        if (!is_of_run(entry, entries[first].run_id) || entry->is_abandoned)
            continue;
        if (entry->incarnation >= latest)
            latest = entry->incarnation;
        else if (marks_find(marks, MARKS_ADOPTED, entry->name, entry->save_id) == NULL)
            entry->is_abandoned = true;
    }
}

void lines_find_ended(struct sidestep_listed *entries, size_t count, const struct marks *marks)
{
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        if (entries[i].state != SIDESTEP_COMMITTED || entries[i].run_id == NULL)
            continue;
        while (!is_of_run(&entries[first], entries[i].run_id)) /* few runs: found soon */
            first++;
        if (first == i)
            find_ended(entries, count, i, marks);
    }
}
