/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_zip.c -- see archive_zip.h.  Format: PKWARE's APPNOTE.TXT, 4.3 (records) and 4.5.3
 * (zip64). */
#include "format/archive_zip.h"

#include "base/base.h"
#include "codec/codec.h"
#include "format/archive.h"

#define LOCAL_BYTES 30u
#define END64_BYTES 56u
#define LOCATOR_BYTES 20u
#define END_BYTES 22u
#define EXTRA_ZIP64 1u
#define SCRATCH_BYTES (2u * UINT16_MAX) /* a name and an extra */
#define VERIFY_BYTES ((size_t)1 << 20)

/* The limits of a zip: an item, or a large file. */
struct zip_limits {
    uint64_t records;
    uint64_t directory_bytes;
    uint64_t pickle_bytes;
};
static const struct zip_limits zip_limits[] = {
    {ARCHIVE_MAX_RECORDS, ARCHIVE_MAX_DIRECTORY_BYTES, ARCHIVE_MAX_PICKLE_BYTES},
    {ARCHIVE_LARGE_MAX_RECORDS, ARCHIVE_LARGE_MAX_DIRECTORY_BYTES, ARCHIVE_LARGE_MAX_PICKLE_BYTES},
};

#define FLAG_ENCRYPTED 0x2041u /* the three flags for encryption */
#define FLAG_DESCRIPTOR 0x0008u
#define FLAG_UTF8 0x0800u

#define U64(n) ((unsigned long long)(n))
#define NAMED(entry) (int)min_u64((entry)->name_length, 96), (entry)->name /* for %.*s */

/* The end records: where the directory is. */
struct zip_end {
    uint64_t count;
    uint64_t bytes;
    uint64_t offset;
    uint64_t end; /* offset of the end records */
};

/* One entry of the directory. */
struct zip_entry {
    const char *name; /* with the prefix */
    size_t name_length;
    uint16_t flags;
    uint16_t method;
    uint32_t crc;
    uint64_t stored_size;
    uint64_t size;
    uint64_t header_offset;
};

void archive_zip_release(struct archive_zip *zip)
{
    arena_release(&zip->arena);
}

/* Read bytes of the zip, from its two ends in memory if they have them. */
static enum sidestep_status zip_read(const struct archive_zip *zip, void *to, size_t bytes,
                                     uint64_t at, struct sidestep_error *err)
{
    if (at > zip->length || bytes > zip->length - at)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: %zu bytes at %llu lie outside its %llu bytes",
                    bytes, U64(at), U64(zip->length));
    uint64_t tail_at = zip->length - zip->tail_bytes;
    if (at + bytes <= zip->head_bytes)
        memcpy(to, zip->head + at, bytes);
    else if (zip->tail_bytes != 0 && at >= tail_at)
        memcpy(to, zip->tail + (at - tail_at), bytes);
    else
        return source_read(zip->source, to, bytes, zip->offset + at, err);
    return SIDESTEP_OK;
}

static enum sidestep_status read_ends(struct archive_zip *zip, struct sidestep_error *err)
{
    size_t head = (size_t)min_u64(zip->length, ARCHIVE_ZIP_HEAD_BYTES);
    size_t tail = zip->length > head ? ARCHIVE_ZIP_TAIL_BYTES : 0;

    TRY(source_read(zip->source, zip->head, head, zip->offset, err));
    if (tail != 0)
        TRY(source_read(zip->source, zip->tail, tail, zip->offset + zip->length - tail, err));
    zip->head_bytes = head;
    zip->tail_bytes = tail;
    return SIDESTEP_OK;
}

/* Does a field of the classic end record agree with the zip64 one?  It has the same value, or the
 * mark that refers to the zip64 record. */
static bool agrees(uint64_t classic, uint64_t real, uint64_t mark)
{
    return classic == real || classic == mark;
}

/* Read the zip64 end record, which has priority if a locator precedes the classic end record. */
static enum sidestep_status read_end64(const struct archive_zip *zip, uint64_t locator_at,
                                       struct zip_end *end, struct sidestep_error *err)
{
    uint8_t bytes[LOCATOR_BYTES + END64_BYTES] = {0};
    struct cursor c = cursor_from_memory(bytes, LOCATOR_BYTES);

