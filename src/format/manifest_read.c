/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest_read.c -- read a manifest, as hostile input. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "format/manifest_layout.h"
#include "model/shown.h"

/*
 * The JSON library makes a tree in which an empty object of three bytes takes two hundred, and
 * descends into it by recursion.  So the text is weighed before: it may be nested only a little
 * deeper than version 1 is, and its structure may take no more of it than of a true manifest, where
 * strings of known length make up most of the bytes.
 */
#define MANIFEST_MAX_DEPTH 8
#define WEIGHT_OBJECT 20u /* bytes of text that an object, an array, a value must come with */
#define WEIGHT_ARRAY 8u
#define WEIGHT_VALUE 8u

#define FAIL_FORMAT(err, ...) FAIL(err, SIDESTEP_ECORRUPT, __VA_ARGS__)

static void json_releasep(json_t **json)
{
    json_decref(*json);
}
#define OWNED_JSON OWNED_BY(json_releasep) json_t

/* Cut the JSON, newline included, off in front of the line with its hash, if that is right. */
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

static enum sidestep_status weigh(const char *text, size_t length, struct sidestep_error *err)
{
    bool in_string = false;
    size_t weight = 0;
    int depth = 0;

    for (size_t i = 0; i < length; i++) {
        if (in_string) {
            in_string = text[i] != '"';
            i += text[i] == '\\';
            continue;
        }
        if (text[i] == '"')
            in_string = true;
        else if (text[i] == '{' || text[i] == '[')
            weight += text[i] == '{' ? WEIGHT_OBJECT : WEIGHT_ARRAY, depth++;
        else if (text[i] == '}' || text[i] == ']')
            depth--;
        else if (text[i] == ',')
            weight += WEIGHT_VALUE;
        if (depth > MANIFEST_MAX_DEPTH)
            return FAIL_FORMAT(err, "nested deeper than %d levels", MANIFEST_MAX_DEPTH);
    }
    if (weight > length)
        return FAIL_FORMAT(err, "more structure than %zu bytes of a manifest have", length);
    return SIDESTEP_OK;
}

static enum sidestep_status parse_json(const char *text, size_t length, json_t **out,
                                       struct sidestep_error *err)
{
    json_error_t why;

    TRY(weigh(text, length, err));
    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    if (*out != NULL)
        return json_is_object(*out) ? SIDESTEP_OK : FAIL_FORMAT(err, "not a JSON object");
    /* The library leaves the text empty where memory is short. */
    if (why.text[0] == '\0' || json_error_code(&why) == json_error_out_of_memory)
        return FAIL_NOMEM(err, length);
    return FAIL_FORMAT(err, "not JSON, at byte %d: %s", why.position, shown_name(why.text).text);
}

static enum sidestep_status get_string(const json_t *object, const char *key, const char **out,
                                       struct sidestep_error *err)
{
    *out = json_string_value(json_object_get(object, key));
    return *out != NULL ? SIDESTEP_OK : FAIL_FORMAT(err, "no string \"%s\"", key);
}

static enum sidestep_status get_integer(const json_t *object, const char *key, int64_t minimum,
                                        int64_t maximum, int64_t *out, struct sidestep_error *err)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value))
        return FAIL_FORMAT(err, "no integer \"%s\"", key);
    *out = json_integer_value(value);
    if (*out < minimum || *out > maximum)
        return FAIL_FORMAT(err, "\"%s\" is %lld", key, (long long)*out);
    return SIDESTEP_OK;
}

static enum sidestep_status get_count(const json_t *object, const char *key, uint64_t *out,
                                      struct sidestep_error *err)
{
    int64_t value;

    TRY(get_integer(object, key, 0, INT64_MAX, &value, err));
    *out = (uint64_t)value;
    return SIDESTEP_OK;
}

/* A save id's string, of any content: manifest_check() looks at it. */
static enum sidestep_status get_id(const json_t *object, const char *key, char out[SAVE_ID_HEX],
                                   struct sidestep_error *err)
{
    const char *text;

    TRY(get_string(object, key, &text, err));
    if (strlen(text) >= SAVE_ID_HEX)
        return FAIL_FORMAT(err, "\"%s\" is longer than 32 digits", key);
    memcpy(out, text, strlen(text) + 1);
    return SIDESTEP_OK;
}

static enum sidestep_status get_sha256(const json_t *object, const char *key,
                                       uint8_t out[HASH_SHA256_BYTES], struct sidestep_error *err)
{
    const char *text;

    TRY(get_string(object, key, &text, err));
    if (strlen(text) != (size_t)2 * HASH_SHA256_BYTES ||
        !hash_from_hex(text, HASH_SHA256_BYTES, out))
        return FAIL_FORMAT(err, "\"%s\" is not 64 hexadecimal digits", key);
    return SIDESTEP_OK;
}

