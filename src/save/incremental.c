/* SPDX-License-Identifier: BSD-3-Clause */
/* incremental.c -- links or writes the shard of unchanged tensors; see incremental.h. */
#include "save/incremental.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "save/save.h"
#include "save/save_shard_file.h"
#include "snapshot/snapshot.h"

void incremental_reset(struct incremental_state *state)
{
    state->next.exists = false;
    state->last.exists = false;
}

enum sidestep_status incremental_plan(struct incremental_state *state, struct image *image,
                                      struct sidestep_error *err)
{
    const struct incremental_shard *latest = state->pending ? &state->next : &state->last;

    TRY(unchanged_prepare(image, err));
    if (latest->exists && latest->links < INCREMENTAL_MAX_LINKS &&
        unchanged_is_current(image, state->min_bytes))
        return SIDESTEP_OK;
    incremental_reset(state);
    unchanged_choose(image, state->min_bytes);
    return SIDESTEP_OK;
}

void incremental_begin_save(struct incremental_state *state, bool committed, bool incremental)
{
    if (state->pending && committed)
        state->last = state->next;
    else if (state->pending)
        state->last.exists = false;
    state->next.exists = false;
    state->pending = incremental;
}

/* One write of the shard of unchanged tensors. */
struct unchanged_write {
    struct sidestep_save *save;
    const struct save_shard *shard;
    /* The previous checkpoint's file, linked under the name of this shard; NULL: none. */
    struct store_file *linked;
    struct {
        struct lock lock LOCK_KIND(INCREMENTAL);
        struct store_file *file GUARDED_BY(&lock); /* the new file, if one is written */
        /* Per window: it is in ${linked}, so it was not written. */
        bool *skipped GUARDED_BY(&lock);
    } shared;
};

static void set_link_reason(struct sidestep_save *save, const struct sidestep_error *why)
{
    struct sidestep_save_info *info = &save->shared.info;

    lock_acquire(&save->shared.lock);
    snprintf(info->link_reason, sizeof(info->link_reason), "%.*s",
             (int)sizeof(info->link_reason) - 1, why->message);
    lock_release(&save->shared.lock);
}

static enum sidestep_status link_last(struct unchanged_write *write, struct sidestep_error *err)
{
    struct commit *commit = &write->save->commit;
    const struct incremental_shard *last = &write->save->saver->incremental.last;
    struct store_stat stat;
    OWNED_FILE *file = NULL;

    assert(last->exists && write->linked == NULL);
    TRY(commit_shard_link(commit, INCREMENTAL_UNCHANGED_SHARD, last->dir, last->name, &file, err));
    TRY(store_file_stat(file, &stat, err));
    if (stat.inode != last->stat.inode || stat.device != last->stat.device ||
        stat.size != last->stat.size)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s/%s' is a different file now", last->dir,
                    last->name);
    /* The file is not read and compared: whoever wrote to it may have changed any byte. */
    if (stat.modified_ns != last->stat.modified_ns)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s/%s' was changed since it was written", last->dir,
                    last->name);
    write->linked = TAKE(file);
    return SIDESTEP_OK;
}

/* Create a new file.  It replaces the link, if there is one. */
static enum sidestep_status replace_link(struct unchanged_write *write, struct sidestep_error *err)
    REQUIRES(&write->shared.lock)
{
    assert(write->shared.file == NULL);
    TRY(commit_shard_remove(&write->save->commit, INCREMENTAL_UNCHANGED_SHARD, err));
    return save_shard_file_create(write->save, write->shard, &write->shared.file, err);
}

static enum sidestep_status link_or_create(struct unchanged_write *write,
                                           struct sidestep_error *err) REQUIRES(&write->shared.lock)
{
    const struct incremental_shard *last = &write->save->saver->incremental.last;
    struct sidestep_error why = {0};

    if (!last->exists || strcmp(last->run_id, write->save->commit.request.run_id) != 0)
        return replace_link(write, err);
    if (link_last(write, &why) == SIDESTEP_OK)
        return SIDESTEP_OK;
    set_link_reason(write->save, &why);
    return replace_link(write, err);
}

/* See struct pipeline_target. */
static enum sidestep_status choose_file(void *context, size_t window, struct store_file **file,
                                        struct sidestep_error *err)
{
    struct unchanged_write *write = context;
    enum sidestep_status status = SIDESTEP_OK;

    assert(window < write->save->pipeline.image->unchanged_file_windows);
    lock_acquire(&write->shared.lock);
    if (write->shared.file == NULL &&
        unchanged_matches_previous(write->save->pipeline.image, window))
        write->shared.skipped[window] = true;
    else if (write->shared.file == NULL)
        status = replace_link(write, err);
    *file = write->shared.skipped[window] ? NULL : write->shared.file;
    lock_release(&write->shared.lock);
    return status;
}

