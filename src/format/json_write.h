/* SPDX-License-Identifier: BSD-3-Clause */
/* json_write.h -- writes strings of JSON (RFC 8259, section 7). */
#ifndef FORMAT_JSON_WRITE_H
#define FORMAT_JSON_WRITE_H

#include "base/base.h"

/* Append ${text} (UTF-8) in quotes, with as few escapes as JSON allows. */
void json_write_string(struct buffer *out, const char *text);

#endif
