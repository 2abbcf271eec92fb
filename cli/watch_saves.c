/* SPDX-License-Identifier: BSD-3-Clause */
/* watch_saves.c -- what `sidestep watch` knows of the saves that it has seen.  When one has
 * disappeared, its outcome is known: its checkpoint exists or not. */
#include "watch.h"

#include "memory.h"

#include <string.h>

struct cli_watched *cli_watch_find(struct cli_watch_root *root,
                                   const struct sidestep_saving *saving)
{
    const char *shown = saving->name != NULL ? saving->name : saving->path;
    struct cli_watched *w = root->saves;

    while (w != NULL && strcmp(w->save_id, saving->save_id) != 0)
        w = w->next;
    if (w == NULL) {
        w = cli_memory_alloc(sizeof(*w));
        *w = (struct cli_watched){.step = saving->step,
                                  .name = cli_memory_copy(shown, strlen(shown)),
                                  .rate = -1,
                                  .next = root->saves};
        snprintf(w->save_id, sizeof(w->save_id), "%s", saving->save_id);
        root->saves = w;
    }
    return w;
}

uint64_t cli_watch_total_bytes(const struct sidestep_saving *saving)
{
    bool all_begun = saving->expected_ranks != 0 && saving->rank_count >= saving->expected_ranks;

    return all_begun || saving->bytes > saving->expected_bytes ? saving->bytes
                                                               : saving->expected_bytes;
}

double cli_watch_time_left(const struct cli_watched *w, const struct sidestep_saving *saving)
{
    uint64_t total = cli_watch_total_bytes(saving);

    if (w->rate <= 0 || saving->is_dead || total < saving->written_bytes)
        return -1;
    return (double)(total - saving->written_bytes) / w->rate;
}

enum cli_watch_outcome cli_watch_outcome(const struct cli_watched *w,
                                         const struct sidestep_list *root,
                                         const struct sidestep_listed **found)
{
    enum cli_watch_outcome outcome = CLI_WATCH_ABORTED;

    for (size_t i = 0; i < root->count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(root, i);

        if (entry->save_id != NULL && strcmp(entry->save_id, w->save_id) == 0) {
            *found = entry;
            return CLI_WATCH_COMMITTED;
        }
        if (entry->save_id == NULL && entry->state == SIDESTEP_UNREADABLE &&
            strcmp(entry->name, w->name) == 0)
            outcome = CLI_WATCH_UNKNOWN;
    }
    return outcome;
}
