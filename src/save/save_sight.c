/* SPDX-License-Identifier: BSD-3-Clause */
/* save_sight.c -- checks at the first save to a place that all ranks see what rank 0 made there;
 * see engine/sight.h. */
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "save/save.h"
#include "save/saver.h"

/* Hash the path of the directory in which rank 0 makes files, to a number other than 0.  It is the
 * parent, or, in place, the checkpoint itself, which may be a mount point. */
static uint64_t hash_place(const struct commit *commit)
{
    size_t length = strlen(commit->path);

    if (!commit->files.in_place)
        length -= strlen(commit->name);
    return XXH3_64bits(commit->path, length) | 1;
}

static bool was_sighted(const struct saver *saver, uint64_t place) ON_THREAD(CALLER)
{
    for (size_t i = 0; i < SAVER_SIGHTED_PLACES; i++)
        if (saver->sighted[i] == place)
            return true;
    return false;
}

enum sidestep_status save_check_sight_all(struct sidestep_save *save, struct sidestep_error *err)
{
    struct saver *saver = save->saver;
    struct comm *comm = &save->engine->comm;
    uint64_t place = hash_place(&save->commit);
    bool sees = false;

    if (comm->size == 1 || save->commit.group.count != 0 || was_sighted(saver, place))
        return SIDESTEP_OK;
    enum sidestep_status mine = commit_check_visible(&save->commit, SIGHT_WAIT_NS, &sees, err);
    TRY(comm_agree_all(comm, mine, err));
    TRY(sight_agree_all(comm, sees, save->commit.path, err));
    saver->sighted[saver->sighted_next++ % SAVER_SIGHTED_PLACES] = place;
    return SIDESTEP_OK;
}
