/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * name_template.h -- how the checkpoints of a series are called: what stands before and behind the
 * number of the step, and how many digits it has.  Each step has one name, and each name one step
 * at most.
 */
#ifndef FORMAT_NAME_TEMPLATE_H
#define FORMAT_NAME_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "format/file_name.h"

#define NAME_TEMPLATE_MAX_PREFIX 63u /* bytes, as below */
#define NAME_TEMPLATE_MAX_SUFFIX 63u
#define NAME_TEMPLATE_MAX_DIGITS 20u /* of a number of 64 bits */
#define NAME_TEMPLATE_MAX_NAME                                                                     \
    (NAME_TEMPLATE_MAX_PREFIX + NAME_TEMPLATE_MAX_DIGITS + NAME_TEMPLATE_MAX_SUFFIX)
#define NAME_TEMPLATE_MAX_BYTES                                                                    \
    (NAME_TEMPLATE_MAX_PREFIX + sizeof("{step:020}") - 1 + NAME_TEMPLATE_MAX_SUFFIX)

struct name_template {
    char prefix[NAME_TEMPLATE_MAX_PREFIX + 1];
    char suffix[NAME_TEMPLATE_MAX_SUFFIX + 1];
    uint32_t digits; /* at least so many, with zeroes in front: 1 to 20 */
};

/* ${prefix} and the number.  EINVAL: it could not be read back, or is meant otherwise. */
enum sidestep_status name_template_from_prefix(const char *prefix, struct name_template *naming,
                                               struct sidestep_error *err);
/* "step_{step:08}", "step_{step:08d}", "{step}.dcp".  EINVAL likewise; and as the text is to stand
 * in JSON as it is, for control bytes, quotes, backslashes and what is no UTF-8. */
enum sidestep_status name_template_from_text(const char *template, struct name_template *naming,
                                             struct sidestep_error *err);
/* The template of it, spelled in the one way in which it is written down. */
void name_template_to_text(const struct name_template *naming,
                           char template[NAME_TEMPLATE_MAX_BYTES + 1]);

/* Is a name the prefix and the number, as who knows no template takes it? */
bool name_template_is_prefix_only(const struct name_template *naming);

void name_template_format_name(const struct name_template *naming, uint64_t step,
                               char name[FILE_NAME_BYTES]);
/* Is it exactly the name of a step (of at most INT64_MAX)?  Which. */
bool name_template_parse_name(const struct name_template *naming, const char *name, uint64_t *step);

#endif
