/* SPDX-License-Identifier: BSD-3-Clause */
/* value_json.c -- prints values as lossless JSON. */
#include "support/value_json.h"

#include <inttypes.h>
#include <string.h>

static void put_tagged_hex(struct buffer *out, const char *tag, const void *bytes, size_t length)
{
    const unsigned char *p = bytes;

    buffer_printf(out, "{\"%s\":\"", tag);
    for (size_t i = 0; i < length; i++)
        buffer_printf(out, "%02x", p[i]);
    buffer_put_text(out, "\"}");
}

static void put_real(struct buffer *out, double real)
{
    uint64_t bits;

    memcpy(&bits, &real, sizeof(bits));
    buffer_printf(out, "{\"f\":\"%016" PRIx64 "\"}", bits);
}

static void put_bytes(struct buffer *out, const char *tag, const struct sidestep_value *value)
{
    size_t length = 0;
    const char *bytes = sidestep_value_get_bytes(value, &length);

    put_tagged_hex(out, tag, bytes, length);
}

static void put_items(struct buffer *out, const struct sidestep_value *value, const char *before,
                      const char *after)
{
    bool keyed = sidestep_value_kind(value) == SIDESTEP_VALUE_DICT;

    buffer_put_text(out, before);
    for (size_t i = 0; i < sidestep_value_count(value); i++) {
        buffer_put_text(out, i != 0 ? "," : "");
        if (keyed) {
            value_json_put(out, sidestep_value_key(value, i));
            buffer_put_u8(out, ',');
        }
        value_json_put(out, sidestep_value_item(value, i));
    }
    buffer_put_text(out, after);
}

void value_json_put(struct buffer *out, const struct sidestep_value *value)
{
    switch (sidestep_value_kind(value)) {
    case SIDESTEP_VALUE_NONE:
        buffer_put_text(out, "null");
        break;
    case SIDESTEP_VALUE_BOOL:
        buffer_put_text(out, sidestep_value_get_bool(value) ? "true" : "false");
        break;
    case SIDESTEP_VALUE_INT:
        buffer_printf(out, "%" PRId64, sidestep_value_get_int(value));
        break;
    case SIDESTEP_VALUE_FLOAT:
        put_real(out, sidestep_value_get_float(value));
        break;
    case SIDESTEP_VALUE_STR:
        put_bytes(out, "s", value);
        break;
    case SIDESTEP_VALUE_BYTES:
        put_bytes(out, "b", value);
        break;
    case SIDESTEP_VALUE_OPAQUE:
        put_bytes(out, "o", value);
        break;
    case SIDESTEP_VALUE_LIST:
        put_items(out, value, "[", "]");
        break;
    case SIDESTEP_VALUE_TUPLE:
        put_items(out, value, "{\"t\":[", "]}");
        break;
    case SIDESTEP_VALUE_DICT:
        put_items(out, value, "{\"d\":[", "]}");
        break;
    }
}

void value_json_put_text(struct buffer *out, const char *text)
{
    if (text != NULL)
        put_tagged_hex(out, "s", text, strlen(text));
    else
        buffer_put_text(out, "null");
}
