/* SPDX-License-Identifier: BSD-3-Clause */
/* json_write.c -- see json_write.h. */
#include "format/json_write.h"

void json_write_string(struct buffer *out, const char *text)
{
    buffer_put_u8(out, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20) {
            buffer_printf(out, "\\u%04x", c);
            continue;
        }
        if (c == '"' || c == '\\')
            buffer_put_u8(out, '\\');
        buffer_put_u8(out, c);
    }
    buffer_put_u8(out, '"');
}
