/* SPDX-License-Identifier: BSD-3-Clause */
/* zip_writer.c -- see zip_writer.h. */
#include "format/zip_writer.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "format/archive_zip.h"

#define RECORD_BYTES 112u /* more than the longest record, at the end of the archive */

static inline void put(struct zip_writer *w, const void *bytes, size_t n)
{
    if (w->out != NULL)
        buffer_put(w->out, bytes, n);
    w->position += n;
}

/* A header, which is written with one call.  This is fast, and a checkpoint of small tensors
 * consists mostly of headers. */
struct record {
    unsigned length; /* 0 at first */
    uint8_t bytes[RECORD_BYTES];
};

static inline void add(struct record *r, const void *bytes, size_t n)
{
    assert(n <= sizeof(r->bytes) - r->length);
    memcpy(r->bytes + r->length, bytes, n);
    r->length += (unsigned)n;
}

static inline void add_le(struct record *r, uint64_t value, unsigned bytes)
{
    uint64_t little = htole64(value);

    add(r, &little, bytes);
}

static void put_record(struct zip_writer *w, const struct record *r)
{
    put(w, r->bytes, r->length);
}

/* Does a value not fit into 32 bits?  UINT32_MAX is the mark for such a value. */
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

/* ${stored_size}: 0 in the local header, as torch writes it. */
static void add_zip64_extra(struct record *r, const struct zip_writer_member *member,
                            uint64_t stored_size)
{
    add_le(r, 1, 2);
    add_le(r, (is_big(member->size) ? 16 : 0) + (is_big(member->offset) ? 8 : 0), 2);
    if (is_big(member->size)) {
        add_le(r, member->size, 8);
        add_le(r, stored_size, 8);
    }
    if (is_big(member->offset))
        add_le(r, member->offset, 8);
}

static unsigned zip64_extra_bytes(const struct zip_writer_member *member)
{
    return (is_zip64(member) ? 4 : 0) + (is_big(member->size) ? 16 : 0) +
           (is_big(member->offset) ? 8 : 0);
}

static uint16_t member_flags(const struct zip_writer_member *member)
{
    return member->size != 0 ? 0x0808 : 0x0800; /* 8: a descriptor follows; 0x800: UTF-8 names */
}

static void put_name(struct zip_writer *w, const char *name)
{
    put(w, w->prefix, strlen(w->prefix));
    put(w, name, strlen(name));
}

struct zip_writer_member *zip_writer_begin_member(struct zip_writer *w, const char *name,
                                                  uint64_t size)
{
    static const char padding[] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
                                  "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    struct zip_writer_member *member = &w->members[w->count++];
    size_t name_bytes = strlen(w->prefix) + strlen(name);
    struct record r;

    r.length = 0;
    assert(w->count <= w->capacity);
    *member = (struct zip_writer_member){.name = name, .offset = w->position, .size = size};
    uint64_t start = w->position + 30 + name_bytes + zip64_extra_bytes(member) + 4;
    unsigned pad = (unsigned)(round_up(start, ZIP_WRITER_ALIGNMENT) - start);

    add_le(&r, ZIP_LOCAL_SIGNATURE, 4);
    add_le(&r, 0, 2);
    add_le(&r, member_flags(member), 2);
    add_le(&r, 0, 6); /* method, time, date */
    add_le(&r, 0, 4); /* CRC and sizes are in the descriptor */
    add_le(&r, 0, 8);
    add_le(&r, name_bytes, 2);
    add_le(&r, zip64_extra_bytes(member) + 4 + pad, 2);
    put_record(w, &r);
    put_name(w, name);
    r.length = 0;
    if (is_zip64(member))
        add_zip64_extra(&r, member, 0);
    add(&r, "FB", 2);
    add_le(&r, pad, 2);
    put_record(w, &r);
    put(w, padding, pad);
    return member;
}

void zip_writer_skip(struct zip_writer *w, uint64_t bytes)
{
    w->position += bytes;
}

