/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_write.c -- archives as torch.save() of torch >= 2.7 writes them, byte for byte: which
 * members, how they are padded, and how the serialization id is made.
 *
 * A tensor's head and tail are written without its data, so the zip writer keeps the position in
 * the archive itself, and can count without writing.
 */
#include "format/archive.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/owned.h"
#include "codec/hash.h"
#include "format/archive_pickle.h"
#include "format/archive_zip.h"
#include "format/pickle.h"

#define PREFIX "archive/"
#define DATA_NAME "data/0"
#define ALIGNMENT 64u
#define MAX_MEMBERS 8u
#define ID_DIGITS 40

/* Half of the serialization id: a hash of the members' names, which are always the same. */
#define NAMES_HASH_TENSOR 15728199511854643026ull
#define NAMES_HASH_OBJECT 2908468677762923104ull

struct member {
    const char *name;
    uint64_t offset; /* of the local header */
    uint64_t size;
    uint32_t crc;
};

struct writer {
    struct buffer *out; /* NULL: only count */
    uint64_t position;  /* in the archive */
    uint64_t crc_hash;  /* half of the serialization id */
    struct member members[MAX_MEMBERS];
    size_t count;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    if (w->out != NULL)
        buffer_put(w->out, bytes, n);
    w->position += n;
}

static void put_le(struct writer *w, uint64_t value, unsigned bytes)
{
    uint8_t little[8];

    for (unsigned i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> (8 * i));
    put(w, little, bytes);
}

/* A value that does not fit into 32 bits, or is the mark for that. */
static bool is_big(uint64_t value)
{
    return value >= UINT32_MAX;
}

static uint32_t saturated(uint64_t value)
{
    return is_big(value) ? UINT32_MAX : (uint32_t)value;
}

static bool is_zip64(const struct member *member)
{
    return is_big(member->size) || is_big(member->offset);
}

/* ${stored_size}: the local header knows only the size, and says 0. */
static void put_zip64_extra(struct writer *w, const struct member *member, uint64_t stored_size)
{
    put_le(w, 1, 2);
    put_le(w, (is_big(member->size) ? 16 : 0) + (is_big(member->offset) ? 8 : 0), 2);
    if (is_big(member->size)) {
        put_le(w, member->size, 8);
        put_le(w, stored_size, 8);
    }
    if (is_big(member->offset))
        put_le(w, member->offset, 8);
}

static unsigned zip64_extra_bytes(const struct member *member)
{
    return (is_zip64(member) ? 4 : 0) + (is_big(member->size) ? 16 : 0) +
           (is_big(member->offset) ? 8 : 0);
}

static uint16_t member_flags(const struct member *member)
{
    return member->size != 0 ? 0x0808 : 0x0800; /* a descriptor follows; the name is UTF-8 */
}

/* Start a member: its data begins at w->position afterwards, aligned. */
static struct member *put_local_header(struct writer *w, const char *name, uint64_t size)
{
    static const char padding[ALIGNMENT] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
                                           "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    struct member *member = &w->members[w->count++];
    size_t name_bytes = strlen(PREFIX) + strlen(name);

    assert(w->count <= MAX_MEMBERS);
    *member = (struct member){.name = name, .offset = w->position, .size = size};
    uint64_t start = w->position + 30 + name_bytes + zip64_extra_bytes(member) + 4;
    unsigned pad = (unsigned)(round_up(start, ALIGNMENT) - start);

    put_le(w, ZIP_LOCAL_SIGNATURE, 4);
    put_le(w, 0, 2);
    put_le(w, member_flags(member), 2);
    put_le(w, 0, 6); /* method, time, date */
    put_le(w, 0, 4); /* CRC and sizes: see the descriptor */
    put_le(w, 0, 8);
    put_le(w, name_bytes, 2);
    put_le(w, zip64_extra_bytes(member) + 4 + pad, 2);
    put(w, PREFIX, strlen(PREFIX));
    put(w, name, strlen(name));
    if (is_zip64(member))
        put_zip64_extra(w, member, 0);
    put(w, "FB", 2);
    put_le(w, pad, 2);
    put(w, padding, pad);
    return member;
}