    TRY(zip_read(zip, bytes, LOCATOR_BYTES, locator_at, err));
    cursor_u32le(&c);
    uint32_t disk = cursor_u32le(&c);
    uint64_t at = cursor_u64le(&c);
    uint32_t disks = cursor_u32le(&c);
    if (disk != 0 || disks != 1 || locator_at < END64_BYTES || at != locator_at - END64_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: the zip64 locator points at %llu, not at the record before it", U64(at));
    TRY(zip_read(zip, bytes, END64_BYTES, at, err));
    c = cursor_from_memory(bytes, END64_BYTES);
    uint32_t signature = cursor_u32le(&c);
    uint64_t rest = cursor_u64le(&c);
    cursor_take(&c, 4); /* versions */
    uint32_t this_disk = cursor_u32le(&c);
    uint32_t first_disk = cursor_u32le(&c);
    uint64_t count_here = cursor_u64le(&c);
    struct zip_end real = {.end = at};
    real.count = cursor_u64le(&c);
    real.bytes = cursor_u64le(&c);
    real.offset = cursor_u64le(&c);
    if (signature != ZIP_END64_SIGNATURE || rest != END64_BYTES - 12 || this_disk != 0 ||
        first_disk != 0 || count_here != real.count)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: the zip64 end record is damaged");
    if (!agrees(end->count, real.count, UINT16_MAX) ||
        !agrees(end->bytes, real.bytes, UINT32_MAX) ||
        !agrees(end->offset, real.offset, UINT32_MAX))
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: the two end records differ");
    *end = real;
    return SIDESTEP_OK;
}

static enum sidestep_status read_end(const struct archive_zip *zip, struct zip_end *end,
                                     struct sidestep_error *err)
{
    uint8_t bytes[END_BYTES] = {0};
    struct cursor c = cursor_from_memory(bytes, sizeof(bytes));

    if (zip->length < END_BYTES)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: %llu bytes are too few", U64(zip->length));
    end->end = zip->length - END_BYTES;
    TRY(zip_read(zip, bytes, END_BYTES, end->end, err));
    uint32_t signature = cursor_u32le(&c);
    uint32_t disks = cursor_u32le(&c); /* the number of this disk, and of the directory's disk */
    uint16_t count_here = cursor_u16le(&c);
    end->count = cursor_u16le(&c);
    end->bytes = cursor_u32le(&c);
    end->offset = cursor_u32le(&c);
    uint16_t comment_bytes = cursor_u16le(&c);
    if (signature != ZIP_END_SIGNATURE || comment_bytes != 0)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: no end record in the last %u bytes (truncated, or something follows)",
                    END_BYTES);
    if (disks != 0 || count_here != end->count)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: the end record is of an archive on several disks");

    uint8_t locator[4] = {0};
    if (end->end >= LOCATOR_BYTES)
        TRY(zip_read(zip, locator, sizeof(locator), end->end - LOCATOR_BYTES, err));
    c = cursor_from_memory(locator, sizeof(locator));
    if (cursor_u32le(&c) == ZIP_LOCATOR_SIGNATURE)
        TRY(read_end64(zip, end->end - LOCATOR_BYTES, end, err));
    else if (end->count == UINT16_MAX || end->bytes == UINT32_MAX || end->offset == UINT32_MAX)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: the zip64 end record is missing");
    return SIDESTEP_OK;
}

static enum sidestep_status check_end(const struct zip_end *end, const struct zip_limits *limits,
                                      struct sidestep_error *err)
{
    uint64_t directory_end;

    if (!checked_add(end->offset, end->bytes, &directory_end) || directory_end != end->end)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: a directory of %llu bytes at %llu does not end at the end record at %llu",
                    U64(end->bytes), U64(end->offset), U64(end->end));
    if (end->count == 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: it is empty");
    if (end->count > limits->records)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "zip: %llu members are more than %llu",
                    U64(end->count), U64(limits->records));
    if (end->bytes > limits->directory_bytes)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "zip: a directory of %llu bytes is larger than %llu", U64(end->bytes),
                    U64(limits->directory_bytes));
    return SIDESTEP_OK;
}

