/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * json_reader.c -- see json_reader.h.  No token contains a NUL, so each scan stops at the NUL at
 * the end of the text, or at a NUL inside, which JSON does not allow.
 */
#include "format/json_reader.h"

#include <string.h>

#include "base/base.h"

static void set_problem(struct json_reader *j, const char *problem)
{
    if (j->problem == NULL)
        j->problem = problem;
}

struct json_reader json_reader_init(char *text)
{
    return (struct json_reader){.text = text};
}

/* The first byte of the next token.  NUL: the end, or a failure. */
static char next_byte(struct json_reader *j)
{
    if (j->problem != NULL)
        return '\0';
    j->position += strspn(j->text + j->position, " \t\r\n");
    return j->text[j->position];
}

static bool take(struct json_reader *j, const char *token)
{
    size_t length = strlen(token);

    if (next_byte(j) != token[0] || strncmp(j->text + j->position, token, length) != 0)
        return false;
    j->position += length;
    return true;
}

void json_reader_enter(struct json_reader *j, char bracket)
{
    if (next_byte(j) != bracket) {
        set_problem(j, bracket == '{' ? "an object is expected" : "an array is expected");
    } else if (j->depth == JSON_READER_MAX_DEPTH) {
        set_problem(j, "arrays and objects are nested too deep");
    } else {
        j->depth++;
        j->position++;
    }
}

bool json_reader_next(struct json_reader *j, char closing_bracket, bool *first)
{
    if (next_byte(j) == closing_bracket) {
        j->depth--;
        j->position++;
        return false;
    }
    if (!*first && !take(j, ","))
        set_problem(j, "a comma or a closing bracket is expected");
    *first = false;
    return j->problem == NULL;
}

/* Four hexadecimal digits at ${at}.  UINT32_MAX: they are something else. */
static uint32_t hex4(const char *at)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++) {
        int digit = utf8_hex_digit(at[i]);
        if (digit < 0)
            return UINT32_MAX;
        value = value << 4 | (uint32_t)digit;
    }
    return value;
}

/* The code point of "\uXXXX", or of a pair of surrogates, and its length in the text.
 * UINT32_MAX: it is wrong. */
static uint32_t escaped_code_point(const char *at, size_t *length)
{
    uint32_t code = hex4(at + 2);

    *length = 6;
    if (code < 0xd800 || code > 0xdbff)
        return code;
    uint32_t low = at[6] == '\\' && at[7] == 'u' ? hex4(at + 8) : 0;
    *length = 12;
    if (low < 0xdc00 || low > 0xdfff)
        return UINT32_MAX;
    return 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
}

/* Decode the escape at ${from} to ${to}, which is at the same place or before it.  Returns its
 * length; 0: it is wrong. */
static size_t take_escape(const char *from, char *to, size_t *written)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter = from[1] != '\0' ? strchr(letters, from[1]) : NULL;
    size_t length = 2;

    *written = 1;
    if (letter != NULL) {
        *to = meanings[letter - letters];
        return length;
    }
    uint32_t code = from[1] == 'u' ? escaped_code_point(from, &length) : UINT32_MAX;
    if (code == 0 || code == UINT32_MAX || (code >= 0xdc00 && code <= 0xdfff))
        return 0;
    *written = utf8_put(to, code);
    return length;
}

const char *json_reader_string(struct json_reader *j)
{
    if (next_byte(j) != '"') {
        set_problem(j, "a string is expected");
        return "";
    }
    char *begin = j->text + j->position + 1;
    const char *from = begin;
    char *to = begin;
    while (*from != '"') {
        size_t written = 1;
        size_t step = (unsigned char)*from < 0x20 ? 0 : 1;
        if (*from == '\\')
            step = take_escape(from, to, &written);
        else
            *to = *from;
        if (step == 0) {
            set_problem(j, "a string with a control byte or a wrong escape");
            return "";
        }
        from += step;
        to += written;
    }
    if (!utf8_is_valid(begin, (size_t)(to - begin))) {
        set_problem(j, "a string that is not UTF-8");
        return "";
    }
    *to = '\0';
    j->position = (size_t)(from + 1 - j->text);
    return begin;
}

const char *json_reader_key(struct json_reader *j)
{
    const char *key = json_reader_string(j);

    if (!take(j, ":"))
        set_problem(j, "a colon is expected");
    return j->problem == NULL ? key : "";
}

/* The length of the number at ${at}, by RFC 8259, section 6.  0: it is not a number. */
static size_t number_length(const char *at, bool *is_integer)
{
    static const char digits[] = "0123456789";
    const char *p = at + (*at == '-');
    size_t n = strspn(p, digits);

    *is_integer = true;
    if (n == 0 || (n > 1 && *p == '0'))
        return 0;
    p += n;
    if (*p == '.') {
        *is_integer = false;
        n = strspn(p + 1, digits);
        if (n == 0)
            return 0;
        p += 1 + n;
    }
    if (*p == 'e' || *p == 'E') {
        *is_integer = false;
        p += p[1] == '+' || p[1] == '-' ? 2 : 1;
        n = strspn(p, digits);
        if (n == 0)
            return 0;
        p += n;
    }
    return (size_t)(p - at);
}

int64_t json_reader_integer(struct json_reader *j)
{
    char first = next_byte(j);
    const char *at = j->text + j->position;
    bool is_integer = false;
    size_t length = j->problem == NULL ? number_length(at, &is_integer) : 0;
    uint64_t magnitude = 0;

    if (length == 0 || !is_integer) {
        set_problem(j, "an integer is expected");
        return 0;
    }
    for (size_t i = first == '-'; i < length; i++)
        if (!checked_mul(magnitude, 10, &magnitude) ||
            !checked_add(magnitude, (uint64_t)(at[i] - '0'), &magnitude) ||
            magnitude > (uint64_t)INT64_MAX + (first == '-')) {
            set_problem(j, "an integer of more than 64 bits");
            return 0;
        }
    j->position += length;
    return (int64_t)(first == '-' ? 0 - magnitude : magnitude);
}

bool json_reader_null(struct json_reader *j)
{
    return take(j, "null");
}

static void skip_scalar(struct json_reader *j)
{
    bool is_integer;

    if (next_byte(j) == '"') {
        (void)json_reader_string(j);
        return;
    }
    if (take(j, "true") || take(j, "false") || take(j, "null"))
        return;
    size_t length = j->problem == NULL ? number_length(j->text + j->position, &is_integer) : 0;
    if (length == 0)
        set_problem(j, "a value is expected");
    j->position += length;
}

void json_reader_skip(struct json_reader *j)
{
    char closing[JSON_READER_MAX_DEPTH + 1]; /* the closing bracket of each level */
    unsigned outside = j->depth;

    do {
        char byte = next_byte(j);
        bool first = byte == '{' || byte == '[';
        if (first) {
            json_reader_enter(j, byte);
            closing[j->depth] = byte == '{' ? '}' : ']';
        } else {
            skip_scalar(j);
        }
        /* Leave all levels that end here, and go to the next value, if there is one. */
        while (j->depth > outside && j->problem == NULL) {
            bool in_object = closing[j->depth] == '}';
            if (json_reader_next(j, closing[j->depth], &first)) {
                if (in_object)
                    (void)json_reader_key(j);
                break;
            }
            first = false;
        }
    } while (j->depth > outside && j->problem == NULL);
}

void json_reader_end(struct json_reader *j)
{
    if (next_byte(j) != '\0')
        set_problem(j, "something follows the end");
}