/* boost's hash_combine, as torch has it. */
static uint64_t combine(uint64_t seed, uint32_t crc)
{
    return seed ^ ((uint64_t)crc + 0x9e3779b9u + (seed << 6) + (seed >> 2));
}

/* End the member whose data is at w->position. */
static void put_descriptor(struct writer *w, struct member *member, uint32_t crc)
{
    unsigned width = is_zip64(member) ? 8 : 4;

    member->crc = crc;
    if (member->size == 0)
        return;
    w->crc_hash = combine(w->crc_hash, crc);
    put_le(w, ZIP_DESCRIPTOR_SIGNATURE, 4);
    put_le(w, crc, 4);
    put_le(w, member->size, width);
    put_le(w, member->size, width);
}

/* A whole member.  ${crc}: its CRC where that is known already, NULL to compute it. */
static void put_member(struct writer *w, const char *name, const void *bytes, size_t size,
                       const uint32_t *crc)
{
    struct member *member = put_local_header(w, name, size);

    put(w, bytes, size);
    put_descriptor(w, member, crc != NULL ? *crc : hash_crc32(0, bytes, size));
}

static void put_directory(struct writer *w)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct member *member = &w->members[i];

        put_le(w, ZIP_CENTRAL_SIGNATURE, 4);
        put_le(w, 0, 4); /* versions */
        put_le(w, member_flags(member), 2);
        put_le(w, 0, 6); /* method, time, date */
        put_le(w, member->crc, 4);
        put_le(w, saturated(member->size), 4);
        put_le(w, saturated(member->size), 4);
        put_le(w, strlen(PREFIX) + strlen(member->name), 2);
        put_le(w, zip64_extra_bytes(member), 2);
        put_le(w, 0, 8); /* comment, disk, attributes */
        put_le(w, 0, 2);
        put_le(w, saturated(member->offset), 4);
        put(w, PREFIX, strlen(PREFIX));
        put(w, member->name, strlen(member->name));
        if (is_zip64(member))
            put_zip64_extra(w, member, member->size);
    }
}

static void put_end(struct writer *w, uint64_t directory_offset)
{
    uint64_t end = w->position;

    put_le(w, ZIP_END64_SIGNATURE, 4);
    put_le(w, 44, 8);         /* bytes that follow */
    put_le(w, 0x002d031e, 4); /* versions */
    put_le(w, 0, 8);          /* disks */
    put_le(w, w->count, 8);
    put_le(w, w->count, 8);
    put_le(w, end - directory_offset, 8);
    put_le(w, directory_offset, 8);

    put_le(w, ZIP_LOCATOR_SIGNATURE, 4);
    put_le(w, 0, 4);
    put_le(w, end, 8);
    put_le(w, 1, 4);

    put_le(w, ZIP_END_SIGNATURE, 4);
    put_le(w, 0, 4);
    put_le(w, w->count, 2);
    put_le(w, w->count, 2);
    put_le(w, end - directory_offset, 4);
    put_le(w, saturated(directory_offset), 4);
    put_le(w, 0, 2);
}

/* What stands in front of the storage.  ${crcs}: of these four, where known; else NULL. */
static void put_first_members(struct writer *w, const void *pickle, size_t pickle_bytes,
                              const uint32_t *crcs)
{
    put_member(w, "data.pkl", pickle, pickle_bytes, crcs);
    put_member(w, ".format_version", "1", 1, crcs != NULL ? crcs + 1 : NULL);
    put_member(w, ".storage_alignment", "64", 2, crcs != NULL ? crcs + 2 : NULL);
    put_member(w, "byteorder", "little", 6, crcs != NULL ? crcs + 3 : NULL);
}

