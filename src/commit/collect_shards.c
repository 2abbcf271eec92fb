/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collect_shards.c -- reads and checks every shard; see collect_shards.h.
 *
 * Rank 0 trusts only what it reads back. It opens each shard once, and checks through that
 * descriptor the size, the ids, the footer and the layout digest.
 *
 * The threads read the shards of a few ranks at a time. Then this thread merges them, in the order
 * of ranks, so that the same footers make the same `.metadata`. With many ranks it copies what is
 * needed, and drops the footers. With few ranks it keeps the footers, which takes half of the time.
 */
#include "commit/collect_shards.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit_metadata.h"
#include "commit/extra_files.h"
#include "commit/form.h"
#include "commit/many_ranks.h"
#include "commit/small_file.h"

/* A shard that was read. */
struct shard_file {
    char name[FILE_NAME_BYTES];
    struct footer footer;
    struct manifest_file row; /* of the manifest, without a name */
    struct store_stat stat;
};
/* The shards of a rank. */
struct rank_files {
    struct arena arena; /* the footers */
    struct shard_file *files;
    size_t count, capacity;
    enum sidestep_status status;
    struct sidestep_error why;
};
/* The ranks that are read at the same time. */
struct batch {
    struct commit *commit;
    struct rank_files ranks[MANY_RANKS_THREADS];
    uint32_t first, count; /* among the voters */
    _Atomic uint32_t next;
};

/* The properties that identify a shared file. */
static struct commit_shared_file shared_file(const struct footer *footer,
                                             const struct manifest_file *row,
                                             const struct store_stat *stat)
{
    struct commit_shared_file file = {.rank = footer->rank,
                                      .shard = footer->shard,
                                      .bytes = row->bytes,
                                      .device = stat->device,
                                      .inode = stat->inode};

    memcpy(file.origin, row->origin, sizeof(file.origin));
    memcpy(file.footer_sha256, row->footer_sha256, sizeof(file.footer_sha256));
    return file;
}

/* Is it the same file as in the checkpoint that was committed last? */
static bool was_committed(const struct commit *commit, const struct commit_shared_file *file)
{
    for (size_t i = 0; commit->request.shared != NULL && i < commit->request.shared->count; i++) {
        const struct commit_shared_file *known = &commit->request.shared->files[i];
        if (known->rank == file->rank && known->shard == file->shard)
            return known->bytes == file->bytes && known->device == file->device &&
                   known->inode == file->inode && strcmp(known->origin, file->origin) == 0 &&
                   memcmp(known->footer_sha256, file->footer_sha256, sizeof(file->footer_sha256)) ==
                       0;
    }
    return false;
}

/* Record the file for the next save, except the first shard of a rank, which is always new. */
static enum sidestep_status record_shared(struct commit_shared *shared,
                                          const struct commit_shared_file *file,
                                          struct sidestep_error *err)
{
    assert(shared->count <= shared->capacity);
    if (file->shard == 0)
        return SIDESTEP_OK;
    TRY_GROW(shared->files, shared->capacity, shared->count, err);
    shared->files[shared->count++] = *file;
    return SIDESTEP_OK;
}

/* Check that the shard is of this save or may be shared, and has the layout of the plan. */
static enum sidestep_status check_ids(struct commit *commit, const struct footer *footer,
                                      const struct commit_shared_file *file,
                                      struct sidestep_error *err)
{
    bool is_own = memcmp(footer->save_id, commit->save_id_bytes, SAVE_ID_BYTES) == 0;

    if (footer->world_size != commit->world_size ||
        (!is_own && (footer->shard == 0 || !was_committed(commit, file))))
        return FAIL(err, SIDESTEP_ECORRUPT, "it belongs to another save, rank or shard");
    if (footer->layout_digest != commit->layout_digest)
        return FAIL(err, SIDESTEP_EDISAGREE, "rank %u saved another layout than rank %u",
                    footer->rank, commit->rank);
    return SIDESTEP_OK;
}

/* Read the footer of a shard through one descriptor. */
static enum sidestep_status read_shard(struct commit *commit, struct arena *arena,
                                       struct shard_file *file, struct sidestep_error *err)
{
    OWNED_FILE *opened = NULL;

    TRY(store_file_open(commit->dir, file->name, 0, &opened, err));
    TRY(store_file_stat(opened, &file->stat, err));
    struct source source = small_file_source(opened, file->stat.size);
    TRY(footer_read(&source, arena, &file->footer, file->row.footer_sha256, err));
    file->row.bytes = file->stat.size;
    hash_to_hex(file->footer.save_id, SAVE_ID_BYTES, file->row.origin);
    return SIDESTEP_OK;
}

static enum sidestep_status check_shard(struct commit *commit, uint32_t rank, uint32_t shard,
                                        struct rank_files *to)
{
    struct sidestep_error *err = &to->why;
    char written[FILE_NAME_BYTES];

    TRY_GROW(to->files, to->capacity, to->count, err);
    struct shard_file *file = &to->files[to->count];
    *file = (struct shard_file){0};
    commit_form_of(commit)->shard_names(commit, rank, shard, written, file->name);
    enum sidestep_status status = read_shard(commit, &to->arena, file, err);
    if (status == SIDESTEP_OK && (file->footer.rank != rank || file->footer.shard != shard))
        status = FAIL(err, SIDESTEP_ECORRUPT, "it belongs to another save, rank or shard");
    if (status == SIDESTEP_OK) {
        struct commit_shared_file shared = shared_file(&file->footer, &file->row, &file->stat);
        status = check_ids(commit, &file->footer, &shared, err);
    }
    to->count++;
    return WRAP(status, err, "check shard '%s'", file->name);
}

