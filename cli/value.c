/* SPDX-License-Identifier: BSD-3-Clause */
/* value.c -- prints decoded objects.  All recursion here ends at CLI_VALUE_MAX_DEPTH. */
#include "value.h"

#include "escape.h"
#include "memory.h"
#include "format_units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Columns of a key that is not a string, as text. */
#define KEY_COLUMNS 200

static bool is_plain(const struct sidestep_value *value, unsigned depth)
{
    enum sidestep_value_kind kind = sidestep_value_kind(value);
    size_t count = sidestep_value_count(value);

    if (kind == SIDESTEP_VALUE_BYTES || kind == SIDESTEP_VALUE_OPAQUE)
        return false;
    if (count > 0 && depth == CLI_VALUE_MAX_DEPTH)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!is_plain(sidestep_value_item(value, i), depth + 1))
            return false;
        /* A tuple as a key is printed as text, because JSON keys are strings. */
        if (kind == SIDESTEP_VALUE_DICT && !is_plain(sidestep_value_key(value, i), depth + 1))
            return false;
    }
    return true;
}

bool cli_value_is_json(const struct sidestep_value *value)
{
    return is_plain(value, 0);
}

/* Text that stops growing when it is too long to be shown. */
struct text {
    FILE *out;
    size_t left; /* bytes before escaping; each takes at least one column */
};

static void put(struct text *text, const char *bytes, size_t length)
{
    if (length > text->left)
        length = text->left;
    cli_escape_write(text->out, bytes, length);
    text->left -= length;
}

static void put_string(struct text *text, const char *string)
{
    put(text, string, strlen(string));
}

static void put_scalar(struct text *text, const struct sidestep_value *value)
{
    char digits[CLI_FORMAT_UNITS_BYTES];

    switch (sidestep_value_kind(value)) {
    case SIDESTEP_VALUE_BOOL:
        put_string(text, sidestep_value_get_bool(value) ? "True" : "False");
        break;
    case SIDESTEP_VALUE_INT:
        snprintf(digits, sizeof(digits), "%" PRId64, sidestep_value_get_int(value));
        put_string(text, digits);
        break;
    case SIDESTEP_VALUE_FLOAT:
        cli_format_units_real(digits, sidestep_value_get_float(value));
        put_string(text, digits);
        break;
    default:
        put_string(text, "None");
    }
}

static void put_quoted(struct text *text, const struct sidestep_value *value, const char *before,
                       const char *after)
{
    size_t length = 0;
    const char *bytes = sidestep_value_get_bytes(value, &length);

    put_string(text, before);
    if (bytes != NULL)
        put(text, bytes, length);
    put_string(text, after);
}

static void put_value(struct text *text, const struct sidestep_value *value, unsigned depth);

static void put_items(struct text *text, const struct sidestep_value *value, const char *brackets,
                      unsigned depth)
{
    enum sidestep_value_kind kind = sidestep_value_kind(value);
    size_t count = sidestep_value_count(value);

    put(text, brackets, 1);
    for (size_t i = 0; i < count && text->left > 0; i++) {
        if (i > 0)
            put_string(text, ", ");
        if (kind == SIDESTEP_VALUE_DICT) {
            put_value(text, sidestep_value_key(value, i), depth + 1);
            put_string(text, ": ");
        }
        put_value(text, sidestep_value_item(value, i), depth + 1);
    }
    if (kind == SIDESTEP_VALUE_TUPLE && count == 1)
        put_string(text, ",");
    put(text, brackets + 1, 1);
}

static void put_value(struct text *text, const struct sidestep_value *value, unsigned depth)
{
    if (depth > CLI_VALUE_MAX_DEPTH) {
        put_string(text, "...");
        return;
    }
    switch (sidestep_value_kind(value)) {
    case SIDESTEP_VALUE_STR:
        put_quoted(text, value, "'", "'");
        break;
    case SIDESTEP_VALUE_BYTES:
        put_quoted(text, value, "b'", "'");
        break;
    case SIDESTEP_VALUE_OPAQUE:
        put_quoted(text, value, "<", ">");
        break;
    case SIDESTEP_VALUE_LIST:
        put_items(text, value, "[]", depth);
        break;
    case SIDESTEP_VALUE_TUPLE:
        put_items(text, value, "()", depth);
        break;
    case SIDESTEP_VALUE_DICT:
        put_items(text, value, "{}", depth);
        break;
    default:
        put_scalar(text, value);
    }
}

