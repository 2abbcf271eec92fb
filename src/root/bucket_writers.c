/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_writers.c -- see writers.h: finds the ranks of a save in a bucket by its shards and votes.
 * An object appears when it is complete, so a shard that is being written is not visible. */
#include "root/bucket.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Note the rank whose vote, below ".sidestep/<save id>/", is ${name}. */
static enum sidestep_status note_vote(struct writers *writers, const char *name,
                                      struct sidestep_error *err)
{
    static const enum writer_state states[] = {[OBJECT_RECORD_VOTE] = WRITER_DONE,
                                               [OBJECT_RECORD_FAILURE] = WRITER_FAILED,
                                               [OBJECT_RECORD_ALIVE] = WRITER_WRITING};
    uint32_t rank;
    enum object_record record = object_record_parse(name, &rank);

    return record < OBJECT_RECORD_VOTE ? SIDESTEP_OK
                                       : writers_note(writers, rank, states[record], NULL, err);
}

static enum sidestep_status note_shard(struct writers *writers, const struct writers_save *save,
                                       const char *name, struct sidestep_error *err)
{
    struct file_name parsed = file_name_parse(name);
    struct writer *rank = NULL;
    struct store_stat stat;

    if (parsed.kind != FILE_NAME_SHARD || strcmp(parsed.save_id, save->save_id) != 0 ||
        store_stat(save->dir, name, &stat, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    TRY(writers_note(writers, parsed.rank, WRITER_SEALED, &rank, err));
    rank->bytes += stat.size;
    rank->written += stat.size;
    return SIDESTEP_OK;
}

enum sidestep_status bucket_find_writers(struct writers *writers, const struct writers_save *save,
                                         struct sidestep_error *err)
{
    OWNED_NAMES struct name_list votes = {0};
    OWNED_DIR *dir = NULL;
    char path[FILE_NAME_BYTES];

    for (size_t i = 0; i < save->names->count; i++)
        TRY(note_shard(writers, save, save->names->names[i], err));
    snprintf(path, sizeof(path), FILE_NAME_SERIES_DIR "/%s", save->save_id);
    TRY(store_dir_open(save->dir->store, save->dir, path, &dir, err));
    TRY(name_list_read(dir, &votes, err));
    for (size_t i = 0; i < votes.count; i++)
        TRY(note_vote(writers, votes.names[i], err));
    return SIDESTEP_OK;
}
