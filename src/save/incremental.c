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

void incremental_begin_save(struct incremental_state *state, bool committed, bool starts)
{
    if (state->pending && committed)
        state->last = state->next;
    else if (state->pending)
        state->last.exists = false;
    state->next.exists = false;
    state->pending = starts;
}

/* One write of the shard of unchanged tensors. */
struct unchanged_write {
    struct sidestep_save *save;
    const struct save_shard *shard;
    struct store_file
        *linked; /* the previous checkpoint's file, linked under our name; NULL: none */
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

static enum sidestep_status link_last(struct unchanged_write *k, struct sidestep_error *err)
{
    struct commit *commit = &k->save->commit;
    const struct incremental_shard *last = &k->save->engine->saver->incremental.last;
    struct store_stat stat;
    OWNED_FILE *file = NULL;

    assert(last->exists && k->linked == NULL);
    TRY(commit_shard_link(commit, INCREMENTAL_UNCHANGED_SHARD, last->dir, last->name, &file, err));
    TRY(store_file_stat(file, &stat, err));
    if (stat.inode != last->stat.inode || stat.device != last->stat.device ||
        stat.size != last->stat.size)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s/%s' is another file by now", last->dir,
                    last->name);
    /* Do not read the bytes again to compare: whoever wrote to the file may have changed any of
     * them. */
    if (stat.modified_ns != last->stat.modified_ns)
        return FAIL(err, SIDESTEP_ECORRUPT, "'%s/%s' was changed since it was written", last->dir,
                    last->name);
    k->linked = TAKE(file);
    return SIDESTEP_OK;
}

/* Create a new file, in place of the link, if there is one. */
static enum sidestep_status write_new(struct unchanged_write *k, struct sidestep_error *err)
    REQUIRES(&k->shared.lock)
{
    assert(k->shared.file == NULL);
    TRY(commit_shard_remove(&k->save->commit, INCREMENTAL_UNCHANGED_SHARD, err));
    return save_shard_file_create(k->save, k->shard, &k->shared.file, err);
}

static enum sidestep_status begin(struct unchanged_write *k, struct sidestep_error *err)
    REQUIRES(&k->shared.lock)
{
    const struct incremental_shard *last = &k->save->engine->saver->incremental.last;
    struct sidestep_error why = {0};

    if (!last->exists || strcmp(last->run_id, k->save->commit.run_id) != 0)
        return write_new(k, err);
    if (link_last(k, &why) == SIDESTEP_OK)
        return SIDESTEP_OK;
    set_link_reason(k->save, &why);
    return write_new(k, err);
}

/* See struct pipeline_target. */
static enum sidestep_status choose(void *context, size_t window, struct store_file **file,
                                   struct sidestep_error *err)
{
    struct unchanged_write *k = context;
    enum sidestep_status status = SIDESTEP_OK;

    assert(window < k->save->pipeline.image->unchanged_file_windows);
    lock_acquire(&k->shared.lock);
    if (k->shared.file == NULL && unchanged_matches_previous(k->save->pipeline.image, window))
        k->shared.skipped[window] = true;
    else if (k->shared.file == NULL)
        status = write_new(k, err);
    *file = k->shared.skipped[window] ? NULL : k->shared.file;
    lock_release(&k->shared.lock);
    return status;
}

/* Copy a skipped window from the linked file: check its tensor data, and make everything else
 * anew. */
static enum sidestep_status copy_window(struct unchanged_write *k, size_t i, uint8_t *buffer,
                                        struct sidestep_error *err)
{
    struct image *image = k->save->pipeline.image;
    const struct image_window *w = &image->windows[i];

    lock_alone(&k->shared.lock);
    assert(k->linked != NULL && k->shared.file != NULL);
    TRY(store_file_read_at(k->linked, buffer, w->bytes, w->offset, err));
    if (!unchanged_matches_hashes(image, i, buffer))
        return FAIL(err, SIDESTEP_ECORRUPT, "bytes %llu to %llu are not what was written there",
                    (unsigned long long)w->offset, (unsigned long long)(w->offset + w->bytes));
    image_stage_non_tensor_data(image, i, buffer);
    TRY(image_finish_window(image, i, buffer, err));
    return store_file_write_at(k->shared.file, buffer, w->bytes, w->offset, err);
}

