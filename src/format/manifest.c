/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest.c -- see manifest.h: checks and writes manifests. */
#include "format/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "comm/comm.h"
#include "format/file_name.h"
#include "format/json_write.h"
#include "format/manifest_layout.h"
#include "model/model.h"

#define FILE_TEXT_BYTES 256u  /* enough for an entry of a file without its name */
#define HEAD_TEXT_BYTES 1024u /* enough for all before "files" */

/* May a data file have this name?  It has only ASCII that every file system keeps, and that is not
 * special to any terminal or parser. */
static bool is_file_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    size_t length = strlen(name);

    return strspn(name, allowed) == length && file_name_is_beneath(name, length);
}

static enum sidestep_status check_file(const struct manifest_file *file,
                                       enum sidestep_status status, struct sidestep_error *err)
{
    if (!is_file_name(file->name))
        return FAIL(err, status, "the file name '%s' is not allowed",
                    display_name(file->name).text);
    if (file->bytes > MANIFEST_MAX_INTEGER)
        return FAIL(err, status, "'%s': a size of %" PRIu64 " bytes", display_name(file->name).text,
                    file->bytes);
    if (!file_name_is_save_id(file->origin))
        return FAIL(err, status, "'%s': origin is not a save id", display_name(file->name).text);
    return SIDESTEP_OK;
}

/* A file that is not stored under its own name has the save id in its name. */
static bool is_of_save(const struct extra_file *file, const char *save_id)
{
    return file->stored == NULL || strcmp(file_name_parse(file->stored).save_id, save_id) == 0;
}

static enum sidestep_status check_extras(const struct manifest *manifest, struct hash_table *stored,
                                         enum sidestep_status status, struct sidestep_error *err)
{
    OWNED_EXTRA_FILE_NAMES names = {0};
    size_t existing;

    if (manifest->extra_count > EXTRA_FILE_MAX_COUNT)
        return FAIL(err, status, "%zu extra files (at most %zu)", manifest->extra_count,
                    EXTRA_FILE_MAX_COUNT);
    for (size_t i = 0; i < manifest->extra_count; i++) {
        const struct extra_file *file = &manifest->extras[i];
        TRY(extra_file_check(file, status, err));
        TRY(extra_file_names_add(&names, file, status, err));
        TRY(hash_table_insert(stored, extra_file_stored(file), i, &existing, err));
        if (existing != SIZE_MAX || file->rank >= manifest->world_size ||
            !is_of_save(file, manifest->save_id))
            return FAIL(err, status, "file '%s': of rank %u, stored as '%s'",
                        display_name(file->name).text, file->rank,
                        display_name(extra_file_stored(file)).text);
    }
    return SIDESTEP_OK;
}

static enum sidestep_status check_files(const struct manifest *manifest,
                                        enum sidestep_status status, struct sidestep_error *err)
{
    OWNED_HASH_TABLE names = {0};

    if (manifest->file_count > MANIFEST_MAX_FILES)
        return FAIL(err, status, "%zu files (at most %zu)", manifest->file_count,
                    MANIFEST_MAX_FILES);
    for (size_t i = 0; i < manifest->file_count; i++) {
        const char *name = manifest->files[i].name;
        size_t existing;
        TRY(check_file(&manifest->files[i], status, err));
        TRY(hash_table_insert(&names, name, i, &existing, err));
        if (existing != SIZE_MAX)
            return FAIL(err, status, "the file '%s' is listed twice", display_name(name).text);
    }
    return check_extras(manifest, &names, status, err);
}

enum sidestep_status manifest_check_features(const struct manifest *manifest,
                                             struct sidestep_error *err)
{
    uint64_t unknown = manifest->required_features & ~(uint64_t)MANIFEST_KNOWN_REQUIRED;

    if (unknown != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "feature bit %d is required, and newer than this library",
                    __builtin_ctzll(unknown));
    return SIDESTEP_OK;
}

