/* SPDX-License-Identifier: BSD-3-Clause */
/* escape.c -- escapes texts in URLs, and decodes them. */
#include "object/escape.h"

static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void escape_put(struct buffer *to, const char *text, bool keep_slashes)
{
    static const char digits[] = "0123456789ABCDEF";

    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (is_unreserved(*c) || (*c == '/' && keep_slashes)) {
            buffer_put_u8(to, *c);
            continue;
        }
        buffer_put_u8(to, '%');
        buffer_put_u8(to, (uint8_t)digits[*c >> 4]);
        buffer_put_u8(to, (uint8_t)digits[*c & 15]);
    }
}

bool escape_decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; from++) {
        if (*from != '%') {
            *to++ = *from == '+' ? ' ' : *from;
            continue;
        }
        int high = utf8_hex_digit(from[1]);
        int low = high >= 0 ? utf8_hex_digit(from[2]) : -1;
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = '\0';
    return true;
}
