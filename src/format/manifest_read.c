/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest_read.c -- see manifest.h: reads manifests, which are not trusted. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/json_reader.h"
#include "format/manifest_layout.h"
#include "model/model.h"

#define FAIL_FORMAT(err, ...) FAIL(err, SIDESTEP_ECORRUPT, __VA_ARGS__)

/* Check the hash in the second line.  Set ${*json_length} to the length of the first line, with its
 * newline. */
static enum sidestep_status check_hash_line(const char *text, size_t length, size_t *json_length,
                                            struct sidestep_error *err)
{
    uint8_t stated[HASH_SHA256_BYTES];
    uint8_t actual[HASH_SHA256_BYTES];
    char hex[2 * HASH_SHA256_BYTES + 1] = {0};
    const char *newline = memchr(text, '\n', length);

    if (newline == NULL || length - (size_t)(newline + 1 - text) != MANIFEST_HASH_LINE_BYTES)
        return FAIL_FORMAT(err, "it is not two lines, of which the second is a SHA-256");
    const char *line = newline + 1;
    size_t prefix = strlen(MANIFEST_HASH_PREFIX);
    memcpy(hex, line + prefix, sizeof(hex) - 1);
    if (memcmp(line, MANIFEST_HASH_PREFIX, prefix) != 0 || text[length - 1] != '\n' ||
        !hash_from_hex(hex, sizeof(stated), stated))
        return FAIL_FORMAT(err, "its second line is not \"sha256\" and 64 hexadecimal digits");
    *json_length = (size_t)(line - text);
    hash_sha256(text, *json_length, actual);
    if (memcmp(stated, actual, sizeof(stated)) != 0)
        return FAIL_FORMAT(err, "the SHA-256 of its first line is not the one in the second");
    return SIDESTEP_OK;
}

/* Check that the value of ${key}, which was just read, has the expected type. */
static enum sidestep_status check_value(const struct json_reader *j, const char *key,
                                        struct sidestep_error *err)
{
    if (j->problem == NULL)
        return SIDESTEP_OK;
    if (*key == '\0')
        return FAIL_FORMAT(err, "at byte %zu: %s", j->position, j->problem);
    return FAIL_FORMAT(err, "\"%s\", at byte %zu: %s", display_name(key).text, j->position,
                       j->problem);
}

static enum sidestep_status get_integer(struct json_reader *j, const char *key, int64_t maximum,
                                        int64_t *out, struct sidestep_error *err)
{
    *out = json_reader_integer(j);
    TRY(check_value(j, key, err));
    if (*out < 0 || *out > maximum)
        return FAIL_FORMAT(err, "\"%s\" is %lld", key, (long long)*out);
    return SIDESTEP_OK;
}

static enum sidestep_status get_count(struct json_reader *j, const char *key, uint64_t *out,
                                      struct sidestep_error *err)
{
    int64_t value;

    TRY(get_integer(j, key, INT64_MAX, &value, err));
    *out = (uint64_t)value;
    return SIDESTEP_OK;
}

/* Read a string.  manifest_check() checks its content. */
static enum sidestep_status get_text(struct json_reader *j, const char *key, char *out, size_t room,
                                     struct sidestep_error *err)
{
    const char *text = json_reader_string(j);

    TRY(check_value(j, key, err));
    if (strlen(text) >= room)
        return FAIL_FORMAT(err, "\"%s\" is longer than %zu bytes", key, room - 1);
    memcpy(out, text, strlen(text) + 1);
    return SIDESTEP_OK;
}

static enum sidestep_status get_id(struct json_reader *j, const char *key, char out[SAVE_ID_HEX],
                                   struct sidestep_error *err)
{
    return get_text(j, key, out, SAVE_ID_HEX, err);
}

static enum sidestep_status get_sha256(struct json_reader *j, const char *key,
                                       uint8_t out[HASH_SHA256_BYTES], struct sidestep_error *err)
{
    const char *text = json_reader_string(j);

    TRY(check_value(j, key, err));
    if (strlen(text) != (size_t)2 * HASH_SHA256_BYTES ||
        !hash_from_hex(text, HASH_SHA256_BYTES, out))
        return FAIL_FORMAT(err, "\"%s\" is not 64 hexadecimal digits", key);
    return SIDESTEP_OK;
}

/* Read 16 digits.  A JSON number would lose bits in readers that have only doubles. */
static enum sidestep_status get_features(struct json_reader *j, const char *key, uint64_t *out,
                                         struct sidestep_error *err)
{
    const char *text = json_reader_string(j);

    TRY(check_value(j, key, err));
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return FAIL_FORMAT(err, "\"%s\" is not 16 hexadecimal digits", key);
    *out = strtoull(text, NULL, 16);
    return SIDESTEP_OK;
}

