/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * json_reader.h -- strict JSON (RFC 8259), read in one pass, without a tree, an allocation or
 * recursion.  A library with a tree would need memory of many times the text's size, and the one
 * at hand drops bytes of strings, silently, when memory is short.
 *
 * Like a cursor, a failure sticks: after the first one every get returns "nothing" (false, 0, "")
 * and changes nothing, so that a caller may read a whole object and look at ${problem} once.
 */
#ifndef FORMAT_JSON_READER_H
#define FORMAT_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_READER_MAX_DEPTH 8 /* of arrays and objects in each other */

struct json_reader {
    char *text;      /* the caller's, writable: strings are decoded where they stand */
    size_t position; /* of what is read next, or where the problem is */
    unsigned depth;
    const char *problem; /* NULL: none */
};

/* ${text} ends with a NUL, and must outlive all strings that were read from it. */
struct json_reader json_reader_init(char *text);

/*
 *      json_reader_enter(&j, '{');
 *      for (bool first = true; json_reader_next(&j, '}', &first);) {
 *          const char *key = json_reader_key(&j);
 *          ... read or skip one value ...
 *      }
 *
 * json_reader_next() goes over the comma or the closing bracket.
 */
void json_reader_enter(struct json_reader *j, char bracket);
bool json_reader_next(struct json_reader *j, char closing_bracket, bool *first);
const char *json_reader_key(struct json_reader *j);

/* UTF-8, without NUL. */
const char *json_reader_string(struct json_reader *j);
/* A number without fraction or exponent that fits. */
int64_t json_reader_integer(struct json_reader *j);
/* Go over a null, if one comes next. */
bool json_reader_null(struct json_reader *j);
/* Go over one value of any type. */
void json_reader_skip(struct json_reader *j);
/* Nothing but white space may be left. */
void json_reader_end(struct json_reader *j);

#endif
