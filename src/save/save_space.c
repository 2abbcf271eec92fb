/* SPDX-License-Identifier: BSD-3-Clause */
/* save_space.c -- adds how much space was needed and free to the error of a save that ran out of
 * it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "save/save.h"
#include "selection/selection.h"

/* Describe what old checkpoints in the parent directory use. */
static void describe_usage(struct sidestep_save *save, char usage[SPACE_REPORT_BYTES])
{
    const struct commit *commit = &save->commit;
    size_t length = strlen(commit->path) - strlen(commit->name);
    char root[COMMIT_PATH_BYTES];

    memcpy(root, commit->path, length);
    root[length > 1 ? length - 1 : length] = '\0';
    space_describe(commit->parent, root, commit->request.run_id, usage);
}

static uint64_t needed_bytes(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    uint64_t needed = save->shared.info.bytes_total;
    lock_release(&save->shared.lock);
    return needed;
}

/* Another rank failed.  If space is short now, add what only rank 0 can find out. */
static void explain_peer_failure(struct sidestep_save *save, struct sidestep_error *why)
{
    struct store_traits traits = {0};
    char usage[SPACE_REPORT_BYTES] = "";

    if (store_dir_traits(save->commit.dir, &traits, NULL) != SIDESTEP_OK ||
        !traits.has_free_bytes || traits.free_bytes >= needed_bytes(save))
        return;
    describe_usage(save, usage);
    if (usage[0] != '\0')
        error_wrap(why, "%s are free%s", display_bytes(traits.free_bytes).text, usage);
}

void save_explain_space(struct sidestep_save *save, struct sidestep_error *why)
{
    struct commit *commit = &save->commit;
    char usage[SPACE_REPORT_BYTES] = "", what[40];

    assert(why->status != SIDESTEP_OK);
    if (commit->dir == NULL)
        return;
    if (commit_is_coordinator(commit) && why->status == SIDESTEP_EPEER)
        explain_peer_failure(save, why);
    if (why->status != SIDESTEP_ENOSPC)
        return;
    if (commit_is_coordinator(commit))
        describe_usage(save, usage);
    snprintf(what, sizeof(what), "the files of rank %u take", commit->rank);
    space_report(why, commit->dir, what, needed_bytes(save), commit_shards_stored(commit), usage);
}
