/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * escape.h -- escapes text for people.  Names come from files, and files from anywhere.  A printed
 * name must not move the cursor, recolour the screen, type into the shell, or fake another line.
 *
 * Escaped are: control characters (\n, \t, \r, otherwise \xNN), bytes that are not UTF-8 (\xNN),
 * characters that reorder or hide text (\uNNNN), and the backslash itself (\\).
 */
#ifndef CLI_ESCAPE_H
#define CLI_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** cli_escape_decode_utf8(text, length, &character): the number of bytes of the UTF-8 character at
 * the start of ${text}; 0 if it is not valid (overlong, surrogate, cut, or ${length} 0). */
size_t cli_escape_decode_utf8(const char *text, size_t length, uint32_t *character);

/** cli_escape_is_printable(character): a terminal shows it, and does nothing else. */
bool cli_escape_is_printable(uint32_t character);

void cli_escape_write(FILE *out, const char *text, size_t length);

/** cli_escape_text(text): the escaped text; the caller frees it. */
char *cli_escape_text(const char *text);

/** cli_escape_width(text): columns that escaped ${text} takes on a terminal. */
size_t cli_escape_width(const char *text);

/** cli_escape_truncate(text, columns): cut escaped ${text} so that it takes at most ${columns} (>=
 * 3), with "..." where it was cut. */
void cli_escape_truncate(char *text, size_t columns);

#endif
