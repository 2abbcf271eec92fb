/* SPDX-License-Identifier: BSD-3-Clause */
/* records.c -- steps 5 and 6 of the protocol: encodes the manifest and .metadata; on file systems
 * (files_steps.h) also writes them, and confirms the commit. */
#include "commit/files_steps.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "commit/extra_files.h"
#include "commit/many_ranks.h"
#include "commit/small_file.h"

enum sidestep_status commit_encode_records(struct commit_contents *contents,
                                           struct buffer *metadata, struct buffer *manifest,
                                           struct sidestep_error *err)
{
    TRY(dcp_metadata_write(metadata, &contents->metadata, err));
    contents->manifest.metadata_bytes = metadata->length;
    hash_sha256(metadata->bytes, metadata->length, contents->manifest.metadata_sha256);
    return manifest_encode(&contents->manifest, manifest, err);
}

/* Write the index before the other records are made, so that they are not in memory together. */
static enum sidestep_status write_index(struct commit *commit, struct commit_contents *contents,
                                        struct sidestep_error *err)
{
    OWNED_BUFFER index = {0};

    TRY(commit_encode_index(&contents->metadata, &contents->manifest, &index, err));
    return small_file_write_record(commit->dir, FILE_NAME_INDEX, commit->save_id, &index, err);
}

/* Remove the small files that an earlier attempt gave their own names: they were sent anew. */
static enum sidestep_status unlink_placed(struct commit *commit, struct sidestep_error *err)
{
    char name[FILE_NAME_BYTES];
    struct manifest manifest;
    OWNED_BUFFER text = {0};
    OWNED_ARENA arena = {0};
    size_t unlinked = 0;

    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, name);
    enum sidestep_status status =
        small_file_read(commit->dir, name, 0, MANIFEST_MAX_BYTES, &text, NULL);
    if (status == SIDESTEP_OK)
        status = manifest_decode(text.bytes, text.length, &arena, &manifest, NULL);
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT) /* it was not durable yet */
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK)
        status = extra_files_unlink(commit->dir, &manifest, NULL, NULL, &unlinked);
    return status == SIDESTEP_OK ? SIDESTEP_OK
                                 : FAIL(err, status, "remove what an earlier attempt placed");
}

/* An earlier attempt of this save may have ended while it wrote them. They are in the directory of
 * this save alone, and not published. */
static enum sidestep_status unlink_records(struct commit *commit, struct sidestep_error *err)
{
    static const enum file_name_kind kinds[] = {FILE_NAME_INDEX, FILE_NAME_MANIFEST,
                                                FILE_NAME_METADATA_TMP};
    char name[FILE_NAME_BYTES];

    assert(!commit->files.in_place);
    TRY(unlink_placed(commit, err));
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        file_name_format(kinds[i], commit->save_id, 0, 0, name);
        (void)store_unlink(commit->dir, name, NULL); /* else creating it says what is wrong */
    }
    return SIDESTEP_OK;
}

enum sidestep_status files_write_records(struct commit *commit, struct commit_contents *contents,
                                         struct sidestep_error *err)
{
    OWNED_BUFFER metadata = {0}, manifest = {0};

    if (commit->request.resumes)
        TRY(unlink_records(commit, err));
    if (commit->group.count != 0) { /* the footers have what .metadata would say */
        TRY(manifest_encode(&contents->manifest, &manifest, err));
        return small_file_write_record(commit->dir, FILE_NAME_MANIFEST, commit->save_id, &manifest,
                                       err);
    }
    TRY(write_index(commit, contents, err));
    TRY(commit_encode_records(contents, &metadata, &manifest, err));
    TRY(small_file_write_record(commit->dir, FILE_NAME_MANIFEST, commit->save_id, &manifest, err));
    return small_file_write_record(commit->dir, FILE_NAME_METADATA_TMP, commit->save_id, &metadata,
                                   err);
}

/* The votes that threads unlink. */
struct votes {
    struct commit *commit;
    _Atomic uint32_t next;
};

static void unlink_votes(void *context)
{
    struct votes *votes = context;
    char name[FILE_NAME_BYTES];
    uint32_t i;

    while ((i = atomic_fetch_add(&votes->next, 1)) < commit_voter_count(votes->commit)) {
        file_name_format(FILE_NAME_VOTE, votes->commit->save_id, commit_voter(votes->commit, i), 0,
                         name);
        (void)store_unlink(votes->commit->dir, name, NULL);
    }
}

void files_unlink_votes(struct commit *commit)
{
    struct votes votes = {.commit = commit};
    struct workers *workers = many_ranks_workers(commit_voter_count(commit));

    assert(commit_is_coordinator(commit));
    many_ranks_run(workers, unlink_votes, &votes);
    workers_free(&workers);
}

void files_remove_marker(struct commit *commit)
{
    char name[FILE_NAME_BYTES];

    assert(commit_is_coordinator(commit) && commit->files.marker != NULL);
    file_name_format(FILE_NAME_PENDING, commit->save_id, 0, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
    store_file_discard(TAKE(commit->files.marker));
}

enum sidestep_status files_confirm(struct commit *commit, enum commit_outcome *outcome,
                                   struct sidestep_error *err)
{
    char manifest[FILE_NAME_BYTES];

    assert(commit->dir != NULL && *outcome == COMMIT_ABORTED);
    *outcome = COMMIT_UNKNOWN;
    if (store_dir_sync(commit->parent, err) != SIDESTEP_OK)
        return commit_report_unsynced(commit, err);
    file_name_format(FILE_NAME_MANIFEST, commit->save_id, 0, 0, manifest);
    TRY(commit_check_path(commit, commit->dir, commit->path, manifest, err));
    *outcome = COMMIT_COMMITTED;
    return SIDESTEP_OK;
}