/* Check that the template is valid, and that name_template_to_text() writes it like this, so that
 * equal templates are equal texts. */
static enum sidestep_status check_naming(const char *template, enum sidestep_status status,
                                         struct sidestep_error *err)
{
    char again[NAME_TEMPLATE_MAX_BYTES + 1];
    struct name_template naming;

    if (template[0] == '\0')
        return SIDESTEP_OK;
    if (name_template_from_text(template, &naming, err) != SIDESTEP_OK ||
        name_template_is_prefix_only(&naming))
        return FAIL(err, status, "naming is '%s'", display_name(template).text);
    name_template_to_text(&naming, again);
    if (strcmp(again, template) != 0)
        return FAIL(err, status, "naming is '%s', not '%s'", display_name(template).text,
                    display_name(again).text);
    return SIDESTEP_OK;
}

/* A part has the files of its ranks, and no .metadata. Readers that do not know parts refuse it. */
static enum sidestep_status check_part(const struct manifest *manifest, enum sidestep_status status,
                                       struct sidestep_error *err)
{
    const struct manifest_part *part = &manifest->part;
    bool is_part = part->rank_count != 0;

    if (is_part != ((manifest->required_features & MANIFEST_REQUIRED_PART) != 0) ||
        (is_part && (manifest->metadata_bytes != 0 || manifest->index.bytes != 0 ||
                     manifest->run_id[0] == '\0' || manifest->step < 0 || part->parts < 2)))
        return FAIL(err, status, "it is a part in some fields, and not in others");
    for (uint32_t i = 0; i < part->rank_count; i++)
        if (part->ranks[i] >= manifest->world_size ||
            (i > 0 && part->ranks[i] <= part->ranks[i - 1]))
            return FAIL(err, status, "part: rank %u of %u", part->ranks[i], manifest->world_size);
    for (size_t i = 0; is_part && i < manifest->file_count; i++) {
        struct file_name name = file_name_parse(manifest->files[i].name);
        if (name.kind != FILE_NAME_SHARD || !manifest_has_rank(manifest, name.rank))
            return FAIL(err, status, "'%s' is not of a rank of the part",
                        display_name(manifest->files[i].name).text);
    }
    return SIDESTEP_OK;
}

static bool is_rank_of(const void *manifest, uint32_t rank)
{
    return manifest_has_rank(manifest, rank);
}

struct manifest_part_text manifest_part_text(const struct manifest *manifest)
{
    struct rank_list_text ranks = rank_list_format(is_rank_of, manifest, manifest->world_size);
    struct manifest_part_text out;

    memcpy(out.text, ranks.text, sizeof(out.text));
    return out;
}

bool manifest_has_rank(const struct manifest *manifest, uint32_t rank)
{
    size_t begin = 0, end = manifest->part.rank_count;

    if (end == 0)
        return rank < manifest->world_size;
    while (end - begin > 1) {
        size_t middle = begin + (end - begin) / 2;
        if (manifest->part.ranks[middle] <= rank)
            begin = middle;
        else
            end = middle;
    }
    return manifest->part.ranks[begin] == rank;
}

