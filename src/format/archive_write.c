/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_write.c -- see archive.h: writes archives with the same bytes as torch.save() of torch
 * >= 2.7: the members, and the serialization id.
 */
#include "format/archive.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/archive_pickle.h"
#include "format/archive_zip.h"
#include "format/pickle.h"
#include "format/zip_writer.h"

#define PREFIX "archive/"
#define DATA_NAME "data/0"
#define MAX_MEMBERS 8u
#define ID_DIGITS 40
#define VERSION "3\n"
#define ZIP_DESCRIPTOR_CRC 4 /* offset of the CRC in a descriptor */

/* The first half of the serialization id: a hash of the members' names, which never change. */
#define NAMES_HASH_TENSOR 15728199511854643026ull
#define NAMES_HASH_OBJECT 2908468677762923104ull

static struct zip_writer writer_over(struct zip_writer_member members[MAX_MEMBERS],
                                     struct buffer *out)
{
    return (struct zip_writer){
        .prefix = PREFIX, .members = members, .capacity = MAX_MEMBERS, .out = out};
}

static const char *const first_names[ARCHIVE_HEAD_MEMBERS] = {"data.pkl", ".format_version",
                                                              ".storage_alignment", "byteorder"};

/* The members before the storage. */
static void put_first_members(struct zip_writer *w, const void *pickle, size_t pickle_bytes)
{
    zip_writer_add_member(w, first_names[0], pickle, pickle_bytes);
    zip_writer_add_member(w, first_names[1], "1", 1);
    zip_writer_add_member(w, first_names[2], "64", 2);
    zip_writer_add_member(w, first_names[3], "little", 6);
}

/* Write a number with 20 digits.  printf() would be slow for a checkpoint of small tensors. */
static void put_digits(char to[ID_DIGITS / 2], uint64_t number)
{
    for (unsigned i = ID_DIGITS / 2; i-- > 0; number /= 10)
        to[i] = (char)('0' + number % 10);
}

/* The members after the storage. */
static void put_last_members(struct zip_writer *w, uint64_t names_hash)
{
    char id[ID_DIGITS];

    zip_writer_add_member(w, "version", VERSION, sizeof(VERSION) - 1);
    put_digits(id, names_hash);
    put_digits(id + ID_DIGITS / 2, w->crc_hash);
    zip_writer_add_member(w, ".data/serialization_id", id, ID_DIGITS);
    zip_writer_finish(w);
}

/* ---------------------------------------------------------------- the public functions */

static enum sidestep_status check_tensor(enum sidestep_dtype dtype, uint32_t ndim,
                                         const int64_t *lengths,
                                         struct archive_plain_tensor *tensor,
                                         struct sidestep_error *err)
{
    uint64_t stride = 1;
    bool is_empty = false;

    if (sidestep_dtype_size(dtype) == 0)
        return FAIL(err, SIDESTEP_EINVAL, "archive: there is no dtype %d", (int)dtype);
    if (ndim > SIDESTEP_MAX_NDIM)
        return FAIL(err, SIDESTEP_EINVAL, "archive: %u dimensions are more than %d", ndim,
                    SIDESTEP_MAX_NDIM);
    for (uint32_t i = ndim; i-- > 0;) {
        if (lengths[i] < 0)
            return FAIL(err, SIDESTEP_EINVAL, "archive: dimension %u has length %lld", i,
                        (long long)lengths[i]);
        tensor->strides[i] = (int64_t)stride;
        is_empty = is_empty || lengths[i] == 0;
        if (!checked_mul(stride, max_u64((uint64_t)lengths[i], 1), &stride) ||
            stride > ((uint64_t)1 << 62) / sidestep_dtype_size(dtype))
            return FAIL(err, SIDESTEP_EINVAL, "archive: the tensor has more than 2^62 bytes");
    }
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->lengths = lengths;
    tensor->elements = is_empty ? 0 : stride;
    tensor->bytes = tensor->elements * sidestep_dtype_size(dtype);
    return SIDESTEP_OK;
}

static void put_tensor_head(struct zip_writer *w, const struct archive_plain_tensor *tensor)
{
    uint8_t pickle[ARCHIVE_PICKLE_BUFFER_BYTES];
    size_t pickle_bytes = archive_pickle_write_tensor(tensor, pickle);

    put_first_members(w, pickle, pickle_bytes);
    (void)zip_writer_begin_member(w, DATA_NAME, tensor->bytes);
}

