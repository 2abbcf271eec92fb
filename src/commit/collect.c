/* SPDX-License-Identifier: BSD-3-Clause */
/* collect.c -- step 4 of the protocol (commit.h): rank 0 waits for the votes, has every shard
 * checked (collect_shards.h), and checks that the boxes of all ranks tile every tensor. */
#include "commit/commit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "comm/comm.h"
#include "commit/collect_shards.h"
#include "commit/commit_metadata.h"
#include "commit/form.h"

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

/* Ranks of other groups are not waited for. */
static void leave_out_others(struct tally *tally)
{
    const struct commit_group *group = &tally->commit->group;

    if (group->count == 0)
        return;
    memset(tally->voted, 1, tally->commit->world_size);
    memset(tally->seen, 1, tally->commit->world_size);
    for (uint32_t i = 0; i < group->count; i++)
        tally->voted[group->ranks[i]] = tally->seen[group->ranks[i]] = 0;
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
    double seconds = (double)commit->request.timeout_ns / 1e9;
    uint32_t size = commit->world_size, voters = commit_voter_count(commit), rank = 0;
    struct rank_list_text missing = rank_list_format(has_not_voted, tally, size);
    struct rank_list_text unseen = rank_list_format(was_never_seen, tally, size);

    while (rank < size && tally->voted[rank])
        rank++;
    assert(rank < size); /* a rank has not voted, because rank 0 still waits */
    enum sidestep_status status =
        unseen.text[0] == '\0'
            ? FAIL(
                  err, SIDESTEP_ETIMEDOUT,
                  "no word from rank %s for %.1f s (%u of %u ranks have written their shards); all "
                  "of them had begun to write: see whether they still run",
                  missing.text, seconds, tally->yes_count, voters)
            : FAIL(err, SIDESTEP_ETIMEDOUT,
                   "no word from rank %s for %.1f s (%u of %u ranks have written their shards); "
                   "nothing was ever seen of rank %s: is '%s' on storage that all hosts share?",
                   missing.text, seconds, tally->yes_count, voters, unseen.text, commit->path);
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
    uint64_t now = clock_now(commit->clock);

    if (commit->request.guard == NULL || now - *asked_ns < GUARD_INTERVAL_NS)
        return SIDESTEP_OK;
    *asked_ns = now;
    return commit_check_wanted(commit, err);
}

/* The progress of the other ranks, as rank 0 saw it last. */
struct watch {
    uint64_t names, sizes;  /* tally.progress and tally.sizes */
    uint64_t progressed_ns; /* when they had changed */
    uint64_t sized_ns;      /* when rank 0 read sizes */
    uint64_t asked_ns;      /* when it asked the guard */
};

/* How often within a deadline rank 0 reads the sizes of the files that are being written. That
 * takes a call for each file, while their names take one call for all. */
#define SIZE_READS 8u

static void record_progress(struct watch *watch, const struct tally *tally, uint64_t now)
{
    bool has_changed = tally->progress != watch->names;

    watch->names = tally->progress;
    if (tally->with_sizes) {
        has_changed = has_changed || tally->sizes != watch->sizes;
        watch->sizes = tally->sizes;
        watch->sized_ns = now;
    }
    if (has_changed)
        watch->progressed_ns = now;
}

static enum sidestep_status count_votes(struct watch *watch, struct tally *tally,
                                        struct sidestep_error *err)
{
    struct commit *commit = tally->commit;

    tally->failed_rank = -1;
    tally->progress = tally->sizes = 0;
    tally->with_sizes =
        clock_now(commit->clock) - watch->sized_ns >= commit->request.timeout_ns / SIZE_READS;
    TRY(commit_form_of(commit)->count_votes(tally, err));
    if (tally->failed_rank >= 0)
        return report_failed(commit, (uint32_t)tally->failed_rank, err);
    if (tally->yes_count == commit_voter_count(commit))
        return SIDESTEP_OK;
    if (!commit_is_pending(commit)) /* the votes are gone, too */
        return commit_report_removed(commit, err);
    uint64_t now = clock_now(commit->clock);
    record_progress(watch, tally, now);
    return now - watch->progressed_ns > commit->request.timeout_ns
               ? report_silent(commit, tally, err)
               : SIDESTEP_OK;
}

static enum sidestep_status wait_for_votes(struct commit *commit, struct sidestep_error *err)
{
    OWNED uint8_t *marks = memory_new(commit->world_size, 2);
    struct tally tally = {.commit = commit,
                          .voted = marks,
                          .seen = marks != NULL ? marks + commit->world_size : NULL};
    struct backoff backoff = {.max_ms = COMMIT_POLL_MAX_MS};
    uint64_t now = clock_now(commit->clock);
    struct watch watch = {.progressed_ns = now, .sized_ns = now, .asked_ns = now};

    assert(commit->world_size != 0);
    if (marks == NULL)
        return FAIL_NOMEM(err, 2 * (size_t)commit->world_size);
    leave_out_others(&tally);
    for (;;) {
        TRY(commit_check_cancelled(commit, err));
        TRY(count_votes(&watch, &tally, err));
        if (tally.yes_count == commit_voter_count(commit))
            return SIDESTEP_OK;
        TRY(check_guard(commit, &watch.asked_ns, err));
        backoff_sleep(&backoff, commit->clock);
    }
}

void commit_shared_release(struct commit_shared *shared)
{
    free(shared->files);
    *shared = (struct commit_shared){0};
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
    struct manifest *manifest = &contents->manifest;

    assert(commit_is_coordinator(commit) && commit->dir != NULL && manifest->file_count == 0);
    TRY(wait_for_votes(commit, err));
    TRY(collect_shards(commit, contents, err));
    if (commit->group.count == 0) /* the boxes of a part cover nothing by themselves */
        TRY(commit_metadata_check_tiling(&contents->metadata, err));
    commit->bytes = 0;
    for (size_t i = 0; i < manifest->file_count; i++)
        commit->bytes += manifest->files[i].bytes;
    for (size_t i = 0; i < manifest->extra_count; i++)
        commit->bytes += manifest->extras[i].bytes;
    memcpy(manifest->save_id, commit->save_id, sizeof(manifest->save_id));
    memcpy(manifest->run_id, commit->request.run_id, sizeof(manifest->run_id));
    manifest->incarnation = commit->request.incarnation;
    manifest->step = commit->request.step;
    memcpy(manifest->naming, commit->request.naming, sizeof(manifest->naming));
    manifest->world_size = commit->world_size;
    if (commit->group.count != 0) {
        manifest->part = (struct manifest_part){.ranks = commit->group.ranks,
                                                .rank_count = commit->group.count,
                                                .parts = commit->group.groups};
        manifest->required_features |= MANIFEST_REQUIRED_PART;
    }
    manifest->saved_at = (int64_t)time(NULL);
    struct metadata *metadata = &contents->metadata;
    TRY(arena_copy_text(&metadata->arena, commit->save_id, &metadata->save_id, err));
    if (utf8_is_valid(commit->path, strlen(commit->path))) /* a str in a pickle is UTF-8 */
        TRY(arena_copy_text(&metadata->arena, commit->path, &metadata->checkpoint_id, err));
    TRACE(commit, "save %s: %zu files, %zu entries", commit->save_id, manifest->file_count,
          contents->metadata.count);
    return SIDESTEP_OK;
}
