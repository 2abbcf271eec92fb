/* SPDX-License-Identifier: BSD-3-Clause */
/* file_name.c -- see file_name.h. */
#include "format/file_name.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define MAX_PATH_BYTES 4095u

struct suffix {
    enum file_name_kind kind;
    const char *suffix;
};
static const struct suffix hidden_suffixes[] = {
    {FILE_NAME_SAVING, ".saving"},   {FILE_NAME_TRASH, ".trash"},     {FILE_NAME_BAD, ".bad"},
    {FILE_NAME_OUTCOME, ".outcome"}, {FILE_NAME_PENDING, ".pending"}, {FILE_NAME_EXPORT, ".export"},
};
static const struct suffix rank_suffixes[] = {{FILE_NAME_VOTE, ".yes"},
                                              {FILE_NAME_FAILED, ".failed"}};

/* The take_ functions move ${*at} past what they recognise; otherwise they return false. */
static bool take_text(const char **at, const char *text)
{
    size_t length = strlen(text);

    if (strncmp(*at, text, length) != 0)
        return false;
    *at += length;
    return true;
}

static bool is_save_id(const char *text)
{
    return strspn(text, "0123456789abcdef") >= SAVE_ID_HEX - 1;
}

static bool take_id(const char **at, char id[SAVE_ID_HEX])
{
    if (!is_save_id(*at))
        return false;
    memcpy(id, *at, SAVE_ID_HEX - 1);
    id[SAVE_ID_HEX - 1] = '\0';
    *at += SAVE_ID_HEX - 1;
    return true;
}

static bool take_number(const char **at, uint32_t *out)
{
    size_t digits = strspn(*at, "0123456789");
    uint64_t value = 0;

    if (digits == 0 || digits > 10 || (digits > 1 && **at == '0'))
        return false;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (uint64_t)((*at)[i] - '0');
    if (value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    *at += digits;
    return true;
}

/* Parse what follows ".sidestep." */
static enum file_name_kind parse_hidden(const char *at, struct file_name *out)
{
    if (take_text(&at, "manifest."))
        return take_id(&at, out->save_id) && *at == '\0' ? FILE_NAME_MANIFEST : FILE_NAME_NONE;
    if (take_text(&at, "index."))
        return take_id(&at, out->save_id) && *at == '\0' ? FILE_NAME_INDEX : FILE_NAME_NONE;
    if (!take_id(&at, out->save_id))
        return FILE_NAME_NONE;
    for (size_t i = 0; i < ARRAY_LENGTH(hidden_suffixes); i++)
        if (strcmp(at, hidden_suffixes[i].suffix) == 0)
            return hidden_suffixes[i].kind;
    return FILE_NAME_NONE;
}

/* Parse what follows "__RANK_". */
static enum file_name_kind parse_numbered(const char *at, struct file_name *out)
{
    if (!take_number(&at, &out->shard))
        return FILE_NAME_NONE;
    if (strncmp(at, ".distcp", 7) != 0 && (!take_text(&at, ".") || !take_id(&at, out->save_id)))
        return FILE_NAME_NONE;
    if (strcmp(at, ".file") == 0 && out->save_id[0] != '\0')
        return FILE_NAME_EXTRA;
    if (!take_text(&at, ".distcp"))
        return FILE_NAME_NONE;
    return *at == '\0'                ? FILE_NAME_SHARD
           : strcmp(at, ".part") == 0 ? FILE_NAME_PART
                                      : FILE_NAME_NONE;
}

/* Parse what follows "__". */
static enum file_name_kind parse_ranked(const char *at, struct file_name *out)
{
    if (!take_number(&at, &out->rank))
        return FILE_NAME_NONE;
    if (take_text(&at, "_"))
        return parse_numbered(at, out);
    if (!take_text(&at, ".") || !take_id(&at, out->save_id))
        return FILE_NAME_NONE;
    for (size_t i = 0; i < ARRAY_LENGTH(rank_suffixes); i++)
        if (strcmp(at, rank_suffixes[i].suffix) == 0)
            return rank_suffixes[i].kind;
    return FILE_NAME_NONE;
}

struct file_name file_name_parse(const char *name)
{
    struct file_name out = {.kind = FILE_NAME_NONE};

    if (strcmp(name, FILE_NAME_COMMIT_LOCK) == 0)
        out.kind = FILE_NAME_LOCK;
    else if (take_text(&name, FILE_NAME_SERIES_DIR "."))
        out.kind = parse_hidden(name, &out);
    else if (take_text(&name, FILE_NAME_METADATA "."))
        out.kind =
            take_id(&name, out.save_id) && *name == '\0' ? FILE_NAME_METADATA_TMP : FILE_NAME_NONE;
    else if (take_text(&name, "__"))
        out.kind = parse_ranked(name, &out);
    return out.kind != FILE_NAME_NONE ? out : (struct file_name){.kind = FILE_NAME_NONE};
}

void file_name_format(enum file_name_kind kind, const char *save_id, uint32_t rank, uint32_t shard,
                      char out[FILE_NAME_BYTES])
{
    bool is_shard = kind == FILE_NAME_SHARD || kind == FILE_NAME_PART;
    const char *dot = *save_id != '\0' ? "." : "";

    assert(kind > FILE_NAME_NONE && kind <= FILE_NAME_EXPORT);
    assert((is_shard && *save_id == '\0') ||
           (is_save_id(save_id) && strlen(save_id) == SAVE_ID_HEX - 1));
    if (is_shard)
        snprintf(out, FILE_NAME_BYTES, "__%u_%u%s%s.distcp%s", rank, shard, dot, save_id,
                 kind == FILE_NAME_PART ? ".part" : "");
    else if (kind == FILE_NAME_EXTRA)
        snprintf(out, FILE_NAME_BYTES, "__%u_%u.%s.file", rank, shard, save_id);
    else if (kind == FILE_NAME_MANIFEST)
        snprintf(out, FILE_NAME_BYTES, FILE_NAME_SERIES_DIR ".manifest.%s", save_id);
    else if (kind == FILE_NAME_INDEX)
        snprintf(out, FILE_NAME_BYTES, FILE_NAME_SERIES_DIR ".index.%s", save_id);
    else if (kind == FILE_NAME_METADATA_TMP)
        snprintf(out, FILE_NAME_BYTES, FILE_NAME_METADATA ".%s", save_id);
    for (size_t i = 0; i < ARRAY_LENGTH(hidden_suffixes); i++)
        if (hidden_suffixes[i].kind == kind)
            snprintf(out, FILE_NAME_BYTES, FILE_NAME_SERIES_DIR ".%s%s", save_id,
                     hidden_suffixes[i].suffix);
    for (size_t i = 0; i < ARRAY_LENGTH(rank_suffixes); i++)
        if (rank_suffixes[i].kind == kind)
            snprintf(out, FILE_NAME_BYTES, "__%u.%s%s", rank, save_id, rank_suffixes[i].suffix);
}

bool file_name_is_save_id(const char *id)
{
    return id != NULL && is_save_id(id) && id[SAVE_ID_HEX - 1] == '\0';
}

bool file_name_has_suffix(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);

    return length >= ending_length && strcmp(name + length - ending_length, ending) == 0;
}