/* Find the zip64 record in ${extra}.  A zeroed cursor: there is none.  False: the list is damaged,
 * or has two of them. */
static bool find_zip64(struct cursor extra, struct cursor *zip64)
{
    bool found = false;

    *zip64 = (struct cursor){0};
    while (cursor_remaining(&extra) != 0) {
        uint16_t id = cursor_u16le(&extra);
        uint16_t bytes = cursor_u16le(&extra);
        const uint8_t *data = cursor_take(&extra, bytes);

        if (data == NULL || (id == EXTRA_ZIP64 && found))
            return false;
        if (id == EXTRA_ZIP64) {
            *zip64 = cursor_from_memory(data, bytes);
            found = true;
        }
    }
    return !extra.overrun;
}

/* Read the zip64 record of an entry of the directory.  It has the values that do not fit into 32
 * bits, in this order. */
static enum sidestep_status read_central_zip64(struct cursor extra, struct zip_entry *entry,
                                               struct sidestep_error *err)
{
    uint64_t *const fields[] = {&entry->size, &entry->stored_size, &entry->header_offset};
    struct cursor zip64;

    if (!find_zip64(extra, &zip64))
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s': damaged extra field in the directory",
                    NAMED(entry));
    for (size_t i = 0; i < ARRAY_LENGTH(fields); i++)
        if (*fields[i] == UINT32_MAX)
            *fields[i] = cursor_u64le(&zip64);
    if (zip64.overrun || cursor_remaining(&zip64) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s': zip64 sizes do not fit the directory's",
                    NAMED(entry));
    return SIDESTEP_OK;
}

static enum sidestep_status check_features(const struct zip_entry *entry,
                                           struct sidestep_error *err)
{
    if (entry->flags & FLAG_ENCRYPTED)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "zip: '%.*s' is encrypted", NAMED(entry));
    if (entry->method != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "zip: '%.*s' is compressed (method %u); only stored members are read",
                    NAMED(entry), entry->method);
    if (entry->flags & ~(FLAG_DESCRIPTOR | FLAG_UTF8))
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "zip: '%.*s' has unknown flags 0x%04x",
                    NAMED(entry), entry->flags);
    if (entry->stored_size != entry->size)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: '%.*s' is not compressed, but %llu bytes are stored for its %llu",
                    NAMED(entry), U64(entry->stored_size), U64(entry->size));
    return SIDESTEP_OK;
}

static enum sidestep_status check_name(const char *name, size_t length, size_t index,
                                       struct sidestep_error *err)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return FAIL(err, SIDESTEP_ECORRUPT,
                        "zip: the name of member %zu has the control byte 0x%02x", index,
                        (unsigned char)name[i]);
    return SIDESTEP_OK;
}

static enum sidestep_status read_central(struct cursor *c, size_t index, struct zip_entry *entry,
                                         struct sidestep_error *err)
{
    uint32_t signature = cursor_u32le(c);

