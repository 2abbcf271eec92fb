/* SPDX-License-Identifier: BSD-3-Clause */
/* utf8.h -- is this text what `.metadata` may hold as a name? */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8 (Unicode table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF)
 * without NUL. */
bool utf8_is_valid(const char *text, size_t length);

#endif