/* Write everything after the data, at whose end w->position is. */
static void put_tensor_tail(struct zip_writer *w, uint32_t data_crc)
{
    zip_writer_end_member(w, &w->members[w->count - 1], data_crc);
    put_last_members(w, NAMES_HASH_TENSOR);
}

/* Set ${layout} from the head that ${w} has written. */
static void set_layout(const struct zip_writer *w, uint64_t data_bytes,
                       struct archive_tensor_layout *layout)
{
    layout->head_bytes = w->position;
    layout->data_bytes = data_bytes;
    for (size_t i = 0; i < ARCHIVE_HEAD_MEMBERS; i++) {
        layout->head[i].offset = (uint32_t)w->members[i].offset;
        layout->head[i].size = (uint32_t)w->members[i].size;
        layout->head[i].crc = w->members[i].crc;
    }
    layout->data_header = (uint32_t)w->members[ARCHIVE_HEAD_MEMBERS].offset;
}

/* Restore ${w} to its state after the head. */
static void resume_behind_head(struct zip_writer *w, const struct archive_tensor_layout *layout)
{
    for (size_t i = 0; i < ARCHIVE_HEAD_MEMBERS; i++) {
        w->members[i] = (struct zip_writer_member){.name = first_names[i],
                                                   .offset = layout->head[i].offset,
                                                   .size = layout->head[i].size,
                                                   .crc = layout->head[i].crc};
        zip_writer_fold_crc(w, layout->head[i].crc);
    }
    w->members[ARCHIVE_HEAD_MEMBERS] = (struct zip_writer_member){
        .name = DATA_NAME, .offset = layout->data_header, .size = layout->data_bytes};
    w->count = ARCHIVE_HEAD_MEMBERS + 1;
    w->position = layout->head_bytes;
}

enum sidestep_status archive_tensor_write_head(enum sidestep_dtype dtype, uint32_t ndim,
                                               const int64_t *lengths, struct buffer *head,
                                               struct archive_tensor_layout *layout,
                                               struct sidestep_error *err)
{
    struct archive_plain_tensor tensor;
    struct zip_writer_member members[MAX_MEMBERS];
    struct zip_writer w = writer_over(members, head);

    TRY(check_tensor(dtype, ndim, lengths, &tensor, err));
    put_tensor_head(&w, &tensor);
    set_layout(&w, tensor.bytes, layout);

    w.out = NULL;
    w.position += tensor.bytes;
    uint64_t tail_offset = w.position;
    put_tensor_tail(&w, 0);
    layout->tail_bytes = w.position - tail_offset;
    return head != NULL ? buffer_check(head, err) : SIDESTEP_OK;
}

static bool is_same_layout(const struct archive_tensor_layout *a,
                           const struct archive_tensor_layout *b)
{
    return a->head_bytes == b->head_bytes && a->data_bytes == b->data_bytes &&
           a->data_header == b->data_header && memcmp(a->head, b->head, sizeof(a->head)) == 0;
}

/* torch takes each write that begins with the signature of a data descriptor for a descriptor.  So
 * data that begins like this changes the serialization id. */
static void fold_false_descriptor(struct zip_writer *w, uint64_t data_bytes,
                                  const uint8_t first_bytes[8])
{
    uint32_t words[2];

    if (data_bytes < sizeof(words))
        return;
    memcpy(words, first_bytes, sizeof(words));
    if (words[0] == ZIP_DESCRIPTOR_SIGNATURE)
        zip_writer_fold_crc(w, words[1]);
}

/* Write the tail to w->out. */
static void make_tail(struct zip_writer *w, const struct archive_tensor_layout *layout,
                      uint32_t data_crc, const uint8_t first_bytes[8])
{
    assert(layout->data_bytes != 0 || data_crc == 0);
    resume_behind_head(w, layout);
    fold_false_descriptor(w, layout->data_bytes, first_bytes);
    w->position += layout->data_bytes;
    put_tensor_tail(w, data_crc);
    assert(w->position == layout->head_bytes + layout->data_bytes + layout->tail_bytes);
}

enum sidestep_status archive_tensor_write_tail(const struct archive_tensor_layout *layout,
                                               uint32_t data_crc, const uint8_t first_bytes[8],
                                               struct buffer *tail, struct sidestep_error *err)
{
    struct zip_writer_member members[MAX_MEMBERS];
    struct zip_writer w = writer_over(members, tail);

