/* SPDX-License-Identifier: BSD-3-Clause */
/* value_json.h -- prints values as lossless JSON, for tests in Python. */
#ifndef SUPPORT_VALUE_JSON_H
#define SUPPORT_VALUE_JSON_H

#include "base/buffer.h"
#include "sidestep/sidestep.h"

/* null, true, integers and [lists] are themselves; {"f": bits of a float}, {"s": UTF-8}, {"b":
 * bytes} and {"o": a description}, all in hexadecimal; {"t": [a tuple]}, {"d": [key, value,
 * ...]}. */
void value_json_put(struct buffer *out, const struct sidestep_value *value);
/* {"s": ...}, or null for NULL. */
void value_json_put_text(struct buffer *out, const char *text);

#endif
