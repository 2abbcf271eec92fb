/* SPDX-License-Identifier: BSD-3-Clause */
/* model_shard.c -- writes and checks real shards with eight bytes of data that depend on save and
 * rank; see model.h. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "checkpoint/reader.h"

static const char *const tensors[] = {"w", "kept"}; /* by number of the shard */
#define DATA_BYTES 8

static uint64_t expected_data(const uint8_t id[SAVE_ID_BYTES], uint32_t rank)
{
    return XXH3_64bits_withSeed(id, SAVE_ID_BYTES, rank);
}

/* One tensor over all ranks; each rank has DATA_BYTES of it. */
struct layout {
    int64_t shape[1], offsets[1], lengths[1];
    struct sidestep_path_item path[1];
    uint64_t data, block;
    struct footer_item item;
};

static enum sidestep_status put_item(struct layout *l, const struct commit *commit, uint64_t data,
                                     const char *tensor, struct buffer *out,
                                     struct sidestep_error *err)
{
    struct archive_tensor_layout archive;
    uint8_t first_bytes[8];
    OWNED_BUFFER envelope = {0};

    *l = (struct layout){
        .shape = {DATA_BYTES * commit->world_size},
        .offsets = {DATA_BYTES * commit->rank},
        .lengths = {DATA_BYTES},
        .path = {{.key = tensor}},
        .data = data,
    };
    memcpy(first_bytes, &l->data, sizeof(first_bytes));
    l->block = hash_block(&l->data, DATA_BYTES);
    TRY(archive_tensor_write_head(SIDESTEP_UINT8, 1, l->lengths, out, &archive, err));
    buffer_put(&envelope, out->bytes, out->length);
    buffer_put(out, &l->data, DATA_BYTES);
    size_t tail = out->length;
    TRY(archive_tensor_write_tail(&archive, hash_crc32(0, &l->data, DATA_BYTES), first_bytes, out,
                                  err));
    buffer_put(&envelope, out->bytes + tail, out->length - tail);
    l->item = (struct footer_item){
        .name = tensor,
        .dtype = SIDESTEP_UINT8,
        .ndim = 1,
        .shape = l->shape,
        .box = {.ndim = 1, .offsets = l->offsets, .lengths = l->lengths},
        .path_length = 1,
        .path = l->path,
        .bytes = out->length,
        .data_offset = archive.head_bytes,
        .data_bytes = DATA_BYTES,
        .raw_bytes = DATA_BYTES,
        .envelope_hash = hash_block(envelope.bytes, envelope.length),
        .raw_hash = hash_block_list(&l->block, 1),
        .block_count = 1,
        .blocks = &l->block,
    };
    return buffer_check(&envelope, err);
}

/* Write as the engine does: items first, then footer and trailer. */
static enum sidestep_status write_data(struct commit *commit, struct store_file *file,
                                       const uint8_t id[SAVE_ID_BYTES], uint64_t data,
                                       uint32_t number, uint32_t count, struct sidestep_error *err)
{
    struct layout layout;
    struct model_extra extras[MODEL_EXTRAS];
    struct extra_file files[MODEL_EXTRAS];
    OWNED_BUFFER items = {0};
    OWNED_BUFFER footer_bytes = {0};

    TRY(put_item(&layout, commit, data, tensors[number], &items, err));
    struct footer footer = {
        .rank = commit->rank,
        .shard = number,
        .shard_count = count,
        .world_size = commit->world_size,
        .layout_digest = commit->layout_digest,
        .count = 1,
        .items = &layout.item,
    };
    memcpy(footer.save_id, id, SAVE_ID_BYTES);
    if (number == 0)
        files_put(commit->save_id_bytes, commit->rank, &footer, extras, files);
    TRY(footer_encode(&footer, items.length, &footer_bytes, err));
    TRY(store_file_allocate(file, items.length + footer_bytes.length, err));
    TRY(store_file_write_at(file, items.bytes, items.length, 0, err));
    return store_file_write_at(file, footer_bytes.bytes, footer_bytes.length, items.length, err);
}

enum sidestep_status shard_write(struct commit *commit, struct store_file *file,
                                 const uint8_t id[SAVE_ID_BYTES], uint32_t number, uint32_t count,
                                 struct sidestep_error *err)
{
    return write_data(commit, file, id, expected_data(id, commit->rank), number, count, err);
}

enum sidestep_status shard_write_stray(struct commit *commit, struct store_file *file,
                                       const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err)
{
    return write_data(commit, file, id, ~expected_data(id, commit->rank), 0, 1, err);
}

static bool check_chunk(struct reader *reader, const struct metadata_entry *entry,
                        const struct metadata_chunk *chunk, const uint8_t id[SAVE_ID_BYTES],
                        struct sidestep_error *err)
{
    struct reader_item item;
    uint64_t data = 0;
    uint64_t wanted = expected_data(id, (uint32_t)((uint64_t)chunk->box.offsets[0] / DATA_BYTES));

    if (reader_locate_item(reader, entry, &chunk->storage, &chunk->box, NULL, &item, err) !=
        SIDESTEP_OK)
        return false;
    if (!item.ranged || item.data_bytes != DATA_BYTES) {
        (void)FAIL(err, SIDESTEP_ECORRUPT, "an item has another form than that written");
        return false;
    }
    if (source_read(&item.file->source, &data, DATA_BYTES, item.data_offset, err) != SIDESTEP_OK ||
        reader_check_blocks(&item, 0, &data, DATA_BYTES, err) != SIDESTEP_OK)
        return false;
    if (data != wanted)
        (void)FAIL(err, SIDESTEP_ECORRUPT, "the data are of another save or rank");
    return data == wanted;
}

/* Is the tensor in the shards with ${number} the one that save ${id} wrote? */
static bool check_tensor(struct reader *reader, const struct model_save *save, uint32_t number,
                         const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err)
{
    const struct metadata_entry *entry = metadata_find(&reader->metadata, tensors[number]);
    bool is_whole = entry != NULL && entry->chunk_count == save->ranks;

    if (!is_whole)
        (void)FAIL(err, SIDESTEP_ECORRUPT, "an entry, or chunks of it, are missing");
    for (size_t i = 0; is_whole && i < entry->chunk_count; i++)
        is_whole = check_chunk(reader, entry, &entry->chunks[i], id, err);
    return is_whole;
}

/* Is the open checkpoint the complete ${save}? */
bool shard_check_all(struct reader *reader, const struct model_save *save, struct problem *problem)
{
    struct sidestep_error err = {0};
    size_t shards = save->has_kept ? 2 : 1;
    bool is_whole = reader->metadata.count == shards && reader->has_manifest &&
                    reader->manifest.file_count == shards * save->ranks;

    if (!is_whole)
        (void)FAIL(&err, SIDESTEP_ECORRUPT, "entries or files are missing");
    is_whole = is_whole && check_tensor(reader, save, 0, save->id, &err) &&
               (!save->has_kept || check_tensor(reader, save, 1, save->kept_id, &err)) &&
               files_check(reader, save, &err);
    if (!is_whole)
        snprintf(problem->text, sizeof(problem->text),
                 "a reader opens '%s', which is not complete: %s", save->name, err.message);
    return is_whole;
}