/* What stands behind the storage. */
static void put_last_members(struct writer *w, uint64_t names_hash)
{
    char id[ID_DIGITS + 1];

    put_member(w, "version", "3\n", 2, NULL);
    snprintf(id, sizeof(id), "%020llu%020llu", (unsigned long long)names_hash,
             (unsigned long long)w->crc_hash);
    put_member(w, ".data/serialization_id", id, ID_DIGITS, NULL);
    uint64_t directory_offset = w->position;
    put_directory(w);
    put_end(w, directory_offset);
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

/* Everything in front of the first byte of data. */
static void put_tensor_head(struct writer *w, const struct archive_plain_tensor *tensor,
                            const uint32_t *crcs)
{
    uint8_t pickle[ARCHIVE_PICKLE_BYTES];
    size_t pickle_bytes = archive_pickle_tensor(tensor, pickle);

    put_first_members(w, pickle, pickle_bytes, crcs);
    put_local_header(w, DATA_NAME, tensor->bytes);
}

/* Everything behind the last byte of data, where w->position is. */
static void put_tensor_tail(struct writer *w, uint32_t data_crc)
{
    put_descriptor(w, &w->members[w->count - 1], data_crc);
    put_last_members(w, NAMES_HASH_TENSOR);
}

enum sidestep_status archive_tensor_begin(enum sidestep_dtype dtype, uint32_t ndim,
                                          const int64_t *lengths, struct buffer *head,
                                          struct archive_tensor_layout *layout,
                                          struct sidestep_error *err)
{
    struct archive_plain_tensor tensor;
    struct writer w = {.out = head};

    TRY(check_tensor(dtype, ndim, lengths, &tensor, err));
    put_tensor_head(&w, &tensor, NULL);
    layout->head_bytes = w.position;
    layout->data_bytes = tensor.bytes;
    for (size_t i = 0; i < ARRAY_LENGTH(layout->head_crcs); i++)
        layout->head_crcs[i] = w.members[i].crc;

    w.out = NULL;
    w.position += tensor.bytes;
    uint64_t tail_offset = w.position;
    put_tensor_tail(&w, 0);
    layout->tail_bytes = w.position - tail_offset;
    return head != NULL ? buffer_check(head, err) : SIDESTEP_OK;
}

/* torch sees every write that starts like a data descriptor as one, so that such data changes
 * the serialization id. */
static void fold_data_quirk(struct writer *w, uint64_t data_bytes, const uint8_t first_bytes[8])
{
    uint32_t words[2];

    if (data_bytes < sizeof(words))
        return;
    memcpy(words, first_bytes, sizeof(words));
    if (words[0] == ZIP_DESCRIPTOR_SIGNATURE)
        w->crc_hash = combine(w->crc_hash, words[1]);
}

enum sidestep_status archive_tensor_end(enum sidestep_dtype dtype, uint32_t ndim,
                                        const int64_t *lengths,
                                        const struct archive_tensor_layout *layout,
                                        uint32_t data_crc, const uint8_t first_bytes[8],
                                        struct buffer *tail, struct sidestep_error *err)
{
    struct archive_plain_tensor tensor;
    struct writer w = {0};

    TRY(check_tensor(dtype, ndim, lengths, &tensor, err));
    put_tensor_head(&w, &tensor, layout->head_crcs);
    assert(w.position == layout->head_bytes && tensor.bytes == layout->data_bytes);
    assert(tensor.bytes != 0 || data_crc == 0);
    fold_data_quirk(&w, tensor.bytes, first_bytes);
    w.out = tail;
    w.position += tensor.bytes;
    put_tensor_tail(&w, data_crc);
    assert(w.position == layout->head_bytes + layout->data_bytes + layout->tail_bytes);
    return buffer_check(tail, err);
}

enum sidestep_status archive_object_write(const struct sidestep_value *value, struct buffer *out,
                                          struct sidestep_error *err)
{
    OWNED_BUFFER pickle = {0};
    struct writer w = {.out = out};

    TRY(pickle_write_value(&pickle, value, err));
    TRY(buffer_check(&pickle, err));
    if (pickle.length > ARCHIVE_MAX_PICKLE_BYTES)
        return FAIL(err, SIDESTEP_EINVAL,
                    "archive: the object's pickle has %zu bytes, more than %llu", pickle.length,
                    (unsigned long long)ARCHIVE_MAX_PICKLE_BYTES);
    put_first_members(&w, pickle.bytes, pickle.length, NULL);
    put_last_members(&w, NAMES_HASH_OBJECT);
    return buffer_check(out, err);
}
