/* SPDX-License-Identifier: BSD-3-Clause */
/* name_template.c -- see name_template.h. */
#include "format/name_template.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "model/model.h"

#define FIELD "{step"

_Static_assert(NAME_TEMPLATE_MAX_NAME < FILE_NAME_BYTES, "a name is one component");

static bool starts_or_ends_with_digit(const char *prefix, const char *suffix)
{
    size_t length = strlen(prefix);

    return (length != 0 && isdigit((unsigned char)prefix[length - 1])) ||
           isdigit((unsigned char)suffix[0]);
}

enum sidestep_status name_template_from_prefix(const char *prefix, struct name_template *naming,
                                               struct sidestep_error *err)
{
    size_t length = strlen(prefix);

    if (strpbrk(prefix, "%{}") != NULL)
        return FAIL(err, SIDESTEP_EINVAL,
                    "series prefix '%s' looks like a template, but names are the prefix and the "
                    "step's number ('step-' makes 'step-42'); pass a template as the name "
                    "('step_{step:08}')",
                    display_name(prefix).text);
    if (length == 0 || length > NAME_TEMPLATE_MAX_PREFIX || strchr(prefix, '/') != NULL ||
        prefix[0] == '.' || starts_or_ends_with_digit(prefix, ""))
        return FAIL(
            err, SIDESTEP_EINVAL,
            "series prefix '%s': 1 to %u bytes, no slash, not starting with a dot or ending "
            "with a digit",
            display_name(prefix).text, NAME_TEMPLATE_MAX_PREFIX);
    *naming = (struct name_template){.digits = 1};
    memcpy(naming->prefix, prefix, length);
    return SIDESTEP_OK;
}

/* ---- templates ---- */

static bool has_refused_byte(const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || strchr("/%\"\\", text[i]) != NULL)
            return true;
    return !utf8_is_valid(text, length);
}

/* Parse what follows FIELD, up to the brace: nothing, ":0N" or ":0Nd".  Move ${*at} past it. */
static bool take_digits(const char **at, uint32_t *digits)
{
    const char *from = *at;

    *digits = 1;
    if (*from == ':') {
        if (from[1] != '0' || from[2] < '1' || from[2] > '9')
            return false;
        for (*digits = 0, from += 2; isdigit((unsigned char)*from); from++)
            if ((*digits = *digits * 10 + (uint32_t)(*from - '0')) > NAME_TEMPLATE_MAX_DIGITS)
                return false;
        from += *from == 'd';
    }
    *at = from + 1;
    return *from == '}';
}

/* Check that names of a template can be parsed, and are not names of other files. */
static enum sidestep_status check_parts(const char *template, const struct name_template *naming,
                                        struct sidestep_error *err)
{
    const char *reserved = file_name_reserved_suffix(naming->suffix);

    if (naming->prefix[0] == '.')
        return FAIL(err, SIDESTEP_EINVAL, "series name '%s' starts with a dot: it would be hidden",
                    template);
    if (starts_or_ends_with_digit(naming->prefix, naming->suffix))
        return FAIL(err, SIDESTEP_EINVAL,
                    "series name '%s': a digit beside {step} could not be told from its number",
                    template);
    if (reserved != NULL)
        return FAIL(err, SIDESTEP_EINVAL, "series name '%s': sidestep's own files end in '%s'",
                    template, reserved);
    return SIDESTEP_OK;
}

enum sidestep_status name_template_from_text(const char *template, struct name_template *naming,
                                             struct sidestep_error *err)
{
    const char *field = strchr(template, '{'), *suffix = field;
    struct display_text shown = display_name(template);
    struct name_template out = {.digits = 1};

    if (has_refused_byte(template))
        return FAIL(err, SIDESTEP_EINVAL,
                    "series name '%s': '/', '%%', '\"', '\\', control characters and bytes that "
                    "are not UTF-8 are refused",
                    shown.text);
    if (field == NULL || strncmp(field, FIELD, strlen(FIELD)) != 0)
        return FAIL(
            err, SIDESTEP_EINVAL,
            "series name '%s': it must contain {step}, as in 'step-{step}', and no other brace",
            shown.text);
    suffix += strlen(FIELD);
    if (!take_digits(&suffix, &out.digits))
        return FAIL(err, SIDESTEP_EINVAL,
                    "series name '%s': only {step}, the number, and {step:08} or {step:08d}, the "
                    "number with zeroes to 8 digits (1 to %u), are known",
                    shown.text, NAME_TEMPLATE_MAX_DIGITS);
    if (strpbrk(suffix, "{}") != NULL || memchr(template, '}', (size_t)(field - template)) != NULL)
        return FAIL(err, SIDESTEP_EINVAL,
                    "series name '%s': it must contain {step} once, and no other brace",
                    shown.text);
    if ((size_t)(field - template) > NAME_TEMPLATE_MAX_PREFIX ||
        strlen(suffix) > NAME_TEMPLATE_MAX_SUFFIX)
        return FAIL(err, SIDESTEP_EINVAL,
                    "series name '%s': at most %u bytes before {step}, and %u after it", shown.text,
                    NAME_TEMPLATE_MAX_PREFIX, NAME_TEMPLATE_MAX_SUFFIX);
    memcpy(out.prefix, template, (size_t)(field - template));
    memcpy(out.suffix, suffix, strlen(suffix));
    TRY(check_parts(shown.text, &out, err));
    *naming = out;
    return SIDESTEP_OK;
}

void name_template_to_text(const struct name_template *naming,
                           char template[NAME_TEMPLATE_MAX_BYTES + 1])
{
    char width[sizeof(":020")] = "";

    if (naming->digits > 1)
        snprintf(width, sizeof(width), ":0%u", naming->digits % 100);
    snprintf(template, NAME_TEMPLATE_MAX_BYTES + 1, "%s" FIELD "%s}%s", naming->prefix, width,
             naming->suffix);
}

bool name_template_is_prefix_only(const struct name_template *naming)
{
    return naming->digits == 1 && naming->suffix[0] == '\0';
}

/* ---- names ---- */

void name_template_format_name(const struct name_template *naming, uint64_t step,
                               char name[FILE_NAME_BYTES])
{
    snprintf(name, FILE_NAME_BYTES, "%s%0*llu%s", naming->prefix, (int)naming->digits,
             (unsigned long long)step, naming->suffix);
}

bool name_template_parse_name(const struct name_template *naming, const char *name, uint64_t *step)
{
    size_t prefix = strlen(naming->prefix);
    char again[FILE_NAME_BYTES];

    if (strncmp(name, naming->prefix, prefix) != 0)
        return false;
    const char *digits = name + prefix;
    int64_t number = file_name_parse_number(digits, digits + strspn(digits, "0123456789"));
    if (number < 0)
        return false;
    name_template_format_name(naming, (uint64_t)number, again);
    *step = (uint64_t)number;
    return strcmp(again, name) == 0;
}
