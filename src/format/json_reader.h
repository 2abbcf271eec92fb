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

#define JSONTEXT_MAX_DEPTH 8 /* of arrays and objects in each other */

struct jsontext {
    char *text;      /* the caller's, writable: strings are decoded where they stand */
    size_t position; /* of what is read next, or where the problem is */
    unsigned depth;
    const char *problem; /* NULL: none */
};

/* ${text} ends with a NUL, and must outlive all strings that were read from it. */
struct jsontext jsontext_over(char *text);

/*
 *      jsontext_enter(&j, '{');
 *      for (bool first = true; jsontext_more(&j, '}', &first);) {
 *          const char *key = jsontext_key(&j);
 *          ... read or skip one value ...
 *      }
 *
 * jsontext_more() goes over the comma or the closing bracket.
 */
void jsontext_enter(struct jsontext *j, char bracket);
bool jsontext_more(struct jsontext *j, char closing_bracket, bool *first);
const char *jsontext_key(struct jsontext *j);

/* UTF-8, without NUL. */
const char *jsontext_string(struct jsontext *j);
/* A number without fraction or exponent that fits. */
int64_t jsontext_integer(struct jsontext *j);
/* Go over a null, if one comes next. */
bool jsontext_null(struct jsontext *j);
/* Go over one value of any type. */
void jsontext_skip(struct jsontext *j);
/* Nothing but white space may be left. */
void jsontext_end(struct jsontext *j);

#endif
