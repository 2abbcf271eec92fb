/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_runner.c -- what happens in the background: write this rank's shard, seal it, vote; and on
 * rank 0 count, publish and commit.  No collectives here: storage is the vote.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/owned.h"
#include "base/trace.h"
#include "engine/engine.h"

/* Wait for the word of the thread that started us; false: end at once. */
static bool wait_for_go(struct sidestep_save *save)
{
    pthread_mutex_lock(&save->shared.lock);
    while (!save->shared.go)
        pthread_cond_wait(&save->shared.changed, &save->shared.lock);
    bool go = !save->shared.cancel;
    pthread_mutex_unlock(&save->shared.lock);
    return go;
}

static struct footer make_footer(const struct sidestep_save *save, struct footer_item *items)
{
    const struct commit *commit = &save->commit;
    const struct image *image = save->pipeline.image;
    struct footer footer = {
        .rank = commit->rank,
        .shard_count = 1,
        .world_size = commit->world_size,
        .layout_digest = commit->layout_digest,
        .count = image->count,
        .items = items,
    };

    memcpy(footer.save_id, commit->save_id_bytes, SAVE_ID_BYTES);
    for (size_t i = 0; i < image->count; i++)
        items[i] = image->items[i].footer;
    return footer;
}

/* The same, of what the press has written. */
static struct footer make_pressed_footer(const struct sidestep_save *save,
                                         struct footer_item *items)
{
    struct footer footer = make_footer(save, items);

    for (size_t i = 0; i < footer.count; i++) {
        items[i] = *press_item(save->press, i);
        if (items[i].transform != 0) {
            footer.transform_count = 1;
            footer.transforms = &save->transform;
        }
    }
    return footer;
}

static void set_total(struct sidestep_save *save, uint64_t total)
{
    pthread_mutex_lock(&save->shared.lock);
    save->shared.info.bytes_total = total;
    pthread_mutex_unlock(&save->shared.lock);
}

static enum sidestep_status write_footer(struct sidestep_save *save, struct footer_item *items,
                                         struct store_file *file, struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    struct footer footer =
        save->press != NULL ? make_pressed_footer(save, items) : make_footer(save, items);
    uint64_t at =
        save->press != NULL ? press_body_bytes(save->press) : save->pipeline.image->body_bytes;

    TRY(footer_encode(&footer, at, &bytes, err));
    TRY(store_file_write_at(file, bytes.bytes, bytes.length, at, err));
    if (save->press == NULL)
        return SIDESTEP_OK;
    set_total(save, at + bytes.length);
    return store_file_truncate(file, at + bytes.length, err);
}

/* How it was written, for save info and events. */
static void note_io(struct sidestep_save *save, struct store_file *file)
{
    uint32_t flags = store_file_alignment(file) != 0 ? SIDESTEP_SAVE_DIRECT_IO : 0;

    if (save->pipeline.shared.used_ring)
        flags |= SIDESTEP_SAVE_URING;
    pthread_mutex_lock(&save->shared.lock);
    save->shared.info.flags |= flags;
    save->shared.info.held_ns = save->pipeline.shared.held_ns;
    save->shared.info.pool_bytes = places_used_bytes(save->pipeline.places);
    save->shared.info.live_bytes = save->pipeline.shared.live_bytes;
    save->shared.info.ahead_bytes = atomic_load(&save->pipeline.ahead_bytes);
    pthread_mutex_unlock(&save->shared.lock);
}

/* What was gained, by dtype and in all. */
static void note_gains(struct sidestep_save *save)
{
    struct sidestep_save_info *info = &save->shared.info;

    pthread_mutex_lock(&save->shared.lock);
    for (size_t dtype = 0; dtype < SIDESTEP_DTYPE_END; dtype++) {
        const struct press_gain *gain = &press_gains(save->press)[dtype];
        info->gains[dtype] = (struct sidestep_gain){.raw_bytes = gain->raw_bytes,
                                                    .stored_bytes = gain->stored_bytes,
                                                    .encode_ns = gain->encode_ns};
        info->raw_bytes += gain->raw_bytes;
        info->stored_bytes += gain->stored_bytes;
        info->encode_ns += gain->encode_ns;
    }
    pthread_mutex_unlock(&save->shared.lock);
}

static enum sidestep_status write_body(struct sidestep_save *save, struct store_file *file,
                                       struct sidestep_error *err)
{
    struct sidestep_engine *engine = save->engine;

    if (save->press == NULL)
        return pipeline_write(&save->pipeline, file, &engine->io, engine->writers,
                              engine->write_threads, err);
    TRY(press_write(save->press, &save->pipeline, &engine->press_room, file, &engine->io,
                    engine->writers, err));
    note_gains(save);
    return SIDESTEP_OK;
}

/* Room for the file.  How large it becomes when items are encoded is not known: what there is not
 * room for may not be needed. */
static enum sidestep_status allocate(struct sidestep_save *save, struct store_file *file,
                                     uint64_t total, struct sidestep_error *err)
{
    struct sidestep_error why;

    if (save->press == NULL)
        TRY(store_file_allocate(file, total, err));
    else if (store_file_allocate(file, total, &why) != SIDESTEP_OK &&
             why.status != SIDESTEP_ENOSPC) {
        if (err != NULL)
            *err = why;
        return (enum sidestep_status)why.status;
    }
    /* Requests that extend a file wait for each other. */
    return store_file_truncate(file, total, err);
}

