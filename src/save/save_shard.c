/* SPDX-License-Identifier: BSD-3-Clause */
/* save_shard.c -- writes and seals the shards of this rank, in the background; see save_shard.h. */
#include "save/save_shard.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"
#include "save/save.h"
#include "save/save_shard_file.h"

static struct footer make_footer(const struct sidestep_save *save, const struct save_shard *shard)
{
    const struct commit *commit = &save->commit;
    const struct image *image = save->pipeline.image;
    struct footer footer = {
        .rank = commit->rank,
        .shard = shard->number,
        .shard_count = image->unchanged_file_windows != 0 ? 2 : 1,
        .world_size = commit->world_size,
        .layout_digest = commit->layout_digest,
        .count = shard->count,
        .items = shard->items,
    };

    memcpy(footer.save_id, commit->save_id_bytes, SAVE_ID_BYTES);
    if (shard->number == 0) {
        footer.extra_count = image->extra_count;
        footer.extras = image->extras;
    }
    for (size_t i = 0; i < shard->count; i++) {
        shard->items[i] = image->items[shard->first + i].footer;
        shard->items[i].offset -= shard->begin;
    }
    return footer;
}

/* Make the footer of a compressed shard. */
static struct footer make_compressed_footer(const struct sidestep_save *save,
                                            const struct save_shard *shard)
{
    struct footer footer = make_footer(save, shard);

    for (size_t i = 0; i < footer.count; i++) {
        shard->items[i] = *compressor_footer_item(save->compressor, shard->first + i);
        if (shard->items[i].transform != 0) {
            footer.transform_count = 1;
            footer.transforms = &save->codec_name;
        }
    }
    return footer;
}

static void add_total(struct sidestep_save *save, uint64_t bytes, uint64_t replaced_bytes)
{
    lock_acquire(&save->shared.lock);
    save->shared.info.bytes_total += bytes - replaced_bytes;
    lock_release(&save->shared.lock);
}

static enum sidestep_status write_footer(struct sidestep_save *save, const struct save_shard *shard,
                                         struct store_file *file, struct sidestep_error *err)
{
    OWNED_BUFFER bytes = {0};
    bool is_compressed = save_shard_file_is_compressed(save, shard);
    struct footer footer =
        is_compressed ? make_compressed_footer(save, shard) : make_footer(save, shard);
    uint64_t at = is_compressed ? compressor_body_bytes(save->compressor) : shard->body_bytes;

    TRY(footer_encode(&footer, at, &bytes, err));
    TRY(store_file_write_at(file, bytes.bytes, bytes.length, at, err));
    if (!is_compressed)
        return SIDESTEP_OK;
    add_total(save, at + bytes.length, shard->total_bytes);
    return store_file_truncate(file, at + bytes.length, err);
}

/* Record how the shard was written, for save info and events. */
static void record_io(struct sidestep_save *save, struct store_file *file)
{
    uint32_t flags = store_file_alignment(file) != 0 ? SIDESTEP_SAVE_DIRECT_IO : 0;

    lock_alone(&save->pipeline.shared.lock); /* the writers have ended */
    if (save->pipeline.shared.used_ring)
        flags |= SIDESTEP_SAVE_URING;
    lock_acquire(&save->shared.lock);
    save->shared.info.flags |= flags;
    save->shared.info.held_ns = save->pipeline.shared.held_ns;
    save->shared.info.backed_off_ns = save->pipeline.shared.backed_off_ns;
    save->shared.info.pool_bytes = pool_slots_peak_bytes(save->pipeline.slots);
    save->shared.info.ahead_bytes = atomic_load(&save->pipeline.ahead_bytes);
    save->shared.info.cpu_ns = atomic_load(&save->pipeline.ran_ns);
    save->shared.info.cpu_wait_ns = atomic_load(&save->pipeline.waited_ns);
    lock_release(&save->shared.lock);
}