enum sidestep_status manifest_check(const struct manifest *manifest, enum sidestep_status status,
                                    struct sidestep_error *err)
{
    TRY(manifest_check_features(manifest, err));
    if (!file_name_is_save_id(manifest->save_id))
        return FAIL(err, status, "save_id is not 32 hexadecimal digits");
    if (manifest->run_id[0] != '\0' && !file_name_is_save_id(manifest->run_id))
        return FAIL(err, status, "run_id is neither empty nor 32 hexadecimal digits");
    if (manifest->incarnation > MANIFEST_MAX_INTEGER)
        return FAIL(err, status, "incarnation is %" PRIu64, manifest->incarnation);
    if (manifest->step < -1)
        return FAIL(err, status, "step is %" PRId64, manifest->step);
    TRY(check_naming(manifest->naming, status, err));
    if (manifest->world_size == 0 || manifest->world_size > SIDESTEP_MAX_RANKS)
        return FAIL(err, status, "world_size is %u (1 to %d are allowed)", manifest->world_size,
                    SIDESTEP_MAX_RANKS);
    if (manifest->metadata_bytes > MANIFEST_MAX_INTEGER)
        return FAIL(err, status, "metadata.bytes is %" PRIu64, manifest->metadata_bytes);
    const struct manifest_index *index = &manifest->index;
    if (index->bytes > MANIFEST_MAX_INTEGER || index->table_bytes > index->bytes)
        return FAIL(err, status,
                    "index has %" PRIu64 " bytes, and %" PRIu64 " of them are its table",
                    index->bytes, index->table_bytes);
    TRY(check_files(manifest, status, err));
    return check_part(manifest, status, err);
}

static void put_hex(const uint8_t *bytes, size_t length, struct buffer *out)
{
    char *to = (char *)buffer_extend(out, 2 * length + 1);

    if (to == NULL)
        return;
    hash_to_hex(bytes, length, to);
    out->length--; /* without the NUL */
}

/* Clamp the time, because a wrong clock must not fail a save. */
static void put_time(int64_t seconds, struct buffer *out)
{
    int64_t clamped = seconds < 0 ? 0 : seconds > DISPLAY_MAX_TIME ? DISPLAY_MAX_TIME : seconds;

    buffer_printf(out, ",\"saved_at\":\"%s\",\"saved_at_unix\":%" PRId64,
                  display_time(clamped).text, clamped);
}

static void put_index(const struct manifest_index *index, struct buffer *out)
{
    buffer_printf(
        out, ",\"index\":{\"bytes\":%" PRIu64 ",\"table_bytes\":%" PRIu64 ",\"table_sha256\":\"",
        index->bytes, index->table_bytes);
    put_hex(index->table_sha256, HASH_SHA256_BYTES, out);
    buffer_put_text(out, "\"}");
}

/* The first and the last rank of each run of ranks. */
static void put_part(const struct manifest_part *part, struct buffer *out)
{
    buffer_printf(out, ",\"parts\":%u,\"part\":[", part->parts);
    for (uint32_t i = 0, end; i < part->rank_count; i = end) {
        for (end = i + 1; end < part->rank_count && part->ranks[end] == part->ranks[end - 1] + 1;)
            end++;
        buffer_printf(out, "%s%u,%u", i != 0 ? "," : "", part->ranks[i], part->ranks[end - 1]);
    }
    buffer_put_u8(out, ']');
}

static void put_head(const struct manifest *manifest, struct buffer *out)
{
    buffer_printf(out,
                  "{\"format\":\"" MANIFEST_FORMAT
                  "\",\"version\":%d,\"required_features\":\"%016" PRIx64 "\"",
                  MANIFEST_VERSION, manifest->required_features);
    buffer_printf(out, ",\"save_id\":\"%s\",\"run_id\":\"%s\",\"incarnation\":%" PRIu64,
                  manifest->save_id, manifest->run_id, manifest->incarnation);
    if (manifest->step >= 0)
        buffer_printf(out, ",\"step\":%" PRId64, manifest->step);
    else
        buffer_put_text(out, ",\"step\":null");
    if (manifest->naming[0] != '\0') {
        buffer_put_text(out, ",\"naming\":\"");
        buffer_put_text(out, manifest->naming);
        buffer_put_text(out, "\"");
    }
    buffer_printf(out, ",\"world_size\":%u", manifest->world_size);
    put_time(manifest->saved_at, out);
    buffer_printf(out, ",\"optional_features\":\"%016" PRIx64 "\"", manifest->optional_features);
    buffer_printf(out, ",\"metadata\":{\"bytes\":%" PRIu64 ",\"sha256\":\"",
                  manifest->metadata_bytes);
    put_hex(manifest->metadata_sha256, HASH_SHA256_BYTES, out);
    buffer_put_text(out, "\"}");
    if (manifest->index.bytes != 0)
        put_index(&manifest->index, out);
    if (manifest->part.rank_count != 0)
        put_part(&manifest->part, out);
}