/* The keys of an object.  Each must come once; those with a bit in ${optional} may be absent. */
struct keys {
    const char *const *names;
    unsigned count; /* <= 32 */
    uint32_t optional, seen;
};

/* Set ${*out} to the number of ${key}, or to keys->count if it is unknown. */
static enum sidestep_status find_key(struct keys *keys, const char *key, unsigned *out,
                                     struct sidestep_error *err)
{
    for (*out = 0; *out < keys->count; ++*out) {
        uint32_t bit = UINT32_C(1) << *out;
        if (strcmp(key, keys->names[*out]) != 0)
            continue;
        if ((keys->seen & bit) != 0)
            return FAIL_FORMAT(err, "\"%s\" appears twice", key);
        keys->seen |= bit;
        return SIDESTEP_OK;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_keys(const struct keys *keys, struct sidestep_error *err)
{
    for (unsigned i = 0; i < keys->count; i++)
        if (((keys->seen | keys->optional) & UINT32_C(1) << i) == 0)
            return FAIL_FORMAT(err, "there is no \"%s\"", keys->names[i]);
    return SIDESTEP_OK;
}

#define MAX_MEMBERS 6u

/* A member of an object, and where its value goes. */
struct member {
    const char *name;
    enum { MEMBER_COUNT, MEMBER_SHA256, MEMBER_ID, MEMBER_NAME } kind;
    void *out;
};

static enum sidestep_status read_member(struct json_reader *j, const char *key,
                                        const struct member *member, struct sidestep_error *err)
{
    switch (member->kind) {
    case MEMBER_COUNT:
        return get_count(j, key, member->out, err);
    case MEMBER_SHA256:
        return get_sha256(j, key, member->out, err);
    case MEMBER_ID:
        return get_id(j, key, member->out, err);
    case MEMBER_NAME:
        *(const char **)member->out = json_reader_string(j);
    }
    return SIDESTEP_OK; /* the caller checks the value of the object */
}

/* Read object ${what}.  The first ${required} members must be there, and none comes twice; others
 * are skipped. */
static enum sidestep_status read_members(struct json_reader *j, const char *what,
                                         const struct member *members, unsigned count,
                                         unsigned required, struct sidestep_error *err)
{
    const char *names[MAX_MEMBERS];
    struct keys keys = {names, count, UINT32_MAX << required, 0};

    assert(count <= MAX_MEMBERS && required <= count);
    for (unsigned i = 0; i < count; i++)
        names[i] = members[i].name;
    json_reader_enter(j, '{');
    for (bool first = true; json_reader_next(j, '}', &first);) {
        const char *key = json_reader_key(j);
        unsigned which;
        TRY(find_key(&keys, key, &which, err));
        if (which < count)
            TRY(read_member(j, key, &members[which], err));
        else
            json_reader_skip(j);
    }
    TRY(check_value(j, what, err));
    return check_keys(&keys, err);
}

static enum sidestep_status read_metadata(struct json_reader *j, struct manifest *out,
                                          struct sidestep_error *err)
{
    const struct member members[] = {{"bytes", MEMBER_COUNT, &out->metadata_bytes},
                                     {"sha256", MEMBER_SHA256, out->metadata_sha256}};

    return read_members(j, "metadata", members, ARRAY_LENGTH(members), ARRAY_LENGTH(members), err);
}

static enum sidestep_status read_index(struct json_reader *j, struct manifest_index *out,
                                       struct sidestep_error *err)
{
    const struct member members[] = {{"bytes", MEMBER_COUNT, &out->bytes},
                                     {"table_bytes", MEMBER_COUNT, &out->table_bytes},
                                     {"table_sha256", MEMBER_SHA256, out->table_sha256}};

    return read_members(j, "index", members, ARRAY_LENGTH(members), ARRAY_LENGTH(members), err);
}

/* Add the ranks of a run. */
static enum sidestep_status add_ranks(struct json_reader *j, uint32_t **ranks, size_t *capacity,
                                      uint32_t *count, struct sidestep_error *err)
{
    int64_t first, last;
    bool more = false;

    TRY(get_integer(j, "part", SIDESTEP_MAX_RANKS - 1, &first, err));
    if (!json_reader_next(j, ']', &more))
        return FAIL_FORMAT(err, "\"part\" has an odd number of ranks");
    TRY(get_integer(j, "part", SIDESTEP_MAX_RANKS - 1, &last, err));
    if (last < first || (*count != 0 && first <= (*ranks)[*count - 1]))
        return FAIL_FORMAT(err, "\"part\" has the ranks %lld to %lld", (long long)first,
                           (long long)last);
    for (int64_t rank = first; rank <= last; rank++) {
        TRY_GROW(*ranks, *capacity, *count, err);
        (*ranks)[(*count)++] = (uint32_t)rank;
    }
    return SIDESTEP_OK;
}

static enum sidestep_status read_part(struct json_reader *j, struct arena *arena,
                                      struct manifest_part *out, struct sidestep_error *err)
{
    OWNED uint32_t *ranks = NULL;
    size_t capacity = 0;

    json_reader_enter(j, '[');
    for (bool first = true; json_reader_next(j, ']', &first);)
        TRY(add_ranks(j, &ranks, &capacity, &out->rank_count, err));
    TRY(check_value(j, "part", err));
    out->ranks = arena_copy(arena, ranks, out->rank_count * sizeof(*ranks));
    return out->ranks != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, out->rank_count * sizeof(*ranks));
}

static enum sidestep_status read_file(struct json_reader *j, struct manifest_file *out,
                                      struct sidestep_error *err)
{
    const struct member members[] = {{"name", MEMBER_NAME, &out->name},
                                     {"bytes", MEMBER_COUNT, &out->bytes},
                                     {"footer_sha256", MEMBER_SHA256, out->footer_sha256},
                                     {"origin", MEMBER_ID, out->origin}};