char *cli_value_text(const struct sidestep_value *value, size_t columns)
{
    char *escaped = NULL;
    size_t length = 0;
    /* A character of 4 bytes takes at least one column, except combining ones. */
    struct text text = {.out = cli_memory_stream(&escaped, &length), .left = columns * 4 + 4};

    put_value(&text, value, 0);
    cli_memory_stream_close(text.out);
    cli_escape_truncate(escaped, columns);
    return escaped;
}

static char *base64(const unsigned char *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = cli_memory_alloc(length / 3 * 4 + 5), *next = text;

    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t group = (uint32_t)bytes[i] << 16;

        group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? bytes[i + 2] : 0;
        *next++ = digits[group >> 18];
        *next++ = digits[group >> 12 & 63];
        *next++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *next++ = left > 2 ? digits[group & 63] : '=';
    }
    *next = '\0';
    return text;
}

static void json_bytes(struct cli_json *json, const char *key, const struct sidestep_value *value)
{
    size_t length = 0;
    const char *bytes = sidestep_value_get_bytes(value, &length);
    char *text = base64((const unsigned char *)bytes, length);

    cli_json_open(json, key, '{');
    cli_json_text(json, "$bytes", text);
    cli_json_close(json, '}');
    free(text);
}

static void json_string(struct cli_json *json, const char *key, const struct sidestep_value *value)
{
    size_t length = 0;
    const char *bytes = sidestep_value_get_bytes(value, &length);

    cli_json_bytes(json, key, bytes, length);
}

static void json_value(struct cli_json *json, const char *key, const struct sidestep_value *value,
                       unsigned depth);

static void json_dict(struct cli_json *json, const char *outer_key,
                      const struct sidestep_value *value, unsigned depth)
{
    cli_json_open(json, outer_key, '{');
    for (size_t i = 0; i < sidestep_value_count(value); i++) {
        const struct sidestep_value *key = sidestep_value_key(value, i);

        if (sidestep_value_kind(key) == SIDESTEP_VALUE_STR) {
            json_value(json, sidestep_value_get_bytes(key, NULL), sidestep_value_item(value, i),
                       depth + 1);
        } else {
            char *text = cli_value_text(key, KEY_COLUMNS);

            json_value(json, text, sidestep_value_item(value, i), depth + 1);
            free(text);
        }
    }
    cli_json_close(json, '}');
}

static void json_value(struct cli_json *json, const char *key, const struct sidestep_value *value,
                       unsigned depth)
{
    switch (depth > CLI_VALUE_MAX_DEPTH ? SIDESTEP_VALUE_NONE : sidestep_value_kind(value)) {
    case SIDESTEP_VALUE_NONE:
        cli_json_null(json, key);
        break;
    case SIDESTEP_VALUE_BOOL:
        cli_json_bool(json, key, sidestep_value_get_bool(value));
        break;
    case SIDESTEP_VALUE_INT:
        cli_json_int(json, key, sidestep_value_get_int(value));
        break;
    case SIDESTEP_VALUE_FLOAT:
        cli_json_real(json, key, sidestep_value_get_float(value));
        break;
    case SIDESTEP_VALUE_STR:
        json_string(json, key, value);
        break;
    case SIDESTEP_VALUE_BYTES:
        json_bytes(json, key, value);
        break;
    case SIDESTEP_VALUE_LIST:
    case SIDESTEP_VALUE_TUPLE:
        cli_json_open(json, key, '[');
        for (size_t i = 0; i < sidestep_value_count(value); i++)
            json_value(json, NULL, sidestep_value_item(value, i), depth + 1);
        cli_json_close(json, ']');
        break;
    case SIDESTEP_VALUE_DICT:
        json_dict(json, key, value, depth);
        break;
    case SIDESTEP_VALUE_OPAQUE:
        cli_json_open(json, key, '{');
        json_string(json, "$opaque", value);
        cli_json_close(json, '}');
        break;
    }
}

void cli_value_json(struct cli_json *json, const char *key, const struct sidestep_value *value)
{
    json_value(json, key, value, 0);
}
