/* SPDX-License-Identifier: BSD-3-Clause */
/* collect.c -- step 4 of the protocol (commit.h): rank 0 waits for the votes and checks every
 * shard.
 *
 * Rank 0 trusts only what it reads back. It opens each shard once, and checks through that
 * descriptor the size, the ids, the footer and the layout digest. Then it checks that the boxes of
 * all ranks tile every tensor. */
#include "commit/commit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "comm/comm.h"
#include "commit/form.h"
#include "commit/small_file.h"

static enum sidestep_status report_failed(struct commit *commit, uint32_t rank,
                                          struct sidestep_error *err)
{
    struct sidestep_error why = {0};

    commit_form_of(commit)->read_failure(commit, rank, &why);
    enum sidestep_status status =
        FAIL(err, SIDESTEP_EPEER, "rank %u: %.600s", rank,
             why.message[0] != '\0'
                 ? why.message
                 : "it failed, and could not write why (no free file descriptors, or no space?)");
    if (err != NULL)
        err->rank = (int32_t)rank;
    return status;
}

static bool has_not_voted(const void *context, uint32_t rank)
{
    return !((const struct tally *)context)->voted[rank];
}

static bool was_never_seen(const void *context, uint32_t rank)
{
    return !((const struct tally *)context)->seen[rank];
}

static enum sidestep_status report_silent(struct commit *commit, const struct tally *tally,
                                          struct sidestep_error *err)
{
    double seconds = (double)commit->timeout_ns / 1e9;
    uint32_t size = commit->world_size, rank = 0;
    struct rank_list_text missing = rank_list_format(has_not_voted, tally, size);
    struct rank_list_text unseen = rank_list_format(was_never_seen, tally, size);

    while (rank < size && tally->voted[rank])
        rank++;
    assert(rank < size); /* or all have voted, and nobody waits */
    enum sidestep_status status =
        unseen.text[0] == '\0'
            ? FAIL(
                  err, SIDESTEP_ETIMEDOUT,
                  "no word from rank %s for %.1f s (%u of %u ranks have written their shards); all "
                  "of them had begun to write: see whether they still run",
                  missing.text, seconds, tally->yes_count, size)
            : FAIL(err, SIDESTEP_ETIMEDOUT,
                   "no word from rank %s for %.1f s (%u of %u ranks have written their shards); "
                   "nothing was ever seen of rank %s: is '%s' on storage that all hosts share?",
                   missing.text, seconds, tally->yes_count, size, unseen.text, commit->path);
    if (err != NULL)
        err->rank = (int32_t)rank;
    return status;
}

#define GUARD_INTERVAL_NS UINT64_C(500000000)

/* Ask the guard of the series, at most every GUARD_INTERVAL_NS. A run that was fenced has lost its
 * saving directory, with the votes, so it must not wait for them. */
static enum sidestep_status check_guard(const struct commit *commit, uint64_t *asked_ns,
                                        struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    uint64_t now = clock_now(commit->clock);

    if (commit->guard == NULL || now - *asked_ns < GUARD_INTERVAL_NS)
        return SIDESTEP_OK;
    *asked_ns = now;
    if (commit->guard->holds(commit->guard->context, commit, &why) != SIDESTEP_EABORTED)
        return SIDESTEP_OK; /* asked again later, and before the commit */
    error_copy(err, &why);
    return SIDESTEP_EABORTED;
}

static enum sidestep_status wait_for_votes(struct commit *commit, struct sidestep_error *err)
{
    OWNED uint8_t *marks = memory_new(commit->world_size, 2);
    struct tally tally = {.commit = commit,
                          .voted = marks,
                          .seen = marks != NULL ? marks + commit->world_size : NULL};
    struct backoff backoff = {.max_ms = COMMIT_POLL_MAX_MS};
    uint64_t last_progress = 0, since = clock_now(commit->clock), asked = since;