unsigned zip_writer_descriptor_bytes(const struct zip_writer_member *member)
{
    return member->size == 0 ? 0 : is_zip64(member) ? 24 : 16;
}

void zip_writer_fold_crc(struct zip_writer *w, uint32_t crc)
{
    uint64_t seed = w->crc_hash;

    /* boost's hash_combine, which torch uses. */
    w->crc_hash = seed ^ ((uint64_t)crc + 0x9e3779b9u + (seed << 6) + (seed >> 2));
}

void zip_writer_end_member(struct zip_writer *w, struct zip_writer_member *member, uint32_t crc)
{
    unsigned width = is_zip64(member) ? 8 : 4;
    struct record r;

    r.length = 0;
    member->crc = crc;
    if (member->size == 0)
        return;
    zip_writer_fold_crc(w, crc);
    add_le(&r, ZIP_DESCRIPTOR_SIGNATURE, 4);
    member->crc_at[0] = w->position + r.length;
    add_le(&r, crc, 4);
    add_le(&r, member->size, width);
    add_le(&r, member->size, width);
    put_record(w, &r);
}

void zip_writer_add_member(struct zip_writer *w, const char *name, const void *bytes, size_t size)
{
    struct zip_writer_member *member = zip_writer_begin_member(w, name, size);

    put(w, bytes, size);
    zip_writer_end_member(w, member, hash_crc32(0, bytes, size));
}

static void put_directory(struct zip_writer *w)
{
    for (size_t i = 0; i < w->count; i++) {
        struct zip_writer_member *member = &w->members[i];
        struct record r;

        r.length = 0;
        add_le(&r, ZIP_CENTRAL_SIGNATURE, 4);
        add_le(&r, 0, 4); /* versions */
        add_le(&r, member_flags(member), 2);
        add_le(&r, 0, 6); /* method, time, date */
        member->crc_at[1] = w->position + r.length;
        add_le(&r, member->crc, 4);
        add_le(&r, saturated(member->size), 4);
        add_le(&r, saturated(member->size), 4);
        add_le(&r, strlen(w->prefix) + strlen(member->name), 2);
        add_le(&r, zip64_extra_bytes(member), 2);
        add_le(&r, 0, 8); /* comment, disk, attributes */
        add_le(&r, 0, 2);
        add_le(&r, saturated(member->offset), 4);
        put_record(w, &r);
        put_name(w, member->name);
        r.length = 0;
        if (is_zip64(member))
            add_zip64_extra(&r, member, member->size);
        put_record(w, &r);
    }
}

static void put_end(struct zip_writer *w, uint64_t directory_offset)
{
    uint64_t end = w->position;
    struct record r;

    r.length = 0;
    add_le(&r, ZIP_END64_SIGNATURE, 4);
    add_le(&r, 44, 8);         /* bytes that follow */
    add_le(&r, 0x002d031e, 4); /* versions */
    add_le(&r, 0, 8);          /* disks */
    add_le(&r, w->count, 8);
    add_le(&r, w->count, 8);
    add_le(&r, end - directory_offset, 8);
    add_le(&r, directory_offset, 8);

    add_le(&r, ZIP_LOCATOR_SIGNATURE, 4);
    add_le(&r, 0, 4);
    add_le(&r, end, 8);
    add_le(&r, 1, 4);

    add_le(&r, ZIP_END_SIGNATURE, 4);
    add_le(&r, 0, 4);
    add_le(&r, w->count < UINT16_MAX ? w->count : UINT16_MAX, 2);
    add_le(&r, w->count < UINT16_MAX ? w->count : UINT16_MAX, 2);
    add_le(&r, saturated(end - directory_offset), 4);
    add_le(&r, saturated(directory_offset), 4);
    add_le(&r, 0, 2);
    put_record(w, &r);
}

void zip_writer_finish(struct zip_writer *w)
{
    uint64_t directory_offset = w->position;

    put_directory(w);
    put_end(w, directory_offset);
}
