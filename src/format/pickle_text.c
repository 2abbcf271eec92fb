/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pickle_text.c -- see pickle_parser.h: runs the opcodes of protocol 0 whose argument is a line of
 * text: numbers and strings as Python writes them.  It does not depend on the locale, and takes no
 * quadratic time.
 */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/pickle_parser.h"

#define MAX_FLOAT_TEXT 63u /* repr() of a float has at most 24 characters */
#define DIGITS_AT_ONCE 9u
#define BILLION 1000000000u
#define MAX_LIMBS (PICKLE_MAX_DIGITS / DIGITS_AT_ONCE + 2)

enum sidestep_status pickle_line(struct pickle_parser *p, const char **line, size_t *length)
{
    const uint8_t *from = p->in.bytes + p->in.position;
    size_t left = cursor_remaining(&p->in);
    const uint8_t *end = left != 0 ? memchr(from, '\n', left) : NULL;

    if (end == NULL)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a line that does not end");
    *length = (size_t)(end - from);
    *line = (const char *)cursor_take(&p->in, *length + 1);
    return SIDESTEP_OK;
}

static bool is_digits(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return length != 0;
}

enum sidestep_status pickle_line_index(struct pickle_parser *p, uint64_t *index)
{
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    if (!is_digits(line, length) || length > 18)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "not a memo index");
    *index = 0;
    for (size_t i = 0; i < length; i++)
        *index = *index * 10 + (uint64_t)(line[i] - '0');
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- numbers */

/* limbs = limbs * factor + add */
static size_t multiply_add(uint32_t *limbs, size_t count, uint32_t factor, uint32_t add)
{
    uint64_t carry = add;

    for (size_t i = 0; i < count; i++) {
        carry += (uint64_t)limbs[i] * factor;
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0)
        limbs[count++] = (uint32_t)carry;
    return count;
}

static enum sidestep_status push_decimal(struct pickle_parser *p, const char *text, size_t length)
{
    uint32_t limbs[MAX_LIMBS] = {0};
    uint8_t bytes[sizeof(limbs)];
    bool negative = length != 0 && text[0] == '-';
    size_t at = negative, count = 0;

    if (!is_digits(text + at, length - at))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "not a decimal number");
    if (length - at > PICKLE_MAX_DIGITS)
        return PICKLE_FAIL(p, p->beyond, "%zu digits, the limit is %d", length - at,
                           PICKLE_MAX_DIGITS);
    while (at < length) {
        uint32_t factor = 1, digits = 0;
        for (; at < length && factor < BILLION; at++, factor *= 10)
            digits = digits * 10 + (uint32_t)(text[at] - '0');
        count = multiply_add(limbs, count, factor, digits);
    }
    count++; /* for the sign */
    for (size_t i = 0, borrow = 1; negative && i < count; i++) {
        limbs[i] = ~limbs[i] + (uint32_t)borrow;
        borrow = borrow && limbs[i] == 0;
    }
    for (size_t i = 0; i < count * sizeof(limbs[0]); i++)
        bytes[i] = (uint8_t)(limbs[i / 4] >> (8 * (i % 4)));
    return pickle_push_long(p, bytes, count * sizeof(limbs[0]));
}

enum sidestep_status pickle_run_int(struct pickle_parser *p)
{
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    if (length == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return pickle_push(p, line[1] == '1' ? p->yes : p->no);
    return push_decimal(p, line, length);
}

enum sidestep_status pickle_run_long(struct pickle_parser *p)
{
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    if (length != 0 && line[length - 1] == 'L')
        length--;
    return push_decimal(p, line, length);
}

static bool is_word(const char *text, const char *word)
{
    return strcmp(text + (text[0] == '-' || text[0] == '+'), word) == 0;
}

enum sidestep_status pickle_run_float(struct pickle_parser *p)
{
    char text[MAX_FLOAT_TEXT + 1] = "";
    const char *line;
    char *end = text;
    size_t length;
    double real = 0.0;