static enum sidestep_status copy_skipped(struct unchanged_write *k, struct sidestep_error *err)
{
    const struct incremental_shard *last = &k->save->engine->saver->incremental.last;
    OWNED uint8_t *buffer = NULL;
    enum sidestep_status status = SIDESTEP_OK;

    lock_alone(&k->shared.lock);
    for (size_t i = 0; status == SIDESTEP_OK && i < k->save->pipeline.image->unchanged_file_windows;
         i++) {
        if (!k->shared.skipped[i])
            continue;
        if (buffer == NULL && (buffer = memory_new(IMAGE_WINDOW_MAX_BYTES, 1)) == NULL)
            return FAIL_NOMEM(err, IMAGE_WINDOW_MAX_BYTES);
        status = copy_window(k, i, buffer, err);
    }
    if (status != SIDESTEP_OK)
        error_wrap(err,
                   "copy what has not changed from '%s/%s' (the next save writes all of it anew)",
                   last->dir, last->name);
    return status;
}

static enum sidestep_status write_unchanged(struct unchanged_write *k, struct sidestep_error *err)
{
    struct sidestep_save *save = k->save;
    struct sidestep_engine *engine = save->engine;
    struct pipeline_target choice = {.choose = choose, .context = k};
    struct pipeline_writers writers = {&engine->io, engine->writers, engine->write_threads};

    size_t windows = save->pipeline.image->unchanged_file_windows;
    lock_alone(&k->shared.lock); /* but while the writers run */
    k->shared.skipped = memory_new(windows, sizeof(*k->shared.skipped));
    if (k->shared.skipped == NULL)
        return FAIL_NOMEM(err, windows);
    TRY(begin(k, err));
    TRY(pipeline_write_unchanged(&save->pipeline, &choice, &writers, err));
    return k->shared.file != NULL ? copy_skipped(k, err) : SIDESTEP_OK;
}

enum sidestep_status incremental_write_unchanged(struct sidestep_save *save,
                                                 const struct save_shard *shard,
                                                 struct store_file **file, bool *linked,
                                                 struct sidestep_error *err)
{
    struct unchanged_write k = {.save = save, .shard = shard};

    assert(shard->number == INCREMENTAL_UNCHANGED_SHARD && save->incremental);
    lock_init(&k.shared.lock, LOCK_INCREMENTAL);
    enum sidestep_status status = write_unchanged(&k, err);
    lock_destroy(&k.shared.lock);
    lock_alone(&k.shared.lock);
    free(k.shared.skipped);
    if (status == SIDESTEP_OK) {
        *linked = k.shared.file == NULL;
        *file = *linked ? TAKE(k.linked) : TAKE(k.shared.file);
    }
    store_file_discard(k.linked);
    store_file_discard(k.shared.file);
    TRACE(save, "rank %u: kept shard %s", save->commit.rank, *linked ? "linked" : "written");
    return status;
}

enum sidestep_status incremental_record_unchanged(struct sidestep_save *save,
                                                  struct store_file *file, bool linked,
                                                  struct sidestep_error *err)
{
    struct incremental_state *state = &save->engine->saver->incremental;
    struct incremental_shard *next = &state->next;

    assert(state->pending);
    TRY(store_file_stat(file, &next->stat, err));
    next->links = linked ? state->last.links + 1 : 0;
    next->exists = true;
    memcpy(next->run_id, save->commit.run_id, sizeof(next->run_id));
    memcpy(next->dir, save->commit.path, sizeof(next->dir));
    commit_shard_name(&save->commit, INCREMENTAL_UNCHANGED_SHARD, next->name);
    if (!linked)
        return SIDESTEP_OK;
    lock_acquire(&save->shared.lock);
    save->shared.info.linked_bytes = next->stat.size;
    lock_release(&save->shared.lock);
    return SIDESTEP_OK;
}