    assert(commit->world_size != 0);
    if (marks == NULL)
        return FAIL_NOMEM(err, 2 * (size_t)commit->world_size);
    for (;;) {
        tally.failed_rank = -1;
        tally.progress = 0;
        TRY(commit_check_cancelled(commit, err));
        TRY(commit_form_of(commit)->count_votes(&tally, err));
        if (tally.failed_rank >= 0)
            return report_failed(commit, (uint32_t)tally.failed_rank, err);
        if (tally.yes_count == commit->world_size)
            return SIDESTEP_OK;
        if (!commit_is_pending(commit)) /* the votes are gone, too */
            return commit_report_removed(commit, err);
        if (tally.progress != last_progress) {
            last_progress = tally.progress;
            since = clock_now(commit->clock);
        } else if (clock_now(commit->clock) - since > commit->timeout_ns) {
            return report_silent(commit, &tally, err);
        }
        TRY(check_guard(commit, &asked, err));
        backoff_sleep(&backoff, commit->clock);
    }
}

void commit_shared_release(struct commit_shared *shared)
{
    free(shared->files);
    *shared = (struct commit_shared){0};
}

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
    for (size_t i = 0; commit->shared != NULL && i < commit->shared->count; i++) {
        const struct commit_shared_file *known = &commit->shared->files[i];
        if (known->rank == file->rank && known->shard == file->shard)
            return known->bytes == file->bytes && known->device == file->device &&
                   known->inode == file->inode && strcmp(known->origin, file->origin) == 0 &&
                   memcmp(known->footer_sha256, file->footer_sha256, sizeof(file->footer_sha256)) ==
                       0;
    }
    return false;
}

/* Remember the file for the next save. The first shard of each rank is always new, so it is
 * skipped. */
static enum sidestep_status share(struct commit_shared *shared,
                                  const struct commit_shared_file *file, struct sidestep_error *err)
{
    assert(shared->count <= shared->capacity);
    if (file->shard == 0)
        return SIDESTEP_OK;
    TRY_GROW(shared->files, shared->capacity, shared->count, err);
    shared->files[shared->count++] = *file;
    return SIDESTEP_OK;
}

/* The shard must be of this save, or be one that may be shared, and have the layout agreed upon. */
static enum sidestep_status check_ids(struct commit *commit, const struct footer *footer,
                                      const struct commit_shared_file *file,
                                      struct sidestep_error *err)
{
    bool is_own = memcmp(footer->save_id, commit->save_id_bytes, SAVE_ID_BYTES) == 0;

    if (footer->world_size != commit->world_size ||
        (!is_own && (footer->shard == 0 || !was_committed(commit, file))))
        return FAIL(err, SIDESTEP_ECORRUPT, "it belongs to another save, rank or shard");
    if (footer->layout_digest != commit->layout_digest)
        return FAIL(err, SIDESTEP_EDISAGREE, "rank %u saved another layout than rank 0",
                    footer->rank);
    return SIDESTEP_OK;
}

/* Read the footer of a shard through one descriptor, and fill its row of the manifest. */
static enum sidestep_status read_shard(struct commit *commit, struct commit_contents *contents,
                                       const char *name, struct footer *footer,
                                       struct manifest_file *row, struct store_stat *stat,
                                       struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;

    TRY(store_file_open(commit->dir, name, 0, &file, err));
    TRY(store_file_stat(file, stat, err));
    struct source source = small_file_source(file, stat->size);
    TRY(footer_read(&source, &contents->arena, footer, row->footer_sha256, err));
    row->bytes = stat->size;
    hash_to_hex(footer->save_id, SAVE_ID_BYTES, row->origin);
    return arena_copy_text(&contents->arena, name, &row->name, err);
}

static enum sidestep_status check_shard(struct commit *commit, struct commit_contents *contents,
                                        uint32_t rank, uint32_t shard, struct footer *footer,
                                        struct manifest_file *row, struct sidestep_error *err)
{
    struct store_stat stat;
    char written[FILE_NAME_BYTES], name[FILE_NAME_BYTES];

