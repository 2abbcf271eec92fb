/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c -- writes JSON as a stream. */
#include "json.h"

#include "escape.h"
#include "format_units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void write_escaped(FILE *out, uint32_t character)
{
    if (character > 0xffff)
        fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((character - 0x10000) >> 10),
                0xdc00 + (character & 0x3ff));
    else
        fprintf(out, "\\u%04x", character);
}

static void write_string(FILE *out, const char *text, size_t length)
{
    fputc('"', out);
    while (length > 0) {
        uint32_t character = 0;
        size_t bytes = cli_escape_decode_utf8(text, length, &character);

        if (bytes == 0)
            fputs("\\ufffd", out);
        else if (character == '"' || character == '\\')
            fprintf(out, "\\%c", (int)character);
        else if (character == '\n')
            fputs("\\n", out);
        else if (character == '\t')
            fputs("\\t", out);
        else if (!cli_escape_is_printable(character))
            write_escaped(out, character);
        else
            fwrite(text, 1, bytes, out);
        bytes = bytes > 0 ? bytes : 1;
        text += bytes;
        length -= bytes;
    }
    fputc('"', out);
}

/* Write what precedes a value: a comma if it is not the first, and its key. */
static void begin(struct cli_json *json, const char *key)
{
    if (json->comma)
        fputc(',', json->out);
    json->comma = true;
    if (key != NULL) {
        write_string(json->out, key, strlen(key));
        fputc(':', json->out);
    }
}

void cli_json_open(struct cli_json *json, const char *key, char bracket)
{
    begin(json, key);
    fputc(bracket, json->out);
    json->comma = false;
}

void cli_json_close(struct cli_json *json, char bracket)
{
    fputc(bracket, json->out);
    json->comma = true;
}

struct cli_json cli_json_begin(FILE *out)
{
    struct cli_json json = {.out = out};

    cli_json_open(&json, NULL, '{');
    return json;
}

void cli_json_end(struct cli_json *json)
{
    fputs("}\n", json->out);
    json->comma = false;
}

void cli_json_text(struct cli_json *json, const char *key, const char *text)
{
    if (text == NULL)
        cli_json_null(json, key);
    else
        cli_json_bytes(json, key, text, strlen(text));
}

void cli_json_texts(struct cli_json *json, const char *key, const char *const *texts, size_t count)
{
    cli_json_open(json, key, '[');
    for (size_t i = 0; i < count; i++)
        cli_json_text(json, NULL, texts[i]);
    cli_json_close(json, ']');
}

void cli_json_bytes(struct cli_json *json, const char *key, const char *text, size_t length)
{
    begin(json, key);
    write_string(json->out, text, length);
}

void cli_json_int(struct cli_json *json, const char *key, int64_t number)
{
    begin(json, key);
    fprintf(json->out, "%" PRId64, number);
}

void cli_json_uint(struct cli_json *json, const char *key, uint64_t number)
{
    begin(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void cli_json_real(struct cli_json *json, const char *key, double number)
{
    char digits[CLI_FORMAT_UNITS_BYTES];

    if (isnan(number)) {
        cli_json_text(json, key, "NaN");
    } else if (isinf(number)) {
        cli_json_text(json, key, number > 0 ? "Infinity" : "-Infinity");
    } else {
        begin(json, key);
        cli_format_units_real(digits, number);
        fputs(digits, json->out);
    }
}

void cli_json_bool(struct cli_json *json, const char *key, bool value)
{
    cli_json_raw(json, key, value ? "true" : "false");
}

void cli_json_known(struct cli_json *json, const char *key, bool known, int64_t number)
{
    if (known)
        cli_json_int(json, key, number);
    else
        cli_json_null(json, key);
}

void cli_json_null(struct cli_json *json, const char *key)
{
    cli_json_raw(json, key, "null");
}

void cli_json_raw(struct cli_json *json, const char *key, const char *text)
{
    begin(json, key);
    fputs(text, json->out);
}
