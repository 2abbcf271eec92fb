/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * learn.c -- step 7 of the protocol on file systems: rank 0 leaves the reason of an abort, and the
 * other ranks read the outcome of a save from storage; see files_steps.h.
 */
#include "commit/files_steps.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_marker.h"

void files_write_outcome(struct commit *commit, struct store_dir *dir,
                         const struct sidestep_error *why)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit));
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    (void)files_write_reason(commit, dir, name, why);
}

enum sidestep_status files_read_outcome(const struct commit *commit, struct store_dir *dir,
                                        struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char name[FILE_NAME_BYTES];

    if (dir == NULL)
        return SIDESTEP_OK;
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    if (commit_read_reason(dir, name, &why, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    if (why.message[0] != '\0')
        return FAIL(err, SIDESTEP_EABORTED, "%s", why.message);
    return FAIL(err, SIDESTEP_EABORTED, "rank 0 gave up save %s of '%s', and could not write why",
                commit->save_id, commit->path);
}

void files_unlink_outcome(const struct commit *commit, struct store_dir *dir)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit));
    if (dir == NULL)
        return;
    file_name_format(FILE_NAME_OUTCOME, commit->save_id, 0, 0, name);
    (void)store_unlink(dir, name, NULL);
}

/* Is .metadata of this save, by the save id at its end? Every rank asks, so it should not read all
 * of a file that lists the chunks of all ranks. False also if it cannot be read. */
static bool is_of_this_save(const struct commit *commit, struct store_dir *dir)
{
    uint8_t end[DCP_METADATA_END_BYTES];
    struct store_stat stat;
    OWNED_FILE *file = NULL;

    if (store_file_open(dir, FILE_NAME_METADATA, 0, &file, NULL) != SIDESTEP_OK ||
        store_file_stat(file, &stat, NULL) != SIDESTEP_OK)
        return false;
    size_t length = (size_t)min_u64(stat.size, sizeof(end));
    return store_file_read_at(file, end, length, stat.size - length, NULL) == SIDESTEP_OK &&
           dcp_metadata_end_has_save_id(end, length, commit->save_id);
}

/* The manifest of a part takes the place of .metadata. It is durable before the directory gets its
 * name, so ${dir} is NAME here. */
static bool is_part_of_save(const struct commit *commit, struct store_dir *dir)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, name);
    return commit->group.count != 0 && store_stat(dir, name, &stat, NULL) == SIDESTEP_OK;
}

enum commit_outcome files_learn(struct commit *commit, struct store_dir *dir,
                                struct sidestep_error *err)
{
    uint64_t identity = 0;

    /* Check the marker first. When it is gone, .metadata is durable (I4). */
    if (commit_has_marker(commit, dir))
        return COMMIT_UNDECIDED;
    if (is_part_of_save(commit, dir) || is_of_this_save(commit, dir))
        return COMMIT_COMMITTED;
    if (commit_read_identity(dir, &identity, NULL) != SIDESTEP_OK)
        return COMMIT_UNDECIDED; /* storage does not answer: ask again */
    return commit_judge_identity(commit, identity, err);
}

bool files_has_marker(const struct commit *commit)
{
    return commit_has_marker(commit, commit->dir);
}

void files_close(struct commit *commit)
{
    store_file_discard(TAKE(commit->files.marker));
}