    commit_form_of(commit)->shard_names(commit, rank, shard, written, name);
    enum sidestep_status status = read_shard(commit, contents, name, footer, row, &stat, err);
    if (status == SIDESTEP_OK && (footer->rank != rank || footer->shard != shard))
        status = FAIL(err, SIDESTEP_ECORRUPT, "it belongs to another save, rank or shard");
    if (status == SIDESTEP_OK) {
        struct commit_shared_file file = shared_file(footer, row, &stat);
        status = check_ids(commit, footer, &file, err);
        if (status == SIDESTEP_OK)
            status = share(&contents->shared, &file, err);
    }
    return WRAP(status, err, "check shard '%s'", name);
}

static enum sidestep_status grow_files(struct commit_contents *contents, size_t files,
                                       struct sidestep_error *err)
{
    struct footer *footers = arena_new(&contents->arena, files, sizeof(*footers));
    struct manifest_file *rows = arena_new(&contents->arena, files, sizeof(*rows));

    assert(files >= contents->manifest.file_count);
    if (footers == NULL || rows == NULL)
        return FAIL_NOMEM(err, files * (sizeof(*footers) + sizeof(*rows)));
    if (contents->manifest.file_count != 0) {
        memcpy(footers, contents->footers, contents->manifest.file_count * sizeof(*footers));
        memcpy(rows, contents->manifest.files, contents->manifest.file_count * sizeof(*rows));
    }
    contents->footers = footers;
    contents->manifest.files = rows;
    return SIDESTEP_OK;
}

static enum sidestep_status check_shards(struct commit *commit, struct commit_contents *contents,
                                         struct sidestep_error *err)
{
    size_t capacity = commit->world_size;

    TRY(grow_files(contents, capacity, err));
    for (uint32_t rank = 0; rank < commit->world_size; rank++) {
        uint32_t shards = 1;
        for (uint32_t shard = 0; shard < shards; shard++) {
            size_t at = contents->manifest.file_count;
            if (at == capacity)
                TRY(grow_files(contents, capacity *= 2, err));
            TRY(check_shard(commit, contents, rank, shard, &contents->footers[at],
                            &contents->manifest.files[at], err));
            assert(contents->footers[at].rank == rank && contents->footers[at].shard == shard);
            if (shard == 0)
                shards = contents->footers[at].shard_count;
            contents->manifest.file_count++;
        }
    }
    return SIDESTEP_OK;
}

void commit_contents_release(struct commit_contents *contents)
{
    metadata_release(&contents->metadata);
    arena_release(&contents->arena);
    commit_shared_release(&contents->shared);
    *contents = (struct commit_contents){0};
}

enum sidestep_status commit_collect_votes(struct commit *commit, struct commit_contents *contents,
                                          struct sidestep_error *err)
{
    OWNED const char **names = NULL;
    struct manifest *manifest = &contents->manifest;

    assert(commit->rank == 0 && commit->dir != NULL && manifest->file_count == 0);
    TRY(wait_for_votes(commit, err));
    TRY(check_shards(commit, contents, err));
    names = memory_new(manifest->file_count, sizeof(*names));
    if (names == NULL)
        return FAIL_NOMEM(err, manifest->file_count * sizeof(*names));
    commit->bytes = 0;
    for (size_t i = 0; i < manifest->file_count; i++) {
        names[i] = manifest->files[i].name;
        commit->bytes += manifest->files[i].bytes;
    }
    TRY(commit_metadata_from_footers_checked(contents->footers, names, manifest->file_count,
                                             &contents->metadata, err));
    memcpy(manifest->save_id, commit->save_id, sizeof(manifest->save_id));
    memcpy(manifest->run_id, commit->run_id, sizeof(manifest->run_id));
    manifest->incarnation = commit->incarnation;
    manifest->step = commit->step;
    memcpy(manifest->naming, commit->naming, sizeof(manifest->naming));
    manifest->world_size = commit->world_size;
    manifest->saved_at = (int64_t)time(NULL);
    struct metadata *metadata = &contents->metadata;
    TRY(arena_copy_text(&metadata->arena, commit->save_id, &metadata->save_id, err));
    TRY(arena_copy_text(&metadata->arena, commit->path, &metadata->checkpoint_id, err));
    TRACE(commit, "save %s: %zu files, %zu entries", commit->save_id, manifest->file_count,
          contents->metadata.count);
    return SIDESTEP_OK;
}
