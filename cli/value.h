/* SPDX-License-Identifier: BSD-3-Clause */
/* value.h -- prints decoded objects, as JSON for programs and as Python-like text for people. */
#ifndef CLI_VALUE_H
#define CLI_VALUE_H

#include "json.h"

#include <sidestep/sidestep.h>

/** Deeper nesting than this is not printed. */
#define CLI_VALUE_MAX_DEPTH 64

/** cli_value_is_json(value): JSON can hold it: no bytes, nothing opaque, not too deep. */
bool cli_value_is_json(const struct sidestep_value *value);

/** cli_value_json(json, key, value): print JSON; other values become {"$bytes":"base64"} or
 * {"$opaque":"description"}. */
void cli_value_json(struct cli_json *json, const char *key, const struct sidestep_value *value);

/** cli_value_text(value, columns): text like Python's repr(), escaped, at most ${columns} wide, cut
 * with "..."; the caller frees it. */
char *cli_value_text(const struct sidestep_value *value, size_t columns);

#endif
