/* SPDX-License-Identifier: BSD-3-Clause */
/* utf8.h -- checks and writes UTF-8: names in `.metadata`, and texts of JSON and pickles. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is it well-formed UTF-8 without NUL?  As in table 3-7 of Unicode: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
bool utf8_is_valid(const char *text, size_t length);
/* The number of bytes before the first one that is not UTF-8, or is a NUL; ${length}: there is
 * none. */
size_t utf8_prefix(const char *text, size_t length);
/* The number of bytes before the first one that is not UTF-8, or ${length}.  It also accepts NULs
 * and lone surrogates, because a str of Python may contain them. */
size_t utf8_python_prefix(const char *text, size_t length);
/* The value of a hexadecimal digit of either case; -1: it is none. */
static inline int utf8_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
/* Write a code point of at most 0x10ffff, or a surrogate, and return its 1 to 4 bytes. */
size_t utf8_put(char *to, uint32_t code);

#endif