    return read_members(j, "files", members, ARRAY_LENGTH(members), ARRAY_LENGTH(members), err);
}

static enum sidestep_status read_files(struct json_reader *j, struct arena *arena,
                                       struct manifest *out, struct sidestep_error *err)
{
    OWNED struct manifest_file *files = NULL;
    size_t capacity = 0;

    json_reader_enter(j, '[');
    for (bool first = true; json_reader_next(j, ']', &first); out->file_count++) {
        TRY_GROW(files, capacity, out->file_count, err);
        files[out->file_count] = (struct manifest_file){0};
        TRY(read_file(j, &files[out->file_count], err));
    }
    TRY(check_value(j, "files", err));
    out->files = arena_copy(arena, files, out->file_count * sizeof(*files));
    return out->files != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, out->file_count * sizeof(*files));
}

static enum sidestep_status read_extra(struct json_reader *j, struct extra_file *out,
                                       struct sidestep_error *err)
{
    uint64_t rank = 0, alias = 0;
    const struct member members[] = {
        {"name", MEMBER_NAME, &out->name},     {"rank", MEMBER_COUNT, &rank},
        {"bytes", MEMBER_COUNT, &out->bytes},  {"sha256", MEMBER_SHA256, out->sha256},
        {"stored", MEMBER_NAME, &out->stored}, {"alias", MEMBER_COUNT, &alias}};

    TRY(read_members(j, "extra_files", members, ARRAY_LENGTH(members), 4, err));
    out->rank = (uint32_t)min_u64(rank, UINT32_MAX);
    out->is_alias = alias != 0;
    return SIDESTEP_OK;
}

static enum sidestep_status read_extras(struct json_reader *j, struct arena *arena,
                                        struct manifest *out, struct sidestep_error *err)
{
    OWNED struct extra_file *files = NULL;
    size_t capacity = 0;

    json_reader_enter(j, '[');
    for (bool first = true; json_reader_next(j, ']', &first); out->extra_count++) {
        TRY_GROW(files, capacity, out->extra_count, err);
        files[out->extra_count] = (struct extra_file){0};
        TRY(read_extra(j, &files[out->extra_count], err));
    }
    TRY(check_value(j, "extra_files", err));
    out->extras = arena_copy(arena, files, out->extra_count * sizeof(*files));
    return out->extras != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, out->extra_count * sizeof(*files));
}

/* Read the first three keys, which come in this order and decide whether the rest may be read. */
static enum sidestep_status read_version(struct json_reader *j, bool *first, struct manifest *out,
                                         struct sidestep_error *err)
{
    static const char *const names[] = {"format", "version", "required_features"};
    int64_t version = 0;

    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        const char *key = json_reader_next(j, '}', first) ? json_reader_key(j) : "";
        TRY(check_value(j, key, err));
        if (strcmp(key, names[i]) != 0)
            return FAIL_FORMAT(err, "key %u is not \"%s\"", i + 1, names[i]);
        if (i == 0 && strcmp(json_reader_string(j), MANIFEST_FORMAT) != 0)
            return FAIL_FORMAT(err, "\"format\" is not \"" MANIFEST_FORMAT "\"");
        if (i == 1)
            TRY(get_integer(j, key, INT64_MAX, &version, err));
        if (version > MANIFEST_VERSION)
            return FAIL(err, SIDESTEP_EUNSUPPORTED, "version %lld is newer than this library",
                        (long long)version);
        if (i == 1 && version == 0)
            return FAIL_FORMAT(err, "\"version\" is 0");
        if (i == 2)
            TRY(get_features(j, key, &out->required_features, err));
    }
    return manifest_check_features(out, err);
}