/* Check the shards of a rank. The first one says how many there are. */
static enum sidestep_status check_rank(struct commit *commit, uint32_t rank, struct rank_files *to)
{
    TRY(check_shard(commit, rank, 0, to));
    const struct footer *first = &to->files[0].footer;
    if (!commit->request.resumes)
        TRY(extra_files_check(commit, first->extras, first->extra_count, &to->why));
    uint32_t shards = to->files[0].footer.shard_count;
    for (uint32_t shard = 1; shard < shards; shard++)
        TRY(check_shard(commit, rank, shard, to));
    return SIDESTEP_OK;
}

static void read_ranks(void *context)
{
    struct batch *batch = context;

    for (;;) {
        uint32_t at = atomic_fetch_add(&batch->next, 1);
        if (at >= batch->count)
            return;
        struct rank_files *to = &batch->ranks[at];
        to->why = (struct sidestep_error){.rank = -1};
        to->status = check_rank(batch->commit, commit_voter(batch->commit, batch->first + at), to);
    }
}

static void release_batch(struct batch *batch)
{
    for (size_t i = 0; i < MANY_RANKS_THREADS; i++) {
        arena_release(&batch->ranks[i].arena);
        free(TAKE(batch->ranks[i].files));
        batch->ranks[i].count = batch->ranks[i].capacity = 0;
    }
}

static enum sidestep_status grow_rows(struct commit_contents *contents, size_t rows_more,
                                      size_t *capacity, struct sidestep_error *err)
{
    struct manifest *manifest = &contents->manifest;

    TRY_RESERVE(&contents->arena, manifest->files, *capacity, manifest->file_count + rows_more,
                err);
    return SIDESTEP_OK;
}

/* Merge what was read of a rank into ${contents}. */
static enum sidestep_status merge_rank(struct commit_contents *contents,
                                       struct commit_metadata_builder *builder,
                                       struct extra_merge *extras, struct rank_files *from,
                                       struct sidestep_error *err)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct shard_file *file = &from->files[i];
        struct manifest_file *row = &contents->manifest.files[contents->manifest.file_count];
        struct commit_shared_file shared = shared_file(&file->footer, &file->row, &file->stat);
        *row = file->row;
        TRY(arena_copy_text(&contents->arena, file->name, &row->name, err));
        TRY(record_shared(&contents->shared, &shared, err));
        TRY(extra_merge_add(extras, contents, &file->footer, err));
        TRY(commit_metadata_add(builder, &file->footer, row->name, err));
        contents->manifest.file_count++;
    }
    if (!builder->copies)
        arena_adopt(&contents->metadata.arena, &from->arena);
    return SIDESTEP_OK;
}

static enum sidestep_status merge_batch(struct commit_contents *contents,
                                        struct commit_metadata_builder *builder,
                                        struct extra_merge *extras, struct batch *batch,
                                        size_t *capacity, struct sidestep_error *err)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct rank_files *from = &batch->ranks[i];
        if (from->status != SIDESTEP_OK)
            return error_copy(err, &from->why);
        TRY(grow_rows(contents, from->count, capacity, err));
        TRY(merge_rank(contents, builder, extras, from, err));
    }
    return SIDESTEP_OK;
}

/* ${readers}: NULL if this thread reads alone. */
static enum sidestep_status collect_with(struct workers *readers, struct batch *batch,
                                         struct commit_contents *contents,
                                         struct sidestep_error *err)
{
    uint32_t voters = commit_voter_count(batch->commit);
    OWNED_METADATA_BUILDER builder = {.out = &contents->metadata,
                                      .copies = voters > MANY_RANKS_THREADS};
    OWNED_EXTRA_MERGE extras = {0};
    size_t capacity = 0;

    TRY(grow_rows(contents, voters, &capacity, err));
    for (; batch->first < voters; batch->first += batch->count) {
        batch->count = (uint32_t)min_u64(voters - batch->first, MANY_RANKS_THREADS);
        atomic_store(&batch->next, 0);
        many_ranks_run(readers, read_ranks, batch);
        TRY(merge_batch(contents, &builder, &extras, batch, &capacity, err));
        release_batch(batch);
    }
    if (batch->commit->request.resumes) /* other files of these names were not sent */
        TRY(extra_files_check(batch->commit, contents->manifest.extras,
                              contents->manifest.extra_count, err));
    return commit_metadata_finish(&builder, err);
}

enum sidestep_status collect_shards(struct commit *commit, struct commit_contents *contents,
                                    struct sidestep_error *err)
{
    struct batch *batch = memory_new(1, sizeof(*batch));

    if (batch == NULL)
        return FAIL_NOMEM(err, sizeof(*batch));
    batch->commit = commit;
    struct workers *readers = many_ranks_workers(commit_voter_count(commit));
    enum sidestep_status status = collect_with(readers, batch, contents, err);
    workers_free(&readers);
    release_batch(batch);
    free(batch);
    return status;
}