    make_tail(&w, layout, data_crc, first_bytes);
    return buffer_check(tail, err);
}

void archive_tail_cache_release(struct archive_tail_cache *cache)
{
    buffer_release(&cache->bytes);
}

/* The offsets of a member's CRC in the tail. */
static void find_crcs(const struct zip_writer_member *member, uint64_t tail_at, size_t crcs[2])
{
    for (int i = 0; i < 2; i++)
        crcs[i] = member->crc_at[i] != 0 ? (size_t)(member->crc_at[i] - tail_at) : SIZE_MAX;
}

static enum sidestep_status new_tail(struct archive_tail_cache *cache,
                                     const struct archive_tensor_layout *layout, uint32_t data_crc,
                                     const uint8_t first_bytes[8], struct sidestep_error *err)
{
    struct zip_writer_member members[MAX_MEMBERS];
    struct zip_writer w = writer_over(members, &cache->bytes);
    uint64_t tail_at = layout->head_bytes + layout->data_bytes;

    cache->bytes.length = 0;
    cache->layout = (struct archive_tensor_layout){0}; /* if this fails, it matches no tensor */
    make_tail(&w, layout, data_crc, first_bytes);
    TRY(buffer_check(&cache->bytes, err));
    find_crcs(&members[ARCHIVE_HEAD_MEMBERS], tail_at, cache->data_crcs);
    find_crcs(&members[w.count - 1], tail_at, cache->id_crcs);
    cache->id = cache->id_crcs[0] - ZIP_DESCRIPTOR_CRC - ID_DIGITS;
    cache->layout = *layout;
    return SIDESTEP_OK;
}

static void put_crc(struct archive_tail_cache *cache, const size_t at[2], uint32_t crc)
{
    uint32_t little = htole32(crc);

    for (int i = 0; i < 2; i++)
        if (at[i] != SIZE_MAX)
            memcpy(cache->bytes.bytes + at[i], &little, sizeof(little));
}

/* Change the cached tail to the one that put_tensor_tail() would write. */
static void change_tail(struct archive_tail_cache *cache, uint32_t data_crc,
                        const uint8_t first_bytes[8])
{
    const struct archive_tensor_layout *layout = &cache->layout;
    char *id = (char *)cache->bytes.bytes + cache->id;
    struct zip_writer w = {0};

    for (size_t i = 0; i < ARCHIVE_HEAD_MEMBERS; i++)
        zip_writer_fold_crc(&w, layout->head[i].crc);
    fold_false_descriptor(&w, layout->data_bytes, first_bytes);
    if (layout->data_bytes != 0)
        zip_writer_fold_crc(&w, data_crc);
    zip_writer_fold_crc(&w, hash_crc32(0, VERSION, sizeof(VERSION) - 1));
    put_digits(id + ID_DIGITS / 2, w.crc_hash);
    put_crc(cache, cache->data_crcs, data_crc);
    put_crc(cache, cache->id_crcs, hash_crc32(0, id, ID_DIGITS));
}

enum sidestep_status archive_tensor_write_tail_cached(
    struct archive_tail_cache *cache, const struct archive_tensor_layout *layout, uint32_t data_crc,
    const uint8_t first_bytes[8], struct buffer *tail, struct sidestep_error *err)
{
    if (cache->layout.tail_bytes != 0 && is_same_layout(&cache->layout, layout))
        change_tail(cache, data_crc, first_bytes);
    else
        TRY(new_tail(cache, layout, data_crc, first_bytes, err));
    buffer_put(tail, cache->bytes.bytes, cache->bytes.length);
    return buffer_check(tail, err);
}

enum sidestep_status archive_object_write(const struct sidestep_value *value, struct buffer *out,
                                          struct sidestep_error *err)
{
    OWNED_BUFFER pickle = {0};
    struct zip_writer_member members[MAX_MEMBERS];
    struct zip_writer w = writer_over(members, out);

    TRY(pickle_write_value(&pickle, value, err));
    TRY(buffer_check(&pickle, err));
    if (pickle.length > ARCHIVE_MAX_PICKLE_BYTES)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "archive: the object's pickle has %zu bytes, and at most %llu can be read "
                    "again: split it, or save tensors",
                    pickle.length, (unsigned long long)ARCHIVE_MAX_PICKLE_BYTES);
    put_first_members(&w, pickle.bytes, pickle.length);
    put_last_members(&w, NAMES_HASH_OBJECT);
    return buffer_check(out, err);
}
