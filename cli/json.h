/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * json.h -- writes JSON as a stream, because a checkpoint may have a million chunks.  64-bit
 * integers stay exact.  A string is always valid UTF-8 (other bytes become U+FFFD) and harmless on
 * a terminal.
 *
 * In an object every call has a key.  In an array, and for the outermost value, the key is NULL.
 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cli_json {
    FILE *out;
    bool comma; /* the next value needs a comma */
};

/** cli_json_open(json, key, '{' or '['): close it with '}' or ']'. */
void cli_json_open(struct cli_json *json, const char *key, char bracket);
void cli_json_close(struct cli_json *json, char bracket);
/** cli_json_begin(out): open the outermost value, an object; cli_json_end() closes it. */
struct cli_json cli_json_begin(FILE *out);
void cli_json_end(struct cli_json *json);

/** cli_json_text(json, key, text): a string; NULL ${text} is null. */
void cli_json_text(struct cli_json *json, const char *key, const char *text);
void cli_json_texts(struct cli_json *json, const char *key, const char *const *texts, size_t count);
void cli_json_bytes(struct cli_json *json, const char *key, const char *text, size_t length);
void cli_json_int(struct cli_json *json, const char *key, int64_t number);
void cli_json_uint(struct cli_json *json, const char *key, uint64_t number);
/** cli_json_real(json, key, number): the shortest digits that read back as ${number}. */
void cli_json_real(struct cli_json *json, const char *key, double number);
void cli_json_bool(struct cli_json *json, const char *key, bool value);
/** cli_json_known(json, key, known, number): ${number}, or null if it is not known. */
void cli_json_known(struct cli_json *json, const char *key, bool known, int64_t number);
void cli_json_null(struct cli_json *json, const char *key);
/** cli_json_raw(json, key, text): ${text} is JSON already. */
void cli_json_raw(struct cli_json *json, const char *key, const char *text);

#endif
