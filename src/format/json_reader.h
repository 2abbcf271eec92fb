/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * json_reader.h -- reads strict JSON (RFC 8259) in one pass, without allocations or recursion.
 *
 * The usual libraries build a tree, which takes many times the memory of the text, and json-c loses
 * bytes of strings, without an error, when memory is short.
 *
 * After the first failure each function returns "nothing" (false, 0, "") and changes nothing.  So a
 * caller may read a whole object, and check ${problem} once.
 */
#ifndef FORMAT_JSON_READER_H
#define FORMAT_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_READER_MAX_DEPTH 8 /* of nested arrays and objects */

struct json_reader {
    char *text;      /* the caller's; strings are decoded in place */
    size_t position; /* of the next token, or of the problem */
    unsigned depth;
    const char *problem; /* NULL: none */
};

/* ${text} ends with a NUL, and must outlive the strings read from it. */
struct json_reader json_reader_init(char *text);

/*
 *      json_reader_enter(&j, '{');
 *      for (bool first = true; json_reader_next(&j, '}', &first);) {
 *          const char *key = json_reader_key(&j);
 *          ... read or skip one value ...
 *      }
 *
 * json_reader_next() takes the comma or the closing bracket.
 */
void json_reader_enter(struct json_reader *j, char bracket);
bool json_reader_next(struct json_reader *j, char closing_bracket, bool *first);
const char *json_reader_key(struct json_reader *j);

/* Read a string: UTF-8 without NUL. */
const char *json_reader_string(struct json_reader *j);
/* Read a number without fraction or exponent, of at most 64 bits. */
int64_t json_reader_integer(struct json_reader *j);
/* Skip a null, if one comes next. */
bool json_reader_null(struct json_reader *j);
/* Skip one value of any type. */
void json_reader_skip(struct json_reader *j);
/* Check that only white space is left. */
void json_reader_end(struct json_reader *j);

#endif
