/* SPDX-License-Identifier: BSD-3-Clause */
/* escape.h -- escapes texts in URLs (RFC 3986), in the form that signatures require. */
#ifndef OBJECT_ESCAPE_H
#define OBJECT_ESCAPE_H

#include "base/base.h"

/* Append ${text}: every byte but letters, digits and "-._~" becomes %XX, with upper-case digits.
 * ${keep_slashes}: '/' stays, as in a path. */
void escape_put(struct buffer *to, const char *text, bool keep_slashes);
/* Decode in place; '+' becomes a blank, as some stores write it.  False: a '%' without two
 * hexadecimal digits, or a %00. */
bool escape_decode(char *text);

#endif