    TRY(pickle_line(p, &line, &length));
    if (length <= MAX_FLOAT_TEXT) {
        memcpy(text, line, length);
        /* The host program may have set a locale with another decimal point. */
        locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        if (c == (locale_t)0)
            return FAIL_NOMEM(p->err, sizeof(text));
        if (is_word(text, "inf") || is_word(text, "nan") ||
            strspn(text, "0123456789+-.e") == length)
            real = strtod_l(text, &end, c);
        freelocale(c);
    }
    if (length == 0 || length > MAX_FLOAT_TEXT || end != text + length)
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "not a float");
    return pickle_push_float(p, real);
}

/* ---------------------------------------------------------------- strings */

enum sidestep_status pickle_push_str8(struct pickle_parser *p, const void *bytes, size_t length)
{
    const unsigned char *text = bytes;
    unsigned char seen = 0;

    for (size_t i = 0; i < length; i++)
        seen |= text[i];
    return pickle_push_text(p, seen < 0x80 ? PICKLE_STR : PICKLE_BYTES, bytes, length);
}

/* Read ${digits} hexadecimal digits at ${text}.  False: there are fewer. */
static bool take_hex(const char *text, size_t left, size_t digits, uint32_t *value)
{
    *value = 0;
    for (size_t i = 0; i < digits; i++) {
        int digit = i < left ? utf8_hex_digit(text[i]) : -1;
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t take_octal(const char *text, size_t left, uint32_t *value)
{
    size_t used = 0;

    for (*value = 0; used < 3 && used < left && text[used] >= '0' && text[used] <= '7'; used++)
        *value = *value << 3 | (uint32_t)(text[used] - '0');
    return used;
}

/* Decode an escape of a byte string, after its backslash.  Returns its length; 0: it is not an
 * escape. */
static size_t take_escape(const char *text, size_t left, char **out)
{
    static const char letters[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    uint32_t value;

    for (const char *pair = letters; left != 0 && *pair != '\0'; pair += 2)
        if (text[0] == pair[0]) {
            *(*out)++ = pair[1];
            return 1;
        }
    if (left != 0 && text[0] == 'x' && take_hex(text + 1, left - 1, 2, &value)) {
        *(*out)++ = (char)value;
        return 3;
    }
    size_t used = take_octal(text, left, &value);
    if (used != 0)
        *(*out)++ = (char)value;
    return used;
}

/* Read a str as repr() of Python 2 writes it. */
enum sidestep_status pickle_run_string(struct pickle_parser *p)
{
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    if (length < 2 || line[0] != line[length - 1] || (line[0] != '\'' && line[0] != '"'))
        return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a string without quotes");
    line++;
    length -= 2;
    OWNED char *decoded = memory_new(1, length);
    if (decoded == NULL)
        return FAIL_NOMEM(p->err, length);
    char *out = decoded;
    for (size_t i = 0; i < length;) {
        size_t used = line[i] == '\\' ? take_escape(line + i + 1, length - i - 1, &out) : 0;
        if (used == 0)
            *out++ = line[i];
        i += used + 1;
    }
    return pickle_push_str8(p, decoded, (size_t)(out - decoded));
}

/* Read "raw-unicode-escape": \uXXXX, \UXXXXXXXX; all else is Latin-1. */
enum sidestep_status pickle_run_unicode(struct pickle_parser *p)
{
    const char *line;
    size_t length;

    TRY(pickle_line(p, &line, &length));
    OWNED char *decoded = memory_new(2, length);
    if (decoded == NULL)
        return FAIL_NOMEM(p->err, 2 * length);
    char *out = decoded;
    for (size_t i = 0; i < length;) {
        uint32_t c = (unsigned char)line[i];
        size_t used = 1, left = length - i - 1;
        if (c == '\\' && left != 0 && (line[i + 1] == 'u' || line[i + 1] == 'U')) {
            size_t digits = line[i + 1] == 'u' ? 4 : 8;
            if (!take_hex(line + i + 2, left - 1, digits, &c) || c > 0x10ffff)
                return PICKLE_FAIL(p, SIDESTEP_ECORRUPT, "a broken escape in a string");
            used = digits + 2;
        }
        out += utf8_put(out, c);
        i += used;
    }
    return pickle_push_text(p, PICKLE_STR, decoded, (size_t)(out - decoded));
}