/* Copy a skipped window from the linked file: check its tensor data, and generate everything else
 * again. */
static enum sidestep_status copy_window(struct unchanged_write *write, size_t i, uint8_t *buffer,
                                        struct sidestep_error *err)
{
    struct image *image = write->save->pipeline.image;
    const struct image_window *w = &image->windows[i];

    lock_alone(&write->shared.lock);
    assert(write->linked != NULL && write->shared.file != NULL);
    TRY(store_file_read_at(write->linked, buffer, w->bytes, w->offset, err));
    if (!unchanged_matches_hashes(image, i, buffer))
        return FAIL(err, SIDESTEP_ECORRUPT, "bytes %llu to %llu differ from what was written there",
                    (unsigned long long)w->offset, (unsigned long long)(w->offset + w->bytes));
    image_stage_non_tensor_data(image, i, buffer);
    TRY(image_finish_window(image, i, buffer, err));
    return store_file_write_at(write->shared.file, buffer, w->bytes, w->offset, err);
}

static enum sidestep_status copy_skipped(struct unchanged_write *write, struct sidestep_error *err)
{
    const struct incremental_shard *last = &write->save->saver->incremental.last;
    OWNED uint8_t *buffer = NULL;
    enum sidestep_status status = SIDESTEP_OK;

    lock_alone(&write->shared.lock);
    for (size_t i = 0;
         status == SIDESTEP_OK && i < write->save->pipeline.image->unchanged_file_windows; i++) {
        if (!write->shared.skipped[i])
            continue;
        if (buffer == NULL && (buffer = memory_new(IMAGE_WINDOW_MAX_BYTES, 1)) == NULL)
            return FAIL_NOMEM(err, IMAGE_WINDOW_MAX_BYTES);
        status = copy_window(write, i, buffer, err);
    }
    if (status != SIDESTEP_OK)
        error_wrap(err,
                   "copy unchanged tensors from '%s/%s' (the next save writes all tensors again)",
                   last->dir, last->name);
    return status;
}

static enum sidestep_status write_unchanged(struct unchanged_write *write,
                                            struct sidestep_error *err)
{
    struct sidestep_save *save = write->save;
    struct sidestep_engine *engine = save->engine;
    struct pipeline_target choice = {.choose = choose_file, .context = write};
    struct pipeline_writers writers = {&engine->io, engine->writers, engine->write_threads};

    size_t windows = save->pipeline.image->unchanged_file_windows;
    lock_alone(&write->shared.lock); /* except while the writers run */
    write->shared.skipped = memory_new(windows, sizeof(*write->shared.skipped));
    if (write->shared.skipped == NULL)
        return FAIL_NOMEM(err, windows);
    TRY(link_or_create(write, err));
    TRY(pipeline_write_unchanged(&save->pipeline, &choice, &writers, err));
    return write->shared.file != NULL ? copy_skipped(write, err) : SIDESTEP_OK;
}

enum sidestep_status incremental_write_unchanged(struct sidestep_save *save,
                                                 const struct save_shard *shard,
                                                 struct store_file **file, bool *linked,
                                                 struct sidestep_error *err)
{
    struct unchanged_write write = {.save = save, .shard = shard};

    assert(shard->number == INCREMENTAL_UNCHANGED_SHARD && save->incremental);
    lock_init(&write.shared.lock, LOCK_INCREMENTAL);
    enum sidestep_status status = write_unchanged(&write, err);
    lock_destroy(&write.shared.lock);
    lock_alone(&write.shared.lock);
    free(write.shared.skipped);
    if (status == SIDESTEP_OK) {
        *linked = write.shared.file == NULL;
        *file = *linked ? TAKE(write.linked) : TAKE(write.shared.file);
    }
    store_file_discard(write.linked);
    store_file_discard(write.shared.file);
    TRACE(save, "rank %u: unchanged shard %s", save->commit.rank, *linked ? "linked" : "written");
    return status;
}

enum sidestep_status incremental_record_unchanged(struct sidestep_save *save,
                                                  struct store_file *file, bool linked,
                                                  struct sidestep_error *err)
{
    struct incremental_state *state = &save->saver->incremental;
    struct incremental_shard *next = &state->next;

    assert(state->pending);
    TRY(store_file_stat(file, &next->stat, err));
    next->links = linked ? state->last.links + 1 : 0;
    next->exists = true;
    memcpy(next->run_id, save->commit.request.run_id, sizeof(next->run_id));
    memcpy(next->dir, save->commit.path, sizeof(next->dir));
    commit_shard_name(&save->commit, INCREMENTAL_UNCHANGED_SHARD, next->name);
    if (!linked)
        return SIDESTEP_OK;
    lock_acquire(&save->shared.lock);
    save->shared.info.linked_bytes = next->stat.size;
    lock_release(&save->shared.lock);
    return SIDESTEP_OK;
}