/* Record the bytes saved by compression, per dtype and in total. */
static void record_gains(struct sidestep_save *save)
{
    struct sidestep_save_info *info = &save->shared.info;

    lock_acquire(&save->shared.lock);
    for (size_t dtype = 0; dtype < SIDESTEP_DTYPE_END; dtype++) {
        const struct compressor_gain *gain = &compressor_gains(save->compressor)[dtype];
        info->gains[dtype] = (struct sidestep_gain){.raw_bytes = gain->raw_bytes,
                                                    .stored_bytes = gain->stored_bytes,
                                                    .encode_ns = gain->encode_ns};
        info->raw_bytes += gain->raw_bytes;
        info->stored_bytes += gain->stored_bytes;
        info->encode_ns += gain->encode_ns;
    }
    lock_release(&save->shared.lock);
}

static enum sidestep_status write_body(struct sidestep_save *save, struct store_file *file,
                                       struct sidestep_error *err) ON_THREAD(RUNNER)
{
    struct sidestep_engine *engine = save->engine;
    struct store_queue_config config = {.ring = engine->io.ring, .depth = engine->io.depth};
    struct pipeline_writers writers = {&config, engine->writers, engine->write_threads};

    lock_acquire(&save->shared.lock);
    save->shared.info.io_depth = config.depth;
    lock_release(&save->shared.lock);
    if (save->compressor == NULL)
        return pipeline_write(&save->pipeline, file, &writers, err);
    TRY(compressor_write(save->compressor, &save->pipeline, &save->saver->compressor_buffers, file,
                         &engine->io, engine->writers, err));
    record_gains(save);
    return SIDESTEP_OK;
}

/* Split the image into the shards of this rank.  The unchanged shard has items only if the image
 * has such a file. */
static void split_image(struct sidestep_save *save, struct footer_item *items,
                        struct save_shard *own, struct save_shard *unchanged)
{
    const struct image *image = save->pipeline.image;
    size_t unchanged_file_items =
        image->unchanged_file_windows != 0 ? image->unchanged_file_items : 0;

    assert(unchanged_file_items <= image->count &&
           image->unchanged_file_bytes <= image->body_bytes);
    *unchanged = (struct save_shard){.number = INCREMENTAL_UNCHANGED_SHARD,
                                     .count = unchanged_file_items,
                                     .body_bytes = image->unchanged_file_bytes,
                                     .items = items};
    *own = (struct save_shard){.first = unchanged_file_items,
                               .count = image->count - unchanged_file_items,
                               .begin = image->unchanged_file_bytes,
                               .body_bytes = image->body_bytes - image->unchanged_file_bytes,
                               .items = items + unchanged_file_items};
    for (int i = 0; i < 2; i++) {
        struct save_shard *shard = i == 0 ? own : unchanged;
        struct footer footer = make_footer(save, shard);
        shard->total_bytes = shard->body_bytes + footer_encoded_bytes(&footer);
    }
    uint64_t extra_bytes = 0;
    for (size_t i = 0; i < image->extra_count; i++)
        extra_bytes += image->extras[i].bytes;
    lock_acquire(&save->shared.lock);
    save->shared.info.bytes_total =
        own->total_bytes + extra_bytes + (unchanged_file_items != 0 ? unchanged->total_bytes : 0);
    lock_release(&save->shared.lock);
}

/* Write the unchanged shard, except for its seal: sealing waits for storage, and memory may be
 * protected until all is written. */
static enum sidestep_status write_unchanged(struct sidestep_save *save,
                                            const struct save_shard *shard,
                                            struct store_file **file, bool *linked,
                                            struct sidestep_error *err)
{
    TRY(incremental_write_unchanged(save, shard, file, linked, err));
    return *linked ? SIDESTEP_OK : write_footer(save, shard, *file, err);
}

static enum sidestep_status seal(struct sidestep_save *save, const struct save_shard *own,
                                 struct store_file *own_file, struct store_file *unchanged_file,
                                 bool linked, struct sidestep_error *err)
{
    OWNED_FILE *first = unchanged_file;
    OWNED_FILE *last = own_file;

    assert(last != NULL && (!linked || first != NULL));
    TRY(commit_check_aborted(&save->commit, err));
    if (first != NULL) {
        TRY(incremental_record_unchanged(save, first, linked, err));
        TRY(commit_shard_seal(&save->commit, INCREMENTAL_UNCHANGED_SHARD, TAKE(first), err));
    }
    return commit_shard_seal(&save->commit, own->number, TAKE(last), err);
}

