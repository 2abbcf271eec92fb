/* SPDX-License-Identifier: BSD-3-Clause */
/* zip_writer.c -- see zip_writer.h. */
#include "format/zip_writer.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "codec/hash.h"
#include "format/archive_zip.h"

static void put(struct zip_writer *w, const void *bytes, size_t n)
{
    if (w->out != NULL)
        buffer_put(w->out, bytes, n);
    w->position += n;
}

static void put_le(struct zip_writer *w, uint64_t value, unsigned bytes)
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

static bool is_zip64(const struct zip_writer_member *member)
{
    return is_big(member->size) || is_big(member->offset);
}

/* ${stored_size}: the local header knows only the size, and says 0. */
static void put_zip64_extra(struct zip_writer *w, const struct zip_writer_member *member,
                            uint64_t stored_size)
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

static unsigned zip64_extra_bytes(const struct zip_writer_member *member)
{
    return (is_zip64(member) ? 4 : 0) + (is_big(member->size) ? 16 : 0) +
           (is_big(member->offset) ? 8 : 0);
}

static uint16_t member_flags(const struct zip_writer_member *member)
{
    return member->size != 0 ? 0x0808 : 0x0800; /* a descriptor follows; the name is UTF-8 */
}

struct zip_writer_member *zip_writer_begin(struct zip_writer *w, const char *name, uint64_t size)
{
    static const char padding[ZIP_WRITER_ALIGNMENT] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
                                                      "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    struct zip_writer_member *member = &w->members[w->count++];
    size_t name_bytes = strlen(w->prefix) + strlen(name);

    assert(w->count <= w->room);
    *member = (struct zip_writer_member){.name = name, .offset = w->position, .size = size};
    uint64_t start = w->position + 30 + name_bytes + zip64_extra_bytes(member) + 4;
    unsigned pad = (unsigned)(round_up(start, ZIP_WRITER_ALIGNMENT) - start);

    put_le(w, ZIP_LOCAL_SIGNATURE, 4);
    put_le(w, 0, 2);
    put_le(w, member_flags(member), 2);
    put_le(w, 0, 6); /* method, time, date */
    put_le(w, 0, 4); /* CRC and sizes: see the descriptor */
    put_le(w, 0, 8);
    put_le(w, name_bytes, 2);
    put_le(w, zip64_extra_bytes(member) + 4 + pad, 2);
    put(w, w->prefix, strlen(w->prefix));
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

void zip_writer_skip(struct zip_writer *w, uint64_t bytes)
{
    w->position += bytes;
}

unsigned zip_writer_end_bytes(const struct zip_writer_member *member)
{
    return member->size == 0 ? 0 : is_zip64(member) ? 24 : 16;
}

void zip_writer_combine(struct zip_writer *w, uint32_t crc)
{
    w->crc_hash = combine(w->crc_hash, crc);
}

void zip_writer_end(struct zip_writer *w, struct zip_writer_member *member, uint32_t crc)
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

void zip_writer_put(struct zip_writer *w, const char *name, const void *bytes, size_t size,
                    const uint32_t *crc)
{
    struct zip_writer_member *member = zip_writer_begin(w, name, size);

    put(w, bytes, size);
    zip_writer_end(w, member, crc != NULL ? *crc : hash_crc32(0, bytes, size));
}

static void put_directory(struct zip_writer *w)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct zip_writer_member *member = &w->members[i];

        put_le(w, ZIP_CENTRAL_SIGNATURE, 4);
        put_le(w, 0, 4); /* versions */
        put_le(w, member_flags(member), 2);
        put_le(w, 0, 6); /* method, time, date */
        put_le(w, member->crc, 4);
        put_le(w, saturated(member->size), 4);
        put_le(w, saturated(member->size), 4);
        put_le(w, strlen(w->prefix) + strlen(member->name), 2);
        put_le(w, zip64_extra_bytes(member), 2);
        put_le(w, 0, 8); /* comment, disk, attributes */
        put_le(w, 0, 2);
        put_le(w, saturated(member->offset), 4);
        put(w, w->prefix, strlen(w->prefix));
        put(w, member->name, strlen(member->name));
        if (is_zip64(member))
            put_zip64_extra(w, member, member->size);
    }
}

static void put_end(struct zip_writer *w, uint64_t directory_offset)
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
    put_le(w, w->count < UINT16_MAX ? w->count : UINT16_MAX, 2);
    put_le(w, w->count < UINT16_MAX ? w->count : UINT16_MAX, 2);
    put_le(w, saturated(end - directory_offset), 4);
    put_le(w, saturated(directory_offset), 4);
    put_le(w, 0, 2);
}

void zip_writer_close(struct zip_writer *w)
{
    uint64_t directory_offset = w->position;

    put_directory(w);
    put_end(w, directory_offset);
}