/* manifest_check() made sure that no string needs an escape. */
static void put_file(const struct manifest_file *file, struct buffer *out)
{
    buffer_put_text(out, "{\"name\":\"");
    buffer_put_text(out, file->name);
    buffer_printf(out, "\",\"bytes\":%" PRIu64 ",\"footer_sha256\":\"", file->bytes);
    put_hex(file->footer_sha256, HASH_SHA256_BYTES, out);
    buffer_put_text(out, "\",\"origin\":\"");
    buffer_put_text(out, file->origin);
    buffer_put_text(out, "\"}");
}

static void put_extra(const struct extra_file *file, struct buffer *out)
{
    buffer_put_text(out, "{\"name\":");
    json_write_string(out, file->name);
    buffer_printf(out, ",\"rank\":%u", file->rank);
    if (file->stored != NULL)
        buffer_printf(out, ",\"stored\":\"%s\"", file->stored);
    if (file->is_alias)
        buffer_put_text(out, ",\"alias\":1");
    buffer_printf(out, ",\"bytes\":%" PRIu64 ",\"sha256\":\"", file->bytes);
    put_hex(file->sha256, HASH_SHA256_BYTES, out);
    buffer_put_text(out, "\"}");
}

static void put_extras(const struct manifest *manifest, struct buffer *out)
{
    buffer_put_text(out, ",\"extra_files\":[");
    for (size_t i = 0; i < manifest->extra_count; i++) {
        if (i > 0)
            buffer_put_u8(out, ',');
        put_extra(&manifest->extras[i], out);
    }
    buffer_put_u8(out, ']');
}

static enum sidestep_status reserve(const struct manifest *manifest, struct buffer *out,
                                    struct sidestep_error *err)
{
    size_t bytes = HEAD_TEXT_BYTES;

    for (size_t i = 0; i < manifest->file_count; i++)
        bytes += FILE_TEXT_BYTES + strlen(manifest->files[i].name);
    for (size_t i = 0; i < manifest->extra_count; i++) /* a name may have escapes */
        bytes += FILE_TEXT_BYTES + 2 * strlen(manifest->extras[i].name);
    if (bytes > MANIFEST_MAX_BYTES)
        return FAIL(err, SIDESTEP_EINVAL, "manifest: %zu files would take %zu bytes (at most %zu)",
                    manifest->file_count + manifest->extra_count, bytes, MANIFEST_MAX_BYTES);
    if (buffer_extend(out, bytes) != NULL)
        out->length -= bytes;
    return buffer_check(out, err);
}

enum sidestep_status manifest_encode(const struct manifest *manifest, struct buffer *out,
                                     struct sidestep_error *err)
{
    enum sidestep_status status = manifest_check(manifest, SIDESTEP_EINVAL, err);
    uint8_t digest[HASH_SHA256_BYTES];
    size_t start = out->length;

    if (status != SIDESTEP_OK) {
        error_wrap(err, "manifest");
        return status;
    }
    TRY(reserve(manifest, out, err));
    put_head(manifest, out);
    buffer_put_text(out, ",\"files\":[");
    for (size_t i = 0; i < manifest->file_count; i++) {
        if (i > 0)
            buffer_put_u8(out, ',');
        put_file(&manifest->files[i], out);
    }
    buffer_put_u8(out, ']');
    if (manifest->extra_count != 0)
        put_extras(manifest, out);
    buffer_put_text(out, "}\n");
    hash_sha256(out->bytes + start, out->length - start, digest);
    buffer_put_text(out, MANIFEST_HASH_PREFIX);
    put_hex(digest, sizeof(digest), out);
    buffer_put_u8(out, '\n');
    return buffer_check(out, err);
}
