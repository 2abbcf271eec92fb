/* SPDX-License-Identifier: BSD-3-Clause */
/* file_name.c -- see file_name.h. */
#include "format/file_name.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/owned.h"

#define NAMES_MAX_PATH 4095u

static const struct {
    enum names_kind kind;
    const char *suffix;
} hidden_suffixes[] = {
    {NAMES_SAVING, ".saving"},   {NAMES_TRASH, ".trash"},     {NAMES_BAD, ".bad"},
    {NAMES_OUTCOME, ".outcome"}, {NAMES_PENDING, ".pending"}, {NAMES_EXPORT, ".export"},
};
static const struct {
    enum names_kind kind;
    const char *suffix;
} rank_suffixes[] = {{NAMES_YES, ".yes"}, {NAMES_FAILED, ".failed"}};

/* The take_ functions move ${*at} over what they recognise, or leave it and return false. */
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

/* What follows ".sidestep." */
static enum names_kind parse_hidden(const char *at, struct names_parsed *out)
{
    if (take_text(&at, "manifest."))
        return take_id(&at, out->save_id) && *at == '\0' ? NAMES_MANIFEST : NAMES_NONE;
    if (!take_id(&at, out->save_id))
        return NAMES_NONE;
    for (size_t i = 0; i < ARRAY_LENGTH(hidden_suffixes); i++)
        if (strcmp(at, hidden_suffixes[i].suffix) == 0)
            return hidden_suffixes[i].kind;
    return NAMES_NONE;
}

/* What follows "__" */
static enum names_kind parse_ranked(const char *at, struct names_parsed *out)
{
    if (!take_number(&at, &out->rank))
        return NAMES_NONE;
    if (take_text(&at, "_")) {
        if (!take_number(&at, &out->shard))
            return NAMES_NONE;
        if (strncmp(at, ".distcp", 7) != 0 && (!take_text(&at, ".") || !take_id(&at, out->save_id)))
            return NAMES_NONE;
        if (!take_text(&at, ".distcp"))
            return NAMES_NONE;
        return *at == '\0' ? NAMES_SHARD : strcmp(at, ".part") == 0 ? NAMES_PART : NAMES_NONE;
    }
    if (!take_text(&at, ".") || !take_id(&at, out->save_id))
        return NAMES_NONE;
    for (size_t i = 0; i < ARRAY_LENGTH(rank_suffixes); i++)
        if (strcmp(at, rank_suffixes[i].suffix) == 0)
            return rank_suffixes[i].kind;
    return NAMES_NONE;
}

struct names_parsed names_parse(const char *name)
{
    struct names_parsed out = {.kind = NAMES_NONE};

    if (strcmp(name, NAMES_COMMIT_LOCK) == 0)
        out.kind = NAMES_LOCK;
    else if (take_text(&name, NAMES_SERIES_DIR "."))
        out.kind = parse_hidden(name, &out);
    else if (take_text(&name, NAMES_METADATA "."))
        out.kind = take_id(&name, out.save_id) && *name == '\0' ? NAMES_META_TMP : NAMES_NONE;
    else if (take_text(&name, "__"))
        out.kind = parse_ranked(name, &out);
    return out.kind != NAMES_NONE ? out : (struct names_parsed){.kind = NAMES_NONE};
}

void names_format(enum names_kind kind, const char *save_id, uint32_t rank, uint32_t shard,
                  char out[NAMES_MAX])
{
    bool is_shard = kind == NAMES_SHARD || kind == NAMES_PART;
    const char *dot = *save_id != '\0' ? "." : "";

    assert(kind > NAMES_NONE && kind <= NAMES_EXPORT);
    assert((is_shard && *save_id == '\0') ||
           (is_save_id(save_id) && strlen(save_id) == SAVE_ID_HEX - 1));
    if (is_shard)
        snprintf(out, NAMES_MAX, "__%u_%u%s%s.distcp%s", rank, shard, dot, save_id,
                 kind == NAMES_PART ? ".part" : "");
    else if (kind == NAMES_MANIFEST)
        snprintf(out, NAMES_MAX, NAMES_SERIES_DIR ".manifest.%s", save_id);
    else if (kind == NAMES_META_TMP)
        snprintf(out, NAMES_MAX, NAMES_METADATA ".%s", save_id);
    for (size_t i = 0; i < ARRAY_LENGTH(hidden_suffixes); i++)
        if (hidden_suffixes[i].kind == kind)
            snprintf(out, NAMES_MAX, NAMES_SERIES_DIR ".%s%s", save_id, hidden_suffixes[i].suffix);
    for (size_t i = 0; i < ARRAY_LENGTH(rank_suffixes); i++)
        if (rank_suffixes[i].kind == kind)
            snprintf(out, NAMES_MAX, "__%u.%s%s", rank, save_id, rank_suffixes[i].suffix);
}

bool names_end_with(const char *name, const char *ending)
{
    size_t length = strlen(name), least = strlen(ending);

    return length >= least && strcmp(name + length - least, ending) == 0;
}

int64_t names_number(const char *digits, const char *end)
{
    int64_t number = 0;

    if (digits == end)
        return -1;
    for (; digits < end; digits++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *digits - '0', &number))
            return -1;
    return number;
}

const char *names_reserved_ending(const char *name)
{
    static const char *const others[] = {".distcp", ".part", NAMES_METADATA};

    for (size_t i = 0; i < ARRAY_LENGTH(hidden_suffixes); i++)
        if (names_end_with(name, hidden_suffixes[i].suffix))
            return hidden_suffixes[i].suffix;
    for (size_t i = 0; i < ARRAY_LENGTH(rank_suffixes); i++)
        if (names_end_with(name, rank_suffixes[i].suffix))
            return rank_suffixes[i].suffix;
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        if (names_end_with(name, others[i]))
            return others[i];
    return NULL;
}

bool names_is_beneath(const char *path, size_t length)
{
    size_t begin = 0; /* of the component at hand */

    if (length == 0 || length > NAMES_MAX_PATH)
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
