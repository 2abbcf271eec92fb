/* SPDX-License-Identifier: BSD-3-Clause */
/* step_name.c -- finds the step in a checkpoint's name, with and without a template; see list.h. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "catalog/list.h"
#include "format/format.h"
#include "model/model.h"

/* Find where the digits at the end of [name, end) begin. */
static const char *trailing_digits(const char *name, const char *end)
{
    while (end > name && isdigit((unsigned char)end[-1]))
        end--;
    return end;
}

int64_t step_name_trailing_number(const char *name)
{
    const char *end = name + strlen(name);

    return file_name_parse_number(trailing_digits(name, end), end);
}

/* Get the naming of the entry's series. False: the entry does not show it. */
static bool get_naming(const struct sidestep_listed *entry, struct name_template *naming)
{
    char prefix[FILE_NAME_BYTES];

    if (entry->naming != NULL)
        return name_template_from_text(entry->naming, naming, NULL) == SIDESTEP_OK;
    const char *digits = trailing_digits(entry->name, entry->name + strlen(entry->name));
    snprintf(prefix, sizeof(prefix), "%.*s", (int)(digits - entry->name), entry->name);
    return name_template_from_prefix(prefix, naming, NULL) == SIDESTEP_OK;
}

bool step_name_is_original(const struct sidestep_listed *entry)
{
    struct name_template naming;
    char name[FILE_NAME_BYTES];

    if (entry->naming == NULL) /* the prefix is unknown, so accept any */
        return step_name_trailing_number(entry->name) == entry->step;
    if (name_template_from_text(entry->naming, &naming, NULL) != SIDESTEP_OK)
        return false;
    name_template_format_name(&naming, (uint64_t)entry->step, name);
    return strcmp(name, entry->name) == 0;
}

int64_t step_name_infer(const struct sidestep_listed *entries, size_t count, const char *name)
{
    struct name_template naming;
    uint64_t step;

    for (size_t i = 0; i < count; i++)
        if (entries[i].run_id != NULL && !entries[i].is_renamed &&
            get_naming(&entries[i], &naming) && name_template_parse_name(&naming, name, &step))
            return (int64_t)step;
    return -1;
}

enum sidestep_status sidestep_name_of_step(const char *template, uint64_t step, char name[256],
                                           struct sidestep_error *err)
{
    struct name_template naming;

    if (template == NULL || name == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "template or name is NULL");
    TRY(name_template_from_text(template, &naming, err));
    name_template_format_name(&naming, step, name);
    return SIDESTEP_OK;
}

enum sidestep_status sidestep_step_of_name(const char *template, const char *name, uint64_t *step,
                                           struct sidestep_error *err)
{
    struct name_template naming;

    if (template == NULL || name == NULL || step == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "template, name or step is NULL");
    TRY(name_template_from_text(template, &naming, err));
    if (!name_template_parse_name(&naming, name, step))
        return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' is not a name that '%s' makes of a step",
                    display_name(name).text, display_name(template).text);
    return SIDESTEP_OK;
}

static bool ends_with(const char *name, const char *end, const char *text)
{
    size_t length = strlen(text);

    return (size_t)(end - name) >= length && memcmp(end - length, text, length) == 0;
}

/* Is [name, end) text that may precede the number of a step? */
static bool is_step_prefix(const char *name, const char *end)
{
    static const char *const whole[] = {
        "",      "step-", "step_",  "checkpoint-", "checkpoint_", "global_step", "global_step_",
        "iter_", "epoch", "epoch-", "epoch_",      "epoch=",      "dist_epoch_",
    };
    static const struct {
        const char *before, *between; /* a number is between the two */
    } two[] = {{"epoch_", "_step_"} /* NeMo */, {"epoch=", "-step="} /* Lightning */};

    for (size_t i = 0; i < ARRAY_LENGTH(whole); i++)
        if (strlen(whole[i]) == (size_t)(end - name) && ends_with(name, end, whole[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LENGTH(two); i++) {
        if (!ends_with(name, end, two[i].between))
            continue;
        const char *digits_end = end - strlen(two[i].between);
        const char *digits = trailing_digits(name, digits_end);
        if (digits != digits_end && (size_t)(digits - name) == strlen(two[i].before) &&
            ends_with(name, digits, two[i].before))
            return true;
    }
    return false;
}

int64_t step_name_parse(const char *name)
{
    const char *end = name + strlen(name);

    if (ends_with(name, end, ".ckpt")) /* Lightning */
        end -= strlen(".ckpt");
    const char *digits = trailing_digits(name, end);
    return is_step_prefix(name, digits) ? file_name_parse_number(digits, end) : -1;
}
