/* SPDX-License-Identifier: BSD-3-Clause */
/* escape.h -- texts in URLs (RFC 3986), in the one form that a signature allows. */
#ifndef OBJECT_ESCAPE_H
#define OBJECT_ESCAPE_H

#include "base/base.h"

/* Append ${text}: every byte but letters, digits and "-._~" becomes %XX, with upper-case digits.
 * ${keep_slashes}: '/' stays, as in a path. */
void escape_put(struct buffer *to, const char *text, bool keep_slashes);
/* Undo it in place; '+' becomes a blank, as some stores mean it.  False: a '%' without two
 * hexadecimal digits, or a %00. */
bool escape_decode(char *text);

#endif