    cursor_take(c, 4); /* versions: made by, needed */
    entry->flags = cursor_u16le(c);
    entry->method = cursor_u16le(c);
    cursor_take(c, 4); /* time and date */
    entry->crc = cursor_u32le(c);
    entry->stored_size = cursor_u32le(c);
    entry->size = cursor_u32le(c);
    entry->name_length = cursor_u16le(c);
    uint16_t extra_bytes = cursor_u16le(c);
    uint16_t comment_bytes = cursor_u16le(c);
    uint16_t disk = cursor_u16le(c);
    cursor_take(c, 6); /* attributes */
    entry->header_offset = cursor_u32le(c);
    entry->name = (const char *)cursor_take(c, entry->name_length);
    const uint8_t *extra = cursor_take(c, extra_bytes);
    if (c->overrun || signature != ZIP_CENTRAL_SIGNATURE || comment_bytes != 0 || disk != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: entry %zu of the directory is damaged", index);
    TRY(check_name(entry->name, entry->name_length, index, err));
    TRY(read_central_zip64(cursor_from_memory(extra, extra_bytes), entry, err));
    return check_features(entry, err);
}

static bool has_descriptor(const struct zip_entry *entry)
{
    return (entry->flags & FLAG_DESCRIPTOR) != 0;
}

/* Does a value of a local header match the directory's?  It may be 0 if a descriptor has it. */
static bool matches(uint64_t local, uint64_t real, bool may_be_zero)
{
    return local == real || (may_be_zero && local == 0);
}

/* A local zip64 record has both sizes, or the offset (only torch writes this), or all three. */
static bool local_zip64_matches(struct cursor zip64, const struct zip_entry *entry)
{
    bool has_sizes = zip64.length == 16 || zip64.length == 24;
    bool has_offset = zip64.length == 8 || zip64.length == 24;

    if (!has_sizes && !has_offset)
        return false;
    if (has_sizes && (!matches(cursor_u64le(&zip64), entry->size, has_descriptor(entry)) ||
                      !matches(cursor_u64le(&zip64), entry->size, has_descriptor(entry))))
        return false;
    return !has_offset || cursor_u64le(&zip64) == entry->header_offset;
}

/* The fixed part of a local header. */
struct zip_local {
    uint32_t stored_size;
    uint32_t size;
    size_t name_length;
    size_t extra_bytes;
};

static enum sidestep_status read_local_fixed(const struct archive_zip *zip,
                                             const struct zip_entry *entry, struct zip_local *local,
                                             struct sidestep_error *err)
{
    uint8_t bytes[LOCAL_BYTES] = {0};
    struct cursor c = cursor_from_memory(bytes, sizeof(bytes));

    TRY(zip_read(zip, bytes, sizeof(bytes), entry->header_offset, err));
    uint32_t signature = cursor_u32le(&c);
    cursor_take(&c, 2); /* version needed */
    uint16_t flags = cursor_u16le(&c);
    uint16_t method = cursor_u16le(&c);
    cursor_take(&c, 4); /* time and date */
    uint32_t crc = cursor_u32le(&c);
    local->stored_size = cursor_u32le(&c);
    local->size = cursor_u32le(&c);
    local->name_length = cursor_u16le(&c);
    local->extra_bytes = cursor_u16le(&c);
    if (signature != ZIP_LOCAL_SIGNATURE || flags != entry->flags || method != entry->method ||
        !matches(crc, entry->crc, has_descriptor(entry)) ||
        local->name_length != entry->name_length)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: '%.*s': the local header differs from the directory", NAMED(entry));
    return SIDESTEP_OK;
}

/* Compare a local header's sizes with the directory's. */
static bool local_sizes_match(const struct zip_local *local, struct cursor zip64,
                              const struct zip_entry *entry)
{
    bool is_in_zip64 =
        zip64.length >= 16 && local->stored_size == UINT32_MAX && local->size == UINT32_MAX;

    if (zip64.bytes != NULL && !local_zip64_matches(zip64, entry))
        return false;
    return is_in_zip64 || (matches(local->stored_size, entry->size, has_descriptor(entry)) &&
                           matches(local->size, entry->size, has_descriptor(entry)));
}

/* Compare the local header with the directory's entry.  ${*data_offset}: where the data starts.
 * ${*is_zip64}: sizes in the descriptor have 8 bytes. */
static enum sidestep_status read_local(struct archive_zip *zip, const struct zip_entry *entry,
                                       uint64_t *data_offset, bool *is_zip64,
                                       struct sidestep_error *err)
{
    uint8_t small[256];
    uint8_t *text = small; /* name and extra */
    struct zip_local local = {0};
    struct cursor zip64;

