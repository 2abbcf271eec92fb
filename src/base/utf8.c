/* SPDX-License-Identifier: BSD-3-Clause */
/* utf8.c -- see utf8.h. */
#include "base/utf8.h"

#include <assert.h>
#include <string.h>

/* The length of the sequence that begins with ${lead}, and the range of its second byte.  0: no
 * sequence begins with ${lead}. */
static size_t utf8_sequence(unsigned char lead, bool surrogates, unsigned char *low,
                            unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0)
            *low = 0xa0;
        if (lead == 0xed && !surrogates)
            *high = 0x9f;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        if (lead == 0xf0)
            *low = 0x90;
        if (lead == 0xf4)
            *high = 0x8f;
        return 4;
    }
    return 0;
}

/* Are these eight bytes ASCII, and none of them NUL?  Nearly all names are ASCII. */
static bool is_plain(const unsigned char *bytes)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return ((word | (word - ones)) & tops) == 0; /* a NUL minus one sets its top bit */
}

/* The number of valid bytes at the beginning.  ${python}: accept NULs and surrogates. */
static size_t valid_prefix(const char *text, size_t length, bool python)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char low, high;
    size_t i = 0;

    while (i < length) {
        if (length - i >= 8 && is_plain(bytes + i)) {
            i += 8;
            continue;
        }
        if (bytes[i] < 0x80 && (python || bytes[i] != 0)) {
            i++;
            continue;
        }
        size_t size = utf8_sequence(bytes[i], python, &low, &high);
        if (size == 0 || size > length - i || bytes[i + 1] < low || bytes[i + 1] > high)
            return i;
        for (size_t k = 2; k < size; k++)
            if ((bytes[i + k] & 0xc0) != 0x80)
                return i;
        i += size;
    }
    return length;
}

bool utf8_is_valid(const char *text, size_t length)
{
    return valid_prefix(text, length, false) == length;
}

size_t utf8_prefix(const char *text, size_t length)
{
    return valid_prefix(text, length, false);
}

size_t utf8_python_prefix(const char *text, size_t length)
{
    return valid_prefix(text, length, true);
}

size_t utf8_put(char *to, uint32_t code)
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    assert(code <= 0x10ffff);
    for (size_t i = length; i-- > 1; code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(leads[length] | code);
    return length;
}
