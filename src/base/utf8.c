/* SPDX-License-Identifier: BSD-3-Clause */
/* utf8.c -- see utf8.h. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the sequence that ${lead} starts, and the range of its second byte; 0: no lead. */
static size_t utf8_sequence(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0)
            *low = 0xa0;
        if (lead == 0xed)
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

/* Eight bytes of ASCII, none of them NUL: as nearly all names are. */
static bool is_plain(const unsigned char *bytes)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return ((word | (word - ones)) & tops) == 0; /* a NUL borrows */
}

bool utf8_is_valid(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char low, high;

    for (size_t i = 0; i < length;) {
        if (length - i >= 8 && is_plain(bytes + i)) {
            i += 8;
            continue;
        }
        if (bytes[i] != 0 && bytes[i] < 0x80) {
            i++;
            continue;
        }
        size_t size = utf8_sequence(bytes[i], &low, &high);
        if (size == 0 || size > length - i || bytes[i + 1] < low || bytes[i + 1] > high)
            return false;
        for (size_t k = 2; k < size; k++)
            if ((bytes[i + k] & 0xc0) != 0x80)
                return false;
        i += size;
    }
    return true;
}
