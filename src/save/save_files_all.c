/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_files_all.c -- compares the small files of all ranks, where each node has a directory for
 * itself.
 *
 * Elsewhere rank 0 compares them in the background, when it reads the footers. But nobody sees the
 * footers of all nodes. So each rank sends a footer without items to rank 0 before the save begins,
 * and rank 0 merges these by the rule of a commit.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "commit/commit.h"
#include "save/save.h"

/* What is compared in the place of the SHA-256, which takes longer and is made in the background.
 * The bytes of a file that is taken are not read yet: they count as equal on one node alone, where
 * the commit compares them. */
static void identify(const struct sidestep_save *save, const struct state_blob *blob,
                     struct extra_file *file)
{
    memset(file->sha256, 0, sizeof(file->sha256));
    if (blob == NULL || file->first_rank)
        return;
    if (blob->is_path)
        snprintf((char *)file->sha256, sizeof(file->sha256), "taken on the node of rank %u",
                 save->commit.group.ranks[0]);
    else
        hash_id(blob->bytes, blob->length, 0, file->sha256);
}

static enum sidestep_status encode_files(const struct sidestep_save *save, struct buffer *out,
                                         struct sidestep_error *err)
{
    const struct image *image = &save->slot->image;
    OWNED struct extra_file *files = memory_new(image->extra_count, sizeof(*files));
    struct footer footer = {.rank = save->commit.rank,
                            .shard_count = 1,
                            .world_size = save->commit.world_size,
                            .extra_count = image->extra_count,
                            .extras = files};

    if (files == NULL)
        return FAIL_NOMEM(err, image->extra_count * sizeof(*files));
    for (size_t i = 0; i < image->extra_count; i++) {
        files[i] = image->extras[i];
        files[i].rank = save->commit.rank;
        identify(save, image->blobs[i], &files[i]);
    }
    return footer_encode(&footer, 0, out, err);
}

static enum sidestep_status merge_files(const struct comm_parts *parts, uint32_t ranks,
                                        struct sidestep_error *err)
{
    OWNED_BY(commit_contents_release) struct commit_contents contents = {0};
    OWNED_EXTRA_MERGE merge = {0};

    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct source source =
            source_from_memory(parts->bytes + parts->offsets[rank], parts->sizes[rank]);
        struct footer footer;
        TRY(footer_read(&source, &contents.arena, &footer, NULL, err));
        TRY(extra_merge_add(&merge, &contents, &footer, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status save_agree_files_all(const struct sidestep_save *save,
                                          struct sidestep_error *err)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct comm *comm = &save->engine->comm;
    OWNED_BUFFER mine = {0};

    TRY(comm_agree_all(comm, encode_files(save, &mine, err), err));
    TRY(comm_gather_all(comm, mine.bytes, mine.length, &parts, err));
    enum sidestep_status status =
        comm->rank == 0 ? merge_files(&parts, (uint32_t)comm->size, err) : SIDESTEP_OK;
    return WRAP(comm_agree_all(comm, status, err), err, "compare the files of all ranks");
}
