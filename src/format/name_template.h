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

#include "base/error.h"
#include "format/file_name.h"

#define NAMING_MAX_PREFIX 63u /* bytes, as below */
#define NAMING_MAX_SUFFIX 63u
#define NAMING_MAX_DIGITS 20u /* of a number of 64 bits */
#define NAMING_MAX_NAME (NAMING_MAX_PREFIX + NAMING_MAX_DIGITS + NAMING_MAX_SUFFIX)
#define NAMING_MAX_TEMPLATE (NAMING_MAX_PREFIX + sizeof("{step:020}") - 1 + NAMING_MAX_SUFFIX)

struct naming {
    char prefix[NAMING_MAX_PREFIX + 1];
    char suffix[NAMING_MAX_SUFFIX + 1];
    uint32_t digits; /* at least so many, with zeroes in front: 1 to 20 */
};

/* ${prefix} and the number.  EINVAL: it could not be read back, or is meant otherwise. */
enum sidestep_status naming_of_prefix(const char *prefix, struct naming *naming,
                                      struct sidestep_error *err);
/* "step_{step:08}", "step_{step:08d}", "{step}.dcp".  EINVAL likewise; and as the text is to stand
 * in JSON as it is, for control bytes, quotes, backslashes and what is no UTF-8. */
enum sidestep_status naming_of_template(const char *template, struct naming *naming,
                                        struct sidestep_error *err);
/* The template of it, spelled in the one way in which it is written down. */
void naming_template(const struct naming *naming, char template[NAMING_MAX_TEMPLATE + 1]);

/* Is a name the prefix and the number, as who knows no template takes it? */
bool naming_is_plain(const struct naming *naming);

void naming_format(const struct naming *naming, uint64_t step, char name[NAMES_MAX]);
/* Is it exactly the name of a step (of at most INT64_MAX)?  Which. */
bool naming_read(const struct naming *naming, const char *name, uint64_t *step);

#endif
