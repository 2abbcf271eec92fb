/* SPDX-License-Identifier: BSD-3-Clause */
/* escape.c -- decodes UTF-8 strictly, and escapes text of unknown origin. */
#include "escape.h"

#include "memory.h"

#include <string.h>
#include <wchar.h>

size_t cli_escape_decode_utf8(const char *text, size_t length, uint32_t *character)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = length > 0 ? (unsigned char)text[0] : 0xff;
    size_t bytes = first < 0x80   ? 1
                   : first < 0xc0 ? 0
                   : first < 0xe0 ? 2
                   : first < 0xf0 ? 3
                   : first < 0xf8 ? 4
                                  : 0;

    if (bytes == 0 || bytes > length)
        return 0;
    *character = bytes == 1 ? first : first & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        *character = *character << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (*character < smallest[bytes] || *character > 0x10ffff ||
        (*character >= 0xd800 && *character <= 0xdfff))
        return 0;
    return bytes;
}

/* Characters that reorder, hide or break the text around them. */
static bool is_deceptive(uint32_t c)
{
    return c == 0x061c || c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

bool cli_escape_is_printable(uint32_t character)
{
    return !is_control(character) && !is_deceptive(character);
}

static void write_one(FILE *out, const char *text, size_t bytes, uint32_t character)
{
    if (character == '\\')
        fputs("\\\\", out);
    else if (character == '\n')
        fputs("\\n", out);
    else if (character == '\t')
        fputs("\\t", out);
    else if (character == '\r')
        fputs("\\r", out);
    else if (is_control(character))
        fprintf(out, "\\x%02x", character);
    else if (is_deceptive(character))
        fprintf(out, character > 0xffff ? "\\U%08x" : "\\u%04x", character);
    else
        fwrite(text, 1, bytes, out);
}

void cli_escape_write(FILE *out, const char *text, size_t length)
{
    while (length > 0) {
        uint32_t character = 0;
        size_t bytes = cli_escape_decode_utf8(text, length, &character);

        if (bytes == 0) {
            fprintf(out, "\\x%02x", (unsigned char)text[0]);
            bytes = 1;
        } else {
            write_one(out, text, bytes, character);
        }
        text += bytes;
        length -= bytes;
    }
}

char *cli_escape_text(const char *text)
{
    char *escaped = NULL;
    size_t length = 0;
    FILE *stream = cli_memory_stream(&escaped, &length);

    cli_escape_write(stream, text, strlen(text));
    cli_memory_stream_close(stream);
    return escaped;
}

/* Needs a UTF-8 LC_CTYPE, which main() sets; without one, every character has width one. */
static size_t character_width(uint32_t character)
{
    int width = wcwidth((wchar_t)character);

    return width >= 0 ? (size_t)width : 1;
}

size_t cli_escape_width(const char *text)
{
    size_t length = strlen(text), width = 0;

    while (length > 0) {
        uint32_t character = 0;
        size_t bytes = cli_escape_decode_utf8(text, length, &character);

        width += bytes > 0 ? character_width(character) : 1;
        bytes = bytes > 0 ? bytes : 1;
        text += bytes;
        length -= bytes;
    }
    return width;
}

void cli_escape_truncate(char *text, size_t columns)
{
    size_t length = strlen(text), width = 0, at = 0, keep = 0;

    while (at < length) {
        uint32_t character = 0;
        size_t bytes = cli_escape_decode_utf8(text + at, length - at, &character);

        width += bytes > 0 ? character_width(character) : 1;
        if (width > columns) {
            /* The dots and the NUL fit after ${keep} bytes. */
            memcpy(text + keep, "...", 4);
            return;
        }
        at += bytes > 0 ? bytes : 1;
        if (width + 3 <= columns)
            keep = at;
    }
}