static enum sidestep_status write_shard(struct sidestep_save *save, struct sidestep_error *err)
{
    struct sidestep_engine *engine = save->engine;
    struct image *image = save->pipeline.image;
    OWNED struct footer_item *items = memory_new(image->count, sizeof(*items));
    OWNED_FILE *file = NULL;
    uint32_t flags = (engine->flags & SIDESTEP_ENGINE_NO_DIRECT_IO) != 0 ? 0 : STORE_DIRECT;

    if (items == NULL)
        return FAIL_NOMEM(err, image->count * sizeof(*items));
    struct footer footer = make_footer(save, items);
    uint64_t total = image->body_bytes + footer_encoded_bytes(&footer);
    set_total(save, total);
    TRY(commit_shard_create(&save->commit, 0, flags, &file, err));
    TRY(allocate(save, file, total, err));
    save->pipeline.neighbour = &engine->neighbour;
    if (save->options.spread_ms != 0)
        save->pipeline.bytes_per_second =
            max_u64(1, (uint64_t)((double)total * 1000 / (double)save->options.spread_ms));
    TRY(write_body(save, file, err));
    TRY(save_check_promised(save, err));
    note_io(save, file);
    pipeline_trim(&save->pipeline);
    TRY(write_footer(save, items, file, err));
    TRY(commit_check_aborted(&save->commit, err));
    return commit_shard_seal(&save->commit, 0, TAKE(file), err);
}

static enum sidestep_status write_and_vote(struct sidestep_save *save, struct sidestep_error *err)
{
    TRY(commit_join(&save->commit, err));
    TRY(write_shard(save, err));
    return commit_vote_yes(&save->commit, err);
}

/* What this rank may have left in a directory that stays. */
static void unlink_own(struct sidestep_save *save)
{
    struct commit *commit = &save->commit;
    char name[NAMES_MAX];

    if (!commit->in_place || !commit->shards_made)
        return;
    names_format(NAMES_PART, commit->save_id, commit->rank, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
    names_format(NAMES_SHARD, commit->save_id, commit->rank, 0, name);
    (void)store_unlink(commit->dir, name, NULL);
}

static void fail(struct sidestep_save *save, enum sidestep_save_state state,
                 struct sidestep_error *why)
{
    error_wrap(why, "save '%s'", save->commit.path);
    TRACE(save, "rank %u: %s", save->commit.rank, why->message);
    pipeline_fail(&save->pipeline, why); /* staging may still be under way */
    pipeline_settle(&save->pipeline);
    if (state == SIDESTEP_SAVE_ABORTED && save->commit.rank == 0)
        commit_abort(&save->commit, why);
    else if (state == SIDESTEP_SAVE_ABORTED) {
        commit_vote_no(&save->commit, why);
        unlink_own(save);
    }
    save_advance(save, state, why);
}

static enum sidestep_status decide(struct sidestep_save *save, enum commit_outcome *outcome,
                                   struct sidestep_error *err)
{
    struct commit_count count = {0};

    *outcome = COMMIT_ABORTED;
    enum sidestep_status status = commit_count_votes(&save->commit, &count, err);
    if (status == SIDESTEP_OK)
        status = commit_publish(&save->commit, &count, outcome, err);
    commit_count_release(&count);
    return status;
}

static void set_time(struct sidestep_save *save, uint64_t *field, uint64_t from_ns)
{
    uint64_t now = clock_now(save->engine->clock);

    pthread_mutex_lock(&save->shared.lock);
    *field = now - from_ns;
    pthread_mutex_unlock(&save->shared.lock);
}

/* The next save of the engine waits for this one, so nobody looks at its pace meanwhile. */
static void learn_pace(struct sidestep_save *save)
{
    const struct sidestep_save_info *info = &save->shared.info;
    struct sidestep_engine *engine = save->engine;
    uint64_t limit = engine->neighbour.bytes_per_second;
    bool held = info->held_ns != 0 && limit == 0; /* by a pause, or spread_ms */

    if (!held && save->options.spread_ms == 0)
        pace_learn(&engine->pace, save->pipeline.image->body_bytes, info->write_ns,
                   info->stored_bytes != info->raw_bytes, limit);
}

static void run(struct sidestep_save *save)
{
    struct sidestep_error why = {0};
    enum commit_outcome outcome;
    uint64_t began = clock_now(save->engine->clock);

    if (write_and_vote(save, &why) != SIDESTEP_OK) {
        fail(save, SIDESTEP_SAVE_ABORTED, &why);
        return;
    }
    set_time(save, &save->shared.info.write_ns, began);
    learn_pace(save);
    save_advance(save, SIDESTEP_SAVE_WRITTEN, NULL);
    if (save->commit.rank != 0)
        return;
    began = clock_now(save->engine->clock);
    enum sidestep_status status = decide(save, &outcome, &why);
    set_time(save, &save->shared.info.commit_ns, began);
    if (status == SIDESTEP_OK)
        save_advance(save, SIDESTEP_SAVE_COMMITTED, NULL);
    else
        fail(save, outcome == COMMIT_UNKNOWN ? SIDESTEP_SAVE_UNKNOWN : SIDESTEP_SAVE_ABORTED, &why);
}

void *save_runner_main(void *argument)
{
    struct sidestep_save *save = argument;

    if (wait_for_go(save))
        run(save);
    pthread_mutex_lock(&save->shared.lock);
    save->shared.ran = true;
    bool hurried = save->shared.hurried;
    pthread_cond_broadcast(&save->shared.changed);
    pthread_mutex_unlock(&save->shared.lock);
    if (hurried)
        neighbour_wait_end(&save->engine->neighbour);
    return NULL;
}