    TRY(read_local_fixed(zip, entry, &local, err));
    size_t text_bytes = local.name_length + local.extra_bytes;
    if (text_bytes > sizeof(small)) {
        if (zip->scratch == NULL)
            zip->scratch = arena_new(&zip->arena, SCRATCH_BYTES, 1);
        if (zip->scratch == NULL)
            return FAIL_NOMEM(err, SCRATCH_BYTES);
        text = zip->scratch;
    }
    uint64_t text_offset = entry->header_offset + LOCAL_BYTES;
    TRY(zip_read(zip, text, text_bytes, text_offset, err));
    if (memcmp(text, entry->name, local.name_length) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s' has another name in its local header",
                    NAMED(entry));
    if (!find_zip64(cursor_from_memory(text + local.name_length, local.extra_bytes), &zip64))
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s': damaged extra field in its local header",
                    NAMED(entry));
    if (!local_sizes_match(&local, zip64, entry))
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: '%.*s': the sizes in its local header differ from the directory's",
                    NAMED(entry));
    *is_zip64 = zip64.bytes != NULL;
    *data_offset = text_offset + text_bytes;
    return SIDESTEP_OK;
}

/* Check the descriptor at ${at}.  ${*end}: where it ends. */
static enum sidestep_status read_descriptor(const struct archive_zip *zip,
                                            const struct zip_entry *entry, uint64_t at,
                                            bool is_zip64, uint64_t *end,
                                            struct sidestep_error *err)
{
    uint8_t bytes[24] = {0};
    size_t length = is_zip64 ? 24 : 16;
    struct cursor c = cursor_from_memory(bytes, length);

    TRY(zip_read(zip, bytes, length, at, err));
    uint32_t signature = cursor_u32le(&c);
    uint32_t crc = cursor_u32le(&c);
    uint64_t stored_size = is_zip64 ? cursor_u64le(&c) : cursor_u32le(&c);
    uint64_t size = is_zip64 ? cursor_u64le(&c) : cursor_u32le(&c);
    if (signature != ZIP_DESCRIPTOR_SIGNATURE || crc != entry->crc || stored_size != entry->size ||
        size != entry->size)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: '%.*s': the data descriptor differs from the directory", NAMED(entry));
    *end = at + length;
    return SIDESTEP_OK;
}

/* Find the data of a member, which must start at ${*next}, and set ${*next} to its end. */
static enum sidestep_status place_member(struct archive_zip *zip, const struct zip_entry *entry,
                                         uint64_t directory_offset, uint64_t *next,
                                         struct archive_member *member, struct sidestep_error *err)
{
    bool is_zip64 = false;
    uint64_t data_end;

    if (entry->header_offset != *next)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: '%.*s' starts at %llu, but the member before it ends at %llu",
                    NAMED(entry), U64(entry->header_offset), U64(*next));
    TRY(read_local(zip, entry, &member->data_offset, &is_zip64, err));
    member->size = entry->size;
    member->crc = entry->crc;
    member->has_crc = entry->crc != 0 || entry->size == 0;
    if (!checked_add(member->data_offset, entry->size, &data_end) || data_end > directory_offset)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s' reaches into the directory", NAMED(entry));
    *next = data_end;
    if (has_descriptor(entry))
        TRY(read_descriptor(zip, entry, data_end, is_zip64, next, err));
    return SIDESTEP_OK;
}

/* Remove the prefix, which must be the same component in all names. */
static enum sidestep_status cut_prefix(const struct zip_entry *entry, const char **prefix,
                                       size_t *prefix_length, struct archive_member *member,
                                       struct sidestep_error *err)
{
    if (*prefix == NULL) {
        const char *slash = memchr(entry->name, '/', entry->name_length);

        *prefix = entry->name;
        *prefix_length = slash != NULL ? (size_t)(slash - entry->name) + 1 : 0;
    }
    if (*prefix_length < 2 || entry->name_length <= *prefix_length ||
        memcmp(entry->name, *prefix, *prefix_length) != 0)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s' is not in the folder of the other members",
                    NAMED(entry));
    member->name = entry->name + *prefix_length;
    member->name_length = entry->name_length - *prefix_length;
    return SIDESTEP_OK;
}

static enum sidestep_status read_directory(struct archive_zip *zip, const struct zip_end *end,
                                           struct sidestep_error *err)
{
    const char *prefix = NULL;
    size_t prefix_length = 0;
    uint64_t next = 0;
    uint8_t *bytes = arena_new(&zip->arena, end->bytes, 1);