int64_t file_name_parse_number(const char *digits, const char *end)
{
    int64_t number = 0;

    if (digits == end)
        return -1;
    for (; digits < end; digits++)
        if (*digits < '0' || *digits > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *digits - '0', &number))
            return -1;
    return number;
}

const char *file_name_reserved_suffix(const char *name)
{
    static const char *const others[] = {".distcp", ".part", FILE_NAME_METADATA};

    for (size_t i = 0; i < ARRAY_LENGTH(hidden_suffixes); i++)
        if (file_name_has_suffix(name, hidden_suffixes[i].suffix))
            return hidden_suffixes[i].suffix;
    for (size_t i = 0; i < ARRAY_LENGTH(rank_suffixes); i++)
        if (file_name_has_suffix(name, rank_suffixes[i].suffix))
            return rank_suffixes[i].suffix;
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        if (file_name_has_suffix(name, others[i]))
            return others[i];
    return NULL;
}

bool file_name_is_beneath(const char *path, size_t length)
{
    size_t begin = 0; /* of the current component */

    if (length == 0 || length > MAX_PATH_BYTES)
        return false;
    for (size_t i = 0; i <= length; i++) {
        unsigned char byte = i < length ? (unsigned char)path[i] : '/';
        if (byte < 0x20 || byte == 0x7f)
            return false;
        if (byte != '/')
            continue;
        size_t n = i - begin;
        if (n == 0 || (n == 1 && path[begin] == '.') || (n == 2 && !memcmp(path + begin, "..", 2)))
            return false;
        begin = i + 1;
    }
    return true;
}