enum root_key {
    SAVE_ID,
    RUN_ID,
    INCARNATION,
    STEP,
    NAMING,
    WORLD_SIZE,
    SAVED_AT,
    SAVED_AT_UNIX,
    OPTIONAL_FEATURES,
    METADATA,
    INDEX,
    PARTS,
    PART,
    FILES,
    EXTRA_FILES,
    ROOT_KEYS
};
static const char *const root_names[ROOT_KEYS] = {
    "save_id",  "run_id",        "incarnation",       "step",     "naming", "world_size",
    "saved_at", "saved_at_unix", "optional_features", "metadata", "index",  "parts",
    "part",     "files",         "extra_files",
};

static enum sidestep_status read_value(struct json_reader *j, enum root_key which, const char *key,
                                       struct arena *arena, struct manifest *out,
                                       struct sidestep_error *err)
{
    int64_t number;

    switch (which) {
    case SAVE_ID:
        return get_id(j, key, out->save_id, err);
    case RUN_ID:
        return get_id(j, key, out->run_id, err);
    case INCARNATION:
        return get_count(j, key, &out->incarnation, err);
    case STEP:
        out->step = -1;
        return json_reader_null(j) ? SIDESTEP_OK : get_integer(j, key, INT64_MAX, &out->step, err);
    case NAMING:
        return get_text(j, key, out->naming, sizeof(out->naming), err);
    case WORLD_SIZE:
        TRY(get_integer(j, key, SIDESTEP_MAX_RANKS, &number, err));
        out->world_size = (uint32_t)number;
        return SIDESTEP_OK;
    case SAVED_AT:
        (void)json_reader_string(j);
        return check_value(j, key, err);
    case SAVED_AT_UNIX:
        return get_integer(j, key, MANIFEST_MAX_TIME, &out->saved_at, err);
    case OPTIONAL_FEATURES:
        return get_features(j, key, &out->optional_features, err);
    case METADATA:
        return read_metadata(j, out, err);
    case INDEX:
        return read_index(j, &out->index, err);
    case PARTS:
        TRY(get_integer(j, key, SIDESTEP_MAX_RANKS, &number, err));
        out->part.parts = (uint32_t)number;
        return SIDESTEP_OK;
    case PART:
        return read_part(j, arena, &out->part, err);
    case FILES:
        return read_files(j, arena, out, err);
    case EXTRA_FILES:
        return read_extras(j, arena, out, err);
    case ROOT_KEYS:
        json_reader_skip(j);
    }
    return check_value(j, key, err);
}

static enum sidestep_status decode(const char *text, size_t length, struct arena *arena,
                                   struct manifest *out, struct sidestep_error *err)
{
    uint32_t optional = UINT32_C(1) << NAMING | UINT32_C(1) << INDEX | UINT32_C(1) << PARTS |
                        UINT32_C(1) << PART | UINT32_C(1) << EXTRA_FILES;
    struct keys keys = {root_names, ROOT_KEYS, optional, 0};
    size_t json_length = 0;
    bool first = true;

    if (length > MANIFEST_MAX_BYTES)
        return FAIL_FORMAT(err, "%zu bytes (at most %zu)", length, MANIFEST_MAX_BYTES);
    TRY(check_hash_line(text, length, &json_length, err));
    char *copy = arena_strndup(arena, text, json_length);
    if (copy == NULL)
        return FAIL_NOMEM(err, json_length + 1);
    if (strlen(copy) != json_length)
        return FAIL_FORMAT(err, "a NUL at byte %zu", strlen(copy));

    struct json_reader j = json_reader_init(copy);
    json_reader_enter(&j, '{');
    TRY(read_version(&j, &first, out, err));
    while (json_reader_next(&j, '}', &first)) {
        const char *key = json_reader_key(&j);
        unsigned which;
        TRY(find_key(&keys, key, &which, err));
        TRY(read_value(&j, (enum root_key)which, key, arena, out, err));
    }
    json_reader_end(&j);
    TRY(check_value(&j, "", err));
    TRY(check_keys(&keys, err));
    return manifest_check(out, SIDESTEP_ECORRUPT, err);
}

enum sidestep_status manifest_decode(const void *bytes, size_t length, struct arena *arena,
                                     struct manifest *out, struct sidestep_error *err)
{
    *out = (struct manifest){0};
    enum sidestep_status status = decode(bytes, length, arena, out, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "manifest");
        *out = (struct manifest){0};
    }
    return status;
}
