/* SPDX-License-Identifier: BSD-3-Clause */
/* save_identity.c -- makes the id of a save, and sets the group of ranks that commits it. */
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "save/save.h"

enum sidestep_status save_make_id(const struct sidestep_save *save,
                                  const struct save_series *series, uint8_t id[SAVE_ID_BYTES],
                                  struct sidestep_error *err)
{
    OWNED_BUFFER text = {0};

    if (series == NULL)
        return random_bytes(id, SAVE_ID_BYTES, err);
    buffer_printf(&text, "%s %llu %llu %s", series->run_id, (unsigned long long)series->incarnation,
                  (unsigned long long)save->saver->save_counter, save->commit.name);
    TRY(buffer_check(&text, err));
    hash_id(text.bytes, text.length, 0, id);
    return SIDESTEP_OK;
}

enum sidestep_status save_set_group(struct sidestep_save *save, const struct save_series *series,
                                    struct sidestep_error *err)
{
    const struct commit_group *group = series != NULL ? series->group : NULL;

    if (group == NULL || group->count == 0)
        return SIDESTEP_OK;
    save->group_ranks = memory_new(group->count, sizeof(*group->ranks));
    if (save->group_ranks == NULL)
        return FAIL_NOMEM(err, group->count * sizeof(*group->ranks));
    memcpy(save->group_ranks, group->ranks, group->count * sizeof(*group->ranks));
    save->commit.group = *group;
    save->commit.group.ranks = save->group_ranks;
    return SIDESTEP_OK;
}
