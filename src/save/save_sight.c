/* SPDX-License-Identifier: BSD-3-Clause */
/* save_sight.c -- at the first save to a place, the ranks find out whether all see what rank 0 made
 * there (engine/sight.h). */
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "save/save.h"
#include "save/saver.h"

/* Where rank 0 has made it: in the parent, or, in place, in NAME, which may be a mount point. */
static uint64_t hash_place(const struct commit *commit)
{
    size_t length = strlen(commit->path);

    if (!commit->in_place)
        length -= strlen(commit->name);
    return XXH3_64bits(commit->path, length) | 1;
}

static bool was_seen(const struct saver *saver, uint64_t place) ON_THREAD(CALLER)
{
    for (size_t i = 0; i < SAVER_SEEN_PLACES; i++)
        if (saver->seen[i] == place)
            return true;
    return false;
}

enum sidestep_status save_look_all(struct sidestep_save *save, struct sidestep_error *err)
{
    struct saver *saver = save->engine->saver;
    struct comm *comm = &save->engine->comm;
    uint64_t place = hash_place(&save->commit);
    bool sees = false;

    if (comm->size == 1 || was_seen(saver, place))
        return SIDESTEP_OK;
    enum sidestep_status mine = commit_look_for_begun(&save->commit, SIGHT_WAIT_NS, &sees, err);
    TRY(comm_agree_all(comm, mine, err));
    TRY(sight_agree_all(comm, sees, save->commit.path, err));
    saver->seen[saver->seen_next++ % SAVER_SEEN_PLACES] = place;
    return SIDESTEP_OK;
}
