/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * name_template.h -- writes and parses the names of the checkpoints of a series: a prefix, the
 * number of the step, and a suffix.  Each step has one name, and each name has at most one step.
 */
#ifndef FORMAT_NAME_TEMPLATE_H
#define FORMAT_NAME_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "format/file_name.h"

#define NAME_TEMPLATE_MAX_PREFIX 63u /* bytes */
#define NAME_TEMPLATE_MAX_SUFFIX 63u
#define NAME_TEMPLATE_MAX_DIGITS 20u /* of a number of 64 bits */
#define NAME_TEMPLATE_MAX_NAME                                                                     \
    (NAME_TEMPLATE_MAX_PREFIX + NAME_TEMPLATE_MAX_DIGITS + NAME_TEMPLATE_MAX_SUFFIX)
#define NAME_TEMPLATE_MAX_BYTES                                                                    \
    (NAME_TEMPLATE_MAX_PREFIX + sizeof("{step:020}") - 1 + NAME_TEMPLATE_MAX_SUFFIX)

struct name_template {
    char prefix[NAME_TEMPLATE_MAX_PREFIX + 1];
    char suffix[NAME_TEMPLATE_MAX_SUFFIX + 1];
    uint32_t digits; /* 1 to 20; shorter numbers begin with zeroes */
};

/* Make the template of names that are ${prefix} and the number.  EINVAL: such names could not be
 * parsed, or ${prefix} looks like a template. */
enum sidestep_status name_template_from_prefix(const char *prefix, struct name_template *naming,
                                               struct sidestep_error *err);
/* Parse a template: "step_{step:08}", "step_{step:08d}", "{step}.dcp".  EINVAL: names could not be
 * parsed, or it has control bytes, quotes or backslashes, or is not UTF-8.  So a template needs
 * no escapes in JSON. */
enum sidestep_status name_template_from_text(const char *template, struct name_template *naming,
                                             struct sidestep_error *err);
/* Write the template as manifests have it: there is one way to write each. */
void name_template_to_text(const struct name_template *naming,
                           char template[NAME_TEMPLATE_MAX_BYTES + 1]);

/* Is a name just the prefix and the number?  Versions without templates know only such names. */
bool name_template_is_prefix_only(const struct name_template *naming);

void name_template_format_name(const struct name_template *naming, uint64_t step,
                               char name[FILE_NAME_BYTES]);
/* Is it exactly the name of a step (at most INT64_MAX)?  Sets ${*step}. */
bool name_template_parse_name(const struct name_template *naming, const char *name, uint64_t *step);

#endif