/* Tell the throttle which disk ${file} is on, so that it backs off while others read from that
 * disk. */
static void watch_disk(struct sidestep_save *save, struct store_file *file)
{
    struct store_stat stat;

    if (store_file_stat(file, &stat, NULL) == SIDESTEP_OK)
        throttle_watch_disk(&save->engine->throttle, stat.device);
}

/* Limit the bandwidth, so that the write takes as long as the options say. */
static void spread_writes(struct sidestep_save *save)
{
    if (save->options.spread_ms == 0)
        return;
    lock_acquire(&save->shared.lock);
    double bytes = (double)save->shared.info.bytes_total;
    lock_release(&save->shared.lock);
    save->pipeline.bytes_per_second =
        max_u64(1, (uint64_t)(bytes * 1000 / (double)save->options.spread_ms));
}

/* Find the sizes of the files that the save takes. */
static enum sidestep_status size_extras(struct sidestep_save *save, struct sidestep_error *err)
{
    struct image *image = save->pipeline.image;

    for (size_t i = 0; i < image->extra_count; i++) {
        struct extra_file *file = &image->extras[i];
        const struct state_blob *blob = image->blobs[i];
        if (blob != NULL && blob->is_path)
            TRY(WRAP(
                commit_taken_bytes(&save->commit, (const char *)blob->bytes, &file->bytes, err),
                err, "file '%s'", file->name));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status write_extra(struct commit *commit, struct extra_file *file,
                                        const struct state_blob *blob, struct sidestep_error *err)
{
    if (blob->is_path)
        return commit_extra_take(commit, file->number, (const char *)blob->bytes, file->bytes,
                                 file->sha256, err);
    hash_sha256(blob->bytes, blob->length, file->sha256);
    return commit_extra_write(commit, file->number, blob->bytes, blob->length, err);
}

/* Write the extra files, before the footer that lists them. */
static enum sidestep_status write_extras(struct sidestep_save *save, struct sidestep_error *err)
{
    struct image *image = save->pipeline.image;

    for (size_t i = 0; i < image->extra_count; i++) {
        struct extra_file *file = &image->extras[i];
        const struct state_blob *blob = image->blobs[i];
        file->rank = save->commit.rank;
        if (blob == NULL)
            continue;
        TRY(WRAP(write_extra(&save->commit, file, blob, err), err, "file '%s'", file->name));
    }
    return SIDESTEP_OK;
}

enum sidestep_status save_write_shards(struct sidestep_save *save, struct sidestep_error *err)
{
    struct image *image = save->pipeline.image;
    OWNED struct footer_item *items = memory_new(image->count, sizeof(*items));
    struct save_shard own, unchanged;
    OWNED_FILE *file = NULL;
    OWNED_FILE *unchanged_file = NULL;
    bool linked = false;

    if (items == NULL)
        return FAIL_NOMEM(err, image->count * sizeof(*items));
    TRY(size_extras(save, err));
    split_image(save, items, &own, &unchanged);
    TRY(save_shard_file_create(save, &own, &file, err));
    watch_disk(save, file);
    save->pipeline.throttle = &save->engine->throttle;
    spread_writes(save);
    if (unchanged.count != 0)
        TRY(write_unchanged(save, &unchanged, &unchanged_file, &linked, err));
    TRY(write_body(save, file, err));
    TRY(save_end_fence_check(save, err));
    record_io(save, file);
    pipeline_trim_pool(&save->pipeline);
    slot_end_memory_turn(save);
    TRY(write_extras(save, err));
    TRY(write_footer(save, &own, file, err));
    return seal(save, &own, TAKE(file), TAKE(unchanged_file), linked, err);
}