/* 16 digits: as a number, readers that have only doubles would lose bits. */
static enum sidestep_status get_features(const json_t *object, const char *key, uint64_t *out,
                                         struct sidestep_error *err)
{
    const char *text;

    TRY(get_string(object, key, &text, err));
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return FAIL_FORMAT(err, "\"%s\" is not 16 hexadecimal digits", key);
    *out = strtoull(text, NULL, 16);
    return SIDESTEP_OK;
}

/* First of all, whether the rest may be understood. */
static enum sidestep_status read_version(const json_t *root, struct manifest *out,
                                         struct sidestep_error *err)
{
    const char *format;
    int64_t version;

    TRY(get_string(root, "format", &format, err));
    if (strcmp(format, MANIFEST_FORMAT) != 0)
        return FAIL_FORMAT(err, "\"format\" is not \"" MANIFEST_FORMAT "\"");
    TRY(get_integer(root, "version", 1, INT64_MAX, &version, err));
    if (version > MANIFEST_VERSION)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "version %lld is newer than this library",
                    (long long)version);
    TRY(get_features(root, "required_features", &out->required_features, err));
    TRY(get_features(root, "optional_features", &out->optional_features, err));
    return manifest_check_features(out, err);
}

static enum sidestep_status read_head(const json_t *root, struct manifest *out,
                                      struct sidestep_error *err)
{
    const json_t *metadata = json_object_get(root, "metadata");
    const char *saved_at;
    int64_t world_size;

    TRY(get_id(root, "save_id", out->save_id, err));
    TRY(get_id(root, "run_id", out->run_id, err));
    TRY(get_count(root, "incarnation", &out->incarnation, err));
    out->step = -1;
    if (!json_is_null(json_object_get(root, "step")))
        TRY(get_integer(root, "step", 0, INT64_MAX, &out->step, err));
    TRY(get_integer(root, "world_size", 1, SIDESTEP_MAX_RANKS, &world_size, err));
    out->world_size = (uint32_t)world_size;
    TRY(get_string(root, "saved_at", &saved_at, err));
    TRY(get_integer(root, "saved_at_unix", 0, MANIFEST_MAX_TIME, &out->saved_at, err));
    if (!json_is_object(metadata))
        return FAIL_FORMAT(err, "no object \"metadata\"");
    TRY(get_count(metadata, "bytes", &out->metadata_bytes, err));
    return get_sha256(metadata, "sha256", out->metadata_sha256, err);
}

static enum sidestep_status read_file(const json_t *file, struct arena *arena,
                                      struct manifest_file *out, struct sidestep_error *err)
{
    const char *name;

    if (!json_is_object(file))
        return FAIL_FORMAT(err, "an entry of \"files\" is not an object");
    TRY(get_string(file, "name", &name, err));
    TRY(get_count(file, "bytes", &out->bytes, err));
    TRY(get_sha256(file, "footer_sha256", out->footer_sha256, err));
    TRY(get_id(file, "origin", out->origin, err));
    out->name = arena_strndup(arena, name, strlen(name));
    return out->name != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(name) + 1);
}

static enum sidestep_status read_files(const json_t *root, struct arena *arena,
                                       struct manifest *out, struct sidestep_error *err)
{
    const json_t *files = json_object_get(root, "files");

    if (!json_is_array(files))
        return FAIL_FORMAT(err, "no array \"files\"");
    out->file_count = json_array_size(files);
    if (out->file_count > MANIFEST_MAX_FILES)
        return FAIL_FORMAT(err, "%zu files (at most %zu)", out->file_count, MANIFEST_MAX_FILES);
    out->files = arena_new(arena, out->file_count, sizeof(*out->files));
    if (out->files == NULL)
        return FAIL_NOMEM(err, out->file_count * sizeof(*out->files));
    for (size_t i = 0; i < out->file_count; i++)
        TRY(read_file(json_array_get(files, i), arena, &out->files[i], err));
    return SIDESTEP_OK;
}

static enum sidestep_status decode(const char *text, size_t length, struct arena *arena,
                                   struct manifest *out, struct sidestep_error *err)
{
    OWNED_JSON *root = NULL;
    size_t json_length = 0;

    if (length > MANIFEST_MAX_BYTES)
        return FAIL_FORMAT(err, "%zu bytes (at most %zu)", length, MANIFEST_MAX_BYTES);
    TRY(check_hash_line(text, length, &json_length, err));
    TRY(parse_json(text, json_length, &root, err));
    TRY(read_version(root, out, err));
    TRY(read_head(root, out, err));
    TRY(read_files(root, arena, out, err));
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