    zip->members = arena_new(&zip->arena, end->count, sizeof(*zip->members));
    if (bytes == NULL || zip->members == NULL)
        return FAIL_NOMEM(err, end->bytes + end->count * sizeof(*zip->members));
    TRY(zip_read(zip, bytes, end->bytes, end->offset, err));
    struct cursor c = cursor_from_memory(bytes, end->bytes);
    for (size_t i = 0; i < end->count; i++) {
        struct zip_entry entry = {0};

        TRY(read_central(&c, i, &entry, err));
        TRY(cut_prefix(&entry, &prefix, &prefix_length, &zip->members[i], err));
        TRY(place_member(zip, &entry, end->offset, &next, &zip->members[i], err));
    }
    zip->count = end->count;
    if (cursor_remaining(&c) != 0 || next != end->offset)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: bytes before or inside the directory belong to no member");
    return archive_zip_check_unique(zip, err);
}

enum sidestep_status archive_zip_open(struct archive_zip *zip, const struct source *source,
                                      uint64_t offset, uint64_t length, struct sidestep_error *err)
{
    struct zip_end end = {0};

    if (offset > source->length || length > source->length - offset)
        return FAIL(err, SIDESTEP_ECORRUPT,
                    "zip: %llu bytes at offset %llu lie outside the file's %llu bytes", U64(length),
                    U64(offset), U64(source->length));
    const struct zip_limits *limits = &zip_limits[zip->is_large];
    /* Enough for the directory, its members, and to load two small members and one pickle. */
    zip->arena.limit_bytes =
        (size_t)(limits->directory_bytes + min_u64(limits->pickle_bytes, length) + (1u << 20) +
                 (zip->is_large ? limits->directory_bytes * 2 : 0));
    zip->source = source;
    zip->offset = offset;
    zip->length = length;
    TRY(read_ends(zip, err));
    TRY(read_end(zip, &end, err));
    TRY(check_end(&end, limits, err));
    return read_directory(zip, &end, err);
}

const struct archive_member *archive_zip_find(const struct archive_zip *zip, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < zip->count; i++)
        if (zip->members[i].name_length == length &&
            memcmp(zip->members[i].name, name, length) == 0)
            return &zip->members[i];
    return NULL;
}

static enum sidestep_status check_crc(const struct archive_member *member, uint32_t crc,
                                      struct sidestep_error *err)
{
    if (member->has_crc && crc != member->crc)
        return FAIL(err, SIDESTEP_ECORRUPT, "zip: '%.*s' has CRC %08x, the directory says %08x",
                    NAMED(member), crc, member->crc);
    return SIDESTEP_OK;
}

enum sidestep_status archive_zip_load(struct archive_zip *zip, const struct archive_member *member,
                                      uint64_t max_bytes, const uint8_t **bytes,
                                      struct sidestep_error *err)
{
    if (member->size > max_bytes)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "zip: '%.*s' has %llu bytes, more than %llu",
                    NAMED(member), U64(member->size), U64(max_bytes));
    uint8_t *to = arena_new(&zip->arena, member->size + 1, 1);
    if (to == NULL)
        return FAIL_NOMEM(err, member->size + 1);
    TRY(zip_read(zip, to, member->size, member->data_offset, err));
    TRY(check_crc(member, hash_crc32(0, to, member->size), err));
    *bytes = to;
    return SIDESTEP_OK;
}

enum sidestep_status archive_zip_verify(const struct archive_zip *zip,
                                        const struct archive_member *member,
                                        struct sidestep_error *err)
{
    uint32_t crc = 0;
    size_t piece = (size_t)min_u64(member->size, VERIFY_BYTES);

    if (!member->has_crc)
        return SIDESTEP_OK;
    OWNED uint8_t *bytes = memory_new(piece, 1);
    if (bytes == NULL)
        return FAIL_NOMEM(err, piece);
    for (uint64_t done = 0; done < member->size; done += piece) {
        piece = (size_t)min_u64(piece, member->size - done);
        TRY(zip_read(zip, bytes, piece, member->data_offset + done, err));
        crc = hash_crc32(crc, bytes, piece);
    }
    return check_crc(member, crc, err);
}
